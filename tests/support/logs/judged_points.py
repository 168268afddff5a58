"""Requests made by hand, and the verdicts on them. At 1,000 B/s a byte of the limit is a millisecond."""

from __future__ import annotations

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.replay import BucketReplay, Verdict

T0 = 1_795_239_600_000
LIMIT = Governing(1_000.0)


def point(
    after_ms: int, amount: int, observed_ms: int = 0, *, correlation: int = 0, kind: int = PointKind.PRODUCE
) -> Point:
    """A request; each correlation id is on a connection of its own."""
    return Point(T0 + after_ms, T0 + after_ms + 1, correlation, correlation, amount, observed_ms, kind)


def judged(*points: Point, governing: Governing = LIMIT, config: RateConfig | None = None) -> list[Verdict]:
    """Verdicts of a new bucket, second by second."""
    replay = BucketReplay(config or RateConfig())
    verdicts: list[Verdict] = []
    for second_ms in sorted({p.record_time_ms // 1_000 * 1_000 for p in points}):
        of_second = sorted(p for p in points if p.record_time_ms // 1_000 * 1_000 == second_ms)
        verdicts += replay.judge(of_second, [governing] * len(of_second))
    return verdicts


def only(*points: Point, governing: Governing = LIMIT) -> Verdict:
    """The last verdict."""
    return judged(*points, governing=governing)[-1]
