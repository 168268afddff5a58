"""The kinds of entities that a broker's quota manager has ever seen, which select its short cuts.

Source: `quotaTypesEnabled` of Kafka's `ClientQuotaManager`. Every update sets the bits, also a removal, and they stay
until the broker restarts. From 4.1 on (KAFKA-19282), removing the last entity of a kind clears its bit.
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
    """The full walk, assumed if the broker's history is not known. All mixes resolve in the same way."""


class QuotaMetadata(Enum):
    """Where brokers keep quotas, which decides which managers an update reaches."""

    ZOOKEEPER = "zookeeper"
    """Every update of an entity sets the bit in all four managers (`UserConfigHandler`)."""
    KRAFT = "kraft"
    """An update reaches only the manager of its key (`ClientQuotaMetadataManager`)."""


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
        changes: the quotas that the broker found at its start, as edits, then the edits since.
        quota_type: the type of the manager.
        metadata: ZooKeeper or KRaft mode.
        is_sticky: whether bits stay, as in brokers up to 4.0; newer ones clear the bit of a kind with its last entity.
        has_static_default: whether `quota.producer.default` or `quota.consumer.default` is set for this manager.
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
