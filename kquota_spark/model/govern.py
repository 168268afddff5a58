"""What governs a request at a moment: precedence over eight levels, joined with the time each rule held.

The job does the same with a broadcast join (`pipeline.govern`); a test holds the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from kquota_spark.model.entities import Entity
from kquota_spark.model.quota_types import QuotaKey, QuotaType
from kquota_spark.model.replay import Governing
from kquota_spark.model.resolve import Bucket, candidates, resolve
from kquota_spark.model.rules import RuleBook, RuleStretch


@dataclass(frozen=True, slots=True)
class Governed:
    """A bucket and what limits it, for as long as `governing` is valid."""

    bucket: Bucket
    governing: Governing
    level: int | None
    rule: str | None
    rule_version: int | None

    def holds_at(self, time_ms: int) -> bool:
        """Whether nothing that could matter changed between this answer and `time_ms`."""
        until_ms = self.governing.valid_to_ms
        return self.governing.valid_from_ms <= time_ms and (until_ms is None or time_ms < until_ms)


def govern(book: RuleBook, quota_type: QuotaType, user: str, client_id: str, time_ms: int) -> Governed:
    """Resolve one request.

    The validity is that of everything looked at, not of the winner alone: an edit at a more specific level
    ends it too.
    """
    stretches: dict[Entity, RuleStretch] = {}
    for entity in candidates(user, client_id):
        stretch = book.at(entity, time_ms)
        if stretch is not None:
            stretches[entity] = stretch

    def value_of(entity: Entity, key: QuotaKey) -> float | None:
        stretch = stretches.get(entity)
        return stretch.values.get(key) if stretch else None

    found = resolve(user, client_id, lambda entity: value_of(entity, quota_type.key))
    has_request_quota = any(value_of(e, QuotaKey.REQUEST_PERCENTAGE) is not None for e in stretches)
    ends = [s.valid_to_ms for s in stretches.values() if s.valid_to_ms is not None]
    return Governed(
        bucket=found.bucket,
        governing=Governing(
            limit_per_s=found.limit,
            valid_from_ms=max((s.valid_from_ms for s in stretches.values()), default=0),
            valid_to_ms=min(ends, default=None),
            has_request_quota=has_request_quota,
        ),
        level=found.level,
        rule=None if found.entity is None else str(found.entity),
        rule_version=None if found.entity is None else stretches[found.entity].version,
    )
