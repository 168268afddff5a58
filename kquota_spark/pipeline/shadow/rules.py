"""The shadow quotas as a worker has them, and the clients for which they can differ from the enforced ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from kquota_spark.model.govern.govern import Governed, Governor
from kquota_spark.model.loops.shadow_bucket import ShadowLimit
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import AnyKey
from kquota_spark.model.quotas.rules import RuleBook, RulePeriod


class ShadowPin(NamedTuple):
    """The shadow quotas of a micro-batch: the same for all its tasks, and for a retry."""

    name: str
    version: str
    """Hash of the meaning of the quotas."""
    from_ms: int
    """Start of the first open second when this version began, epoch ms; 0 if it is as old as the state."""


class Differing(NamedTuple):
    """The clients for which two sets of quotas can differ: all, or those with these users and client ids."""

    is_everyone: bool = False
    users: frozenset[str] = frozenset()
    client_ids: frozenset[str] = frozenset()

    def has(self, user: str, client_id: str) -> bool:
        """Whether the quotas of a client can differ."""
        return self.is_everyone or user in self.users or client_id in self.client_ids


EVERYONE = Differing(is_everyone=True)


class Shadow(NamedTuple):
    """Shadow quotas: their version, what they give to whom, and the clients that may get another limit."""

    pin: ShadowPin
    governor: Governor
    differing: Differing


def differing(enforced: RuleBook, shadow: Mapping[Entity, Mapping[AnyKey, float]], from_ms: int) -> Differing:
    """The clients that enforced and shadow quotas may treat differently.

    It may contain a client too many, never one too few: the user of a pair counts for the pair.

    Args:
        enforced: the enforced quotas over time.
        shadow: the shadow quotas, at all times.
        from_ms: enforced quotas that ended before make no difference, epoch ms.
    """
    found = [
        entity
        for entity in {*enforced, *shadow}
        if not _is_always(enforced.of(entity), shadow.get(entity, {}), from_ms)
    ]
    users = {entity.user for entity in found if isinstance(entity.user, str)}
    others = [entity.client_id for entity in found if not isinstance(entity.user, str)]
    client_ids = {client_id for client_id in others if isinstance(client_id, str)}
    is_everyone = any(not isinstance(client_id, str) for client_id in others)
    return Differing(is_everyone, frozenset(users), frozenset(client_ids))


def _is_always(rules: Iterable[RulePeriod], values: Mapping[AnyKey, float], from_ms: int) -> bool:
    """Whether an entity has these values without a break from a time on."""
    after_ms: int | None = None
    for rule in rules:
        if rule.valid_to_ms is not None and rule.valid_to_ms <= from_ms:
            continue
        if dict(rule.values) != dict(values):
            return False
        starts_ms = from_ms if after_ms is None else after_ms
        if rule.valid_from_ms > starts_ms and values:
            return False
        if rule.valid_to_ms is None:
            return True
        after_ms = rule.valid_to_ms
    return not values


class Shadowed(msgspec.Struct, array_like=True, gc=False):
    """What a value for one shard has of the shadow quotas, beside the columns of its pieces."""

    name: str
    version: str
    from_ms: int
    limits: list[ShadowLimit] = []
    limit_of: list[int] = []
    """For each of the terms the position of its limit; -1 if such requests count in another bucket."""

    @property
    def has_difference(self) -> bool:
        """Whether some piece has another limit, or counts in another bucket."""
        return -1 in self.limit_of or not all(each.is_enforced for each in self.limits)

    def at(self, places: Iterable[int]) -> Shadowed:
        """The same for some of the terms, each limit once."""
        found: dict[int, int] = {-1: -1}
        moved = [found.setdefault(limit, len(found) - 1) for limit in map(self.limit_of.__getitem__, places)]
        limits = [self.limits[place] for place in found if place >= 0]
        return Shadowed(self.name, self.version, self.from_ms, limits, moved)


def shadow_limit(found: Governed, limit_per_s: float | None, *, has_request_quota: bool) -> ShadowLimit:
    """The limit that shadow quotas give to a request, beside the enforced one.

    Args:
        found: what governs the request by the shadow quotas.
        limit_per_s: the limit in force.
        has_request_quota: whether the client also has a request quota in force.
    """
    limit, inferred_limit = found.governing.limit_per_s, None if has_request_quota else limit_per_s
    return ShadowLimit(
        limit,
        found.level,
        found.rule,
        found.governing.has_request_quota,
        limit == limit_per_s,
        inferred_limit,
    )
