"""The quota that governs a request, its bucket, and the reason: Kafka's eight levels, per quota key.

This module resolves in two stages, as the broker does: the tags (the bucket) from a walk over the levels, then the
limit from the tags alone. With an empty client id the two stages do not match (KAFKA-13341). A default is a template
for many buckets, never one bucket.

Source: `ClientQuotaManager`, `DefaultQuotaCallback`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from kquota_spark.model.quotas.enabled_types import EnabledTypes
from kquota_spark.model.quotas.entities import DEFAULT, LEVELS, Entity, Name
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey

Tags = tuple[tuple[str, str], ...]
_Quotas = Mapping[QuotaKey, float] | Mapping[AnyKey, float] | None
QuotasOf = Callable[[Entity], _Quotas]
"""Function that gives the quotas of an entity; None if there is no such entity."""

STATIC_DEFAULT_LEVEL = 9
"""Level of `quota.producer.default` and `quota.consumer.default` of brokers up to 2.8, after the eight levels."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The clients that share one quota sensor, by user and client-id tags; an empty tag means no tag.

    `custom_tags` are the tags of the operator's own quota callback, sorted by name. The user and client id are then
    empty, unless the callback uses exactly these tags.
    """

    user: str
    client_id: str
    custom_tags: Tags = ()


class Standing(Enum):
    """The result for a candidate of the walk."""

    GOVERNS = "governs"
    ABSENT = "there is no such entity"
    OTHER_KEYS = "has no quota of this type"
    OVERRIDDEN = "a more specific level governs"
    NOT_REACHED = "has a quota, but the broker does not look here"


class Step(NamedTuple):
    """One candidate of the walk. Level 9 has no entity: its limit is the broker's static default."""

    level: int
    entity: Entity | None
    standing: Standing
    limit: float | None


@dataclass(frozen=True, slots=True)
class Resolution:
    """The limit in force, its source, and the bucket; without a limit, level, entity and limit are None.

    `walk` contains every candidate in order of precedence, with its result.
    """

    bucket: Bucket
    level: int | None = None
    entity: Entity | None = None
    limit: float | None = None
    walk: tuple[Step, ...] = field(default=(), compare=False)


USER_ONLY_LEVELS = (3, 6)
CLIENT_ONLY_LEVELS = (7, 8)
_PAIR_LEVELS = (1, 2, 4, 5)


# Cached, because a resolution needs them three times, and callers resolve one client in several sets of quotas.
@lru_cache(maxsize=256)
def candidates(user: str, client_id: str) -> tuple[Entity, ...]:
    """The entities that could govern (user, client id), most specific first; none has an empty name."""
    users: dict[str, Name] = {"named": user, "default": DEFAULT, "absent": None}
    client_ids: dict[str, Name] = {"named": client_id, "default": DEFAULT, "absent": None}
    return tuple(
        Entity(users[of_user], client_ids[of_client])
        for of_user, of_client in LEVELS
        if (user or of_user != "named") and (client_id or of_client != "named")
    )


def bucket_of_level(level: int | None, user: str, client_id: str) -> Bucket:
    """The bucket of a client at a level; traffic that no rule matches is recorded under its client id."""
    if level is None or level in CLIENT_ONLY_LEVELS or level == STATIC_DEFAULT_LEVEL:
        return Bucket("", client_id)
    return Bucket(user, "" if level in USER_ONLY_LEVELS else client_id)


def bucket_of(
    user: str, client_id: str, has_quota: Callable[[Entity], bool], enabled: EnabledTypes = EnabledTypes.MIXED
) -> Bucket:
    """First stage: the tags of a request; see `resolve`. With a single kind enabled the broker skips the walk.

    Args:
        user: raw name, empty for none.
        client_id: raw client id; may be empty.
        has_quota: reports whether an entity has a quota of this type.
        enabled: the kinds of entities that have any quotas.
    """
    if enabled in (EnabledTypes.NONE, EnabledTypes.CLIENT_ID):
        return Bucket("", client_id)
    if enabled is EnabledTypes.USER:
        return Bucket(user, "")
    if enabled is EnabledTypes.USER_CLIENT_ID:
        return Bucket(user, client_id)
    level = next((entity.level for entity in candidates(user, client_id) if has_quota(entity)), None)
    return bucket_of_level(level, user, client_id)


def levels_of(bucket: Bucket) -> tuple[int, ...]:
    """The levels at which the broker searches for the limit of a bucket, in order."""
    if bucket.user:
        return _PAIR_LEVELS if bucket.client_id else USER_ONLY_LEVELS
    return (*CLIENT_ONLY_LEVELS, STATIC_DEFAULT_LEVEL) if bucket.client_id else ()


def governing_entity(bucket: Bucket, has_quota: Callable[[Entity], bool]) -> Entity | None:
    """Second stage: the entity that sets the limit of a bucket; None if none does."""
    reached = levels_of(bucket)
    for entity in candidates(bucket.user, bucket.client_id):
        if entity.level in reached and has_quota(entity):
            return entity
    return None


def resolve(
    user: str,
    client_id: str,
    key: QuotaKey | str,
    quotas_of: QuotasOf,
    *,
    enabled: EnabledTypes = EnabledTypes.MIXED,
    static_default: float | None = None,
) -> Resolution:
    """Resolve the quota of one request, in both stages.

    Args:
        user: principal name, not sanitised.
        client_id: client id; may be empty.
        key: the quota key in question, or Kafka's spelling of it.
        quotas_of: gives the quotas of each entity.
        enabled: the broker's bit set of enabled kinds.
        static_default: the broker's own default for this key (0.9 to 2.8), None if not set.

    Raises:
        ValueError: there is no such key.

    Examples:
        The pair has no quota of its own, so the user's quota governs, and all clients of the user share it:

        >>> from kquota_spark.model import Entity, QuotaKey, resolve
        >>> quotas = {Entity("alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1e6}}
        >>> found = resolve("alice", "etl", "producer_byte_rate", quotas.get)
        >>> found.limit, found.level, str(found.entity), found.bucket
        (1000000.0, 3, 'users/alice', Bucket(user='alice', client_id='', custom_tags=()))
    """
    key = QuotaKey(key)
    found: list[tuple[int, Entity | None, _Quotas]] = [
        (entity.level, entity, quotas_of(entity)) for entity in candidates(user, client_id)
    ]
    carrying = {entity for _, entity, quotas in found if quotas is not None and key in quotas}
    bucket = bucket_of(user, client_id, carrying.__contains__, enabled)
    entity = governing_entity(bucket, carrying.__contains__)
    governing = None if entity is None else entity.level
    if static_default is not None:
        found.append((STATIC_DEFAULT_LEVEL, None, {key: static_default}))
        if governing is None and STATIC_DEFAULT_LEVEL in levels_of(bucket):
            governing = STATIC_DEFAULT_LEVEL
    walk = tuple(_step(level, entity, quotas, key, governing) for level, entity, quotas in found)
    won = next((step for step in walk if step.standing is Standing.GOVERNS), None)
    if won is None:
        return Resolution(bucket, walk=walk)
    return Resolution(bucket, won.level, won.entity, won.limit, walk)


def _step(level: int, entity: Entity | None, quotas: _Quotas, key: QuotaKey, governing: int | None) -> Step:
    if quotas is None:
        return Step(level, entity, Standing.ABSENT, None)
    limit = quotas.get(key)
    if limit is None:
        return Step(level, entity, Standing.OTHER_KEYS, None)
    if level == governing:
        return Step(level, entity, Standing.GOVERNS, limit)
    is_behind = governing is not None and level > governing
    return Step(level, entity, Standing.OVERRIDDEN if is_behind else Standing.NOT_REACHED, limit)
