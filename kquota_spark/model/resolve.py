"""Which quota governs a request, and the bucket it shares: Kafka's eight levels, per quota key.

Source: `ClientQuotaManager`, `DefaultQuotaCallback`. A default is a template for many buckets, never one bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kquota_spark.model.entities import DEFAULT, Entity


@dataclass(frozen=True, slots=True)
class Bucket:
    """Who shares one quota sensor: the user and client-id tags; an empty tag is no tag."""

    user: str
    client_id: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """The limit in force, where it comes from, and the bucket; all but the bucket None where nothing limits."""

    bucket: Bucket
    level: int | None = None
    entity: Entity | None = None
    limit: float | None = None


USER_ONLY_LEVELS = (3, 6)
CLIENT_ONLY_LEVELS = (7, 8)


def candidates(user: str, client_id: str) -> tuple[Entity, ...]:
    """Entities that can govern (user, client id), most specific first.

    An empty client id reaches no entity with a client-id part: the broker looks it up with the tag (user, "")
    alone, so it falls to the user's or the default user's quota, or is unlimited.
    """
    if not client_id:
        return (Entity(user=user), Entity(user=DEFAULT))
    return (
        Entity(user, client_id),
        Entity(user, DEFAULT),
        Entity(user),
        Entity(DEFAULT, client_id),
        Entity(DEFAULT, DEFAULT),
        Entity(DEFAULT),
        Entity(None, client_id),
        Entity(None, DEFAULT),
    )


def bucket_of(level: int | None, user: str, client_id: str) -> Bucket:
    """The bucket that a level makes; traffic that no rule matches is recorded under its client id."""
    if level is None or level in CLIENT_ONLY_LEVELS:
        return Bucket("", client_id)
    return Bucket(user, "" if level in USER_ONLY_LEVELS else client_id)


def resolve(user: str, client_id: str, limit_of: Callable[[Entity], float | None]) -> Resolution:
    """Walk the levels.

    Args:
        user: principal name, not sanitised.
        client_id: client id; may be empty.
        limit_of: the quota that an entity carries for the key in question, None if it carries none.
    """
    for entity in candidates(user, client_id):
        limit = limit_of(entity)
        if limit is not None:
            return Resolution(bucket_of(entity.level, user, client_id), entity.level, entity, limit)
    return Resolution(bucket_of(None, user, client_id))
