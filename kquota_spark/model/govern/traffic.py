"""Stored usage by bucket, each part with the quota that governed it: the input of a replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kquota_spark.model.govern.govern import Governed, Governor
from kquota_spark.model.measure.points import Point
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import GovernedSecond

BrokerBucket = tuple[int, QuotaType, Bucket]
"""One quota sensor: broker, type, bucket."""
Gaps = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """A row of `usage`: one second of one client."""

    broker_id: int
    quota_type: QuotaType
    principal: Principal
    client_id: str
    second_ms: int
    points: Sequence[Point]


def governed_seconds_of(
    traffic: Iterable[Traffic],
    governor: Governor,
    *,
    clock_ahead_ms: int = 0,
    gaps: Mapping[int, Gaps] | None = None,
) -> dict[BrokerBucket, list[GovernedSecond]]:
    """Traffic by bucket, each part with the quota of its time.

    Args:
        traffic: rows of usage, in any order.
        governor: the quotas over time.
        clock_ahead_ms: how far the broker's clock is ahead of the one that stamped the quotas.
        gaps: by broker, periods (epoch ms) for which its log lacks something that a ring remembers, see `Governing`.
    """
    gaps = gaps or {}
    kept: dict[tuple[int, QuotaType, Principal, str], tuple[Governed, Governing]] = {}
    found: dict[BrokerBucket, list[GovernedSecond]] = {}

    for row in traffic:
        identity = (row.broker_id, row.quota_type, row.principal, row.client_id)
        times_ms = [point[0] for point in row.points]
        last = kept.get(identity)
        parts: dict[int, tuple[tuple[Governed, Governing], list[Point]]] = {}
        # Nearly always one answer holds for the whole second.
        if last is not None and all(
            last[0].holds_at(time_ms - clock_ahead_ms) for time_ms in (min(times_ms), max(times_ms))
        ):
            parts[0] = last, list(row.points)
        else:
            for point, time_ms in zip(row.points, times_ms, strict=True):
                if last is None or not last[0].holds_at(time_ms - clock_ahead_ms):
                    governed = governor.govern(*identity, time_ms - clock_ahead_ms)
                    of_broker = gaps.get(row.broker_id, ())
                    last = kept[identity] = governed, _governing(governed, clock_ahead_ms, of_broker)
                parts.setdefault(last[0].governing.valid_from_ms, (last, []))[1].append(point)
        for (governed, of_part), points in parts.values():
            second = GovernedSecond(
                row.second_ms, row.principal.name, row.client_id, of_part, governed.level, governed.rule,
                governed.rule_version, points,
            )  # fmt: skip
            found.setdefault((row.broker_id, row.quota_type, governed.bucket), []).append(second)
    return found


def _governing(governed: Governed, clock_ahead_ms: int, gaps: Gaps) -> Governing:
    """What governs a request, in the time of the broker's clock."""
    relied_on = governed.relied_on
    end_ms = relied_on.valid_to_ms
    return relied_on._replace(
        valid_from_ms=relied_on.valid_from_ms + clock_ahead_ms,
        valid_to_ms=None if end_ms is None else end_ms + clock_ahead_ms,
        gaps=gaps,
    )
