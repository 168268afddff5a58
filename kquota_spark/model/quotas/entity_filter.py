"""Which entities a question means, as DescribeClientQuotas matches them (KIP-546).

Source: Kafka's `ClientQuotaFilter`, `ClientQuotasImage`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from kquota_spark.model.quotas.entities import AnyEntity, Default, Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_set import QuotaSet, in_order


class EntityType(Enum):
    """Parts that an entity may have; the value is Kafka's spelling."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class AnyName(Enum):
    """Any name, and the default."""

    ANY = "any"


ANY = AnyName.ANY


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """What each type has to be: a name, the default or any; a strict filter takes entities with no other type.

    Raises:
        ValueError: an ip beside another type: no entity has both; or strict without any type.
    """

    parts: Mapping[EntityType, str | Default | AnyName] = field(default_factory=dict)
    is_strict: bool = False

    def __post_init__(self) -> None:
        if EntityType.IP in self.parts and len(self.parts) > 1:
            msg = "an ip stands alone, no entity has a user or client-id beside it"
            raise ValueError(msg)
        if self.is_strict and not self.parts:
            msg = "strict without any type would match nothing"
            raise ValueError(msg)

    def matches(self, entity: AnyEntity) -> bool:
        """Whether an entity has all that the filter names."""
        has = parts_of(entity)
        if self.is_strict and has.keys() != self.parts.keys():
            return False
        return all(kind in has and wanted in (ANY, has[kind]) for kind, wanted in self.parts.items())

    def among(self, quotas: QuotaSet) -> Iterator[AnyEntity]:
        """The entities of a set that match, by level and name."""
        return (entity for entity in in_order(quotas) if self.matches(entity))


def parts_of(entity: AnyEntity) -> dict[EntityType, str | Default]:
    """The parts that an entity has."""
    if isinstance(entity, IpEntity):
        return {EntityType.IP: entity.ip}
    parts: dict[EntityType, Name] = {EntityType.USER: entity.user, EntityType.CLIENT_ID: entity.client_id}
    return {kind: name for kind, name in parts.items() if name is not None}


def entity_of(parts: Mapping[EntityType, str | Default]) -> AnyEntity:
    """The entity of its parts.

    Raises:
        ValueError: no parts, an ip beside another, or no name of an ip.
    """
    if EntityType.IP in parts:
        if len(parts) > 1:
            msg = "an ip stands alone, no entity has a user or client-id beside it"
            raise ValueError(msg)
        return IpEntity(parts[EntityType.IP])
    return Entity(parts.get(EntityType.USER), parts.get(EntityType.CLIENT_ID))
