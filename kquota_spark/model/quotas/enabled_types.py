"""Which kinds of entities a broker's quota manager has ever seen: they choose its short cuts.

Source: `quotaTypesEnabled` of Kafka's `ClientQuotaManager`. The bits are set by every update, a removal too,
and stay until the broker restarts; from 4.1 on (KAFKA-19282) the last entity of a kind takes its bit along.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntFlag

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import QuotaChange


class EnabledTypes(IntFlag):
    """The bit set of one manager of one broker."""

    NONE = 0
    CLIENT_ID = 1
    USER = 2
    USER_CLIENT_ID = 4
    MIXED = 7
    """The full walk; what is assumed where the broker's history is not known. All mixes resolve alike."""


class QuotaMetadata(Enum):
    """Where brokers keep quotas; decides which managers an update reaches."""

    ZOOKEEPER = "zookeeper"
    """Every update of an entity sets the bit in all four managers (`UserConfigHandler`)."""
    KRAFT = "kraft"
    """Only the manager of the key is told (`ClientQuotaMetadataManager`)."""


def type_of(entity: Entity) -> EnabledTypes:
    """The bit that an entity sets."""
    if entity.user is None:
        return EnabledTypes.CLIENT_ID
    return EnabledTypes.USER if entity.client_id is None else EnabledTypes.USER_CLIENT_ID


def enabled_types(
    changes: Iterable[QuotaChange],
    quota_type: QuotaType,
    metadata: QuotaMetadata,
    *,
    is_sticky: bool = True,
    has_static_default: bool = False,
) -> EnabledTypes:
    """The bits of one manager.

    Args:
        changes: edits since the broker's start, and at its start the quotas that it found.
        quota_type: the manager.
        metadata: ZooKeeper or KRaft mode.
        is_sticky: brokers up to 4.0; newer ones forget a kind with its last entity.
        has_static_default: `quota.producer.default` or `quota.consumer.default` is set for this manager.
    """
    bits = EnabledTypes.CLIENT_ID if has_static_default else EnabledTypes.NONE
    present: set[Entity] = set()
    for change in changes:
        if not isinstance(change.entity, Entity):
            continue
        if metadata is QuotaMetadata.KRAFT and change.key is not quota_type.key:
            continue
        if is_sticky:
            bits |= type_of(change.entity)
        elif change.value is None:
            present.discard(change.entity)
        else:
            present.add(change.entity)
    for entity in present:
        bits |= type_of(entity)
    return bits
