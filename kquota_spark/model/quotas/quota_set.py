"""All quotas of a cluster at one time, the edits between two such sets, and filters of entities.

Import, export, diff and the quota commands pass these sets around; validity over time is in `model.quotas.rules`.
Filters match as DescribeClientQuotas does (KIP-546; Kafka's `ClientQuotaFilter`, `ClientQuotasImage`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kquota_spark.model.quotas.entities import AnyEntity, Default, Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_types import AnyKey

QuotaSet = Mapping[AnyEntity, Mapping[AnyKey, float]]
"""The values of each entity that has any: bytes, mutations or connections per second, or percent of a thread."""


class QuotaEdit(NamedTuple):
    """The values of one key of one entity before and after an edit; None means not set."""

    entity: AnyEntity
    key: AnyKey
    before: float | None
    after: float | None


def edits_between(before: QuotaSet, after: QuotaSet, *, keep_others: bool) -> Iterator[QuotaEdit]:
    """The edits that turn one set into another, by level, entity and key.

    With `keep_others`, keys and entities that `after` does not name are kept; otherwise they are removed.
    """
    for entity in sorted({*before, *after}, key=_order):
        has, wants = before.get(entity, {}), after.get(entity, {})
        for key in sorted({*has, *wants}, key=lambda key: key.value):
            if has.get(key) != wants.get(key) and (key in wants or not keep_others):
                yield QuotaEdit(entity, key, has.get(key), wants.get(key))


def in_order(quotas: QuotaSet) -> list[AnyEntity]:
    """The entities of a set in reading order: by level, most specific first and ips last, then by name."""
    return sorted(quotas, key=_order)


def _order(entity: AnyEntity) -> tuple[int, str]:
    return entity.level or 9, str(entity)


class EntityType(Enum):
    """Parts that an entity may have; the value is Kafka's spelling."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class AnyName(Enum):
    """The filter value that matches any name and the default."""

    ANY = "any"


ANY = AnyName.ANY
_NOT_ALONE = "an ip stands alone, no entity has a user or client-id beside it"


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """The required value of each type: a name, the default or any; a strict filter refuses entities with other types.

    Raises:
        ValueError: an ip together with another type, because no entity has both; or strict without any type.
    """

    parts: Mapping[EntityType, str | Default | AnyName] = field(default_factory=dict)
    is_strict: bool = False

    def __post_init__(self) -> None:
        if EntityType.IP in self.parts and len(self.parts) > 1:
            raise ValueError(_NOT_ALONE)
        if self.is_strict and not self.parts:
            raise ValueError("strict without any type would match nothing")

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
    """The entity that has these parts.

    Raises:
        ValueError: no parts, an ip together with another part, or an invalid ip.
    """
    if EntityType.IP in parts:
        if len(parts) > 1:
            raise ValueError(_NOT_ALONE)
        return IpEntity(parts[EntityType.IP])
    return Entity(parts.get(EntityType.USER), parts.get(EntityType.CLIENT_ID))
