"""Oversubscription: the sum of the limits on one broker beside its capacity, where a policy file states it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kquota_spark.model.compare.observed_clients import Seen
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.resolve import Bucket, resolve
from kquota_spark.reports.review.review import Oversubscription


def oversubscription(
    before: QuotaSet, after: QuotaSet, seen: Iterable[Seen], capacity: Mapping[str, float]
) -> list[Oversubscription]:
    """The sums of the limits of each key, where a sum changes.

    A sum has each bucket of a client that was seen, and each entity with names only. Defaults of other clients are not
    in it, because their number is not known.

    Args:
        before: quotas before the change.
        after: quotas after it.
        seen: the clients of the period.
        capacity: of one broker, by the name of the key, in the unit of the key.
    """
    clients = {(one.user, one.client_id, one.quota_type.key) for one in seen}
    found = []
    for name, most in capacity.items():
        key = QuotaKey(name)
        of_key = [(user, client_id) for user, client_id, used in clients if used is key]
        (was, free), (now, free_now) = (_sum(quotas, key, of_key) for quotas in (before, after))
        if (was, free) != (now, free_now):
            found.append(Oversubscription(key, was, now, most, free, free_now))
    return found


def _sum(quotas: QuotaSet, key: QuotaKey, clients: Collection[tuple[str, str]]) -> tuple[float, int]:
    """The sum of the limits of all buckets, and the number of clients without a limit."""
    limits: dict[Bucket, float] = {}
    unlimited = 0
    for user, client_id in clients:
        found = resolve(user, client_id, key, quotas.get)
        if found.limit is None:
            unlimited += 1
        else:
            limits[found.bucket] = found.limit
    for entity, values in quotas.items():
        if isinstance(entity, Entity) and key in values and _is_named(entity):
            bucket = Bucket(_text(entity.user), _text(entity.client_id))
            limits.setdefault(bucket, values[key])
    return sum(limits.values()), unlimited


def _is_named(entity: Entity) -> bool:
    return all(name is None or isinstance(name, str) for name in (entity.user, entity.client_id))


def _text(name: object) -> str:
    return name if isinstance(name, str) else ""
