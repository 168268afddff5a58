"""The closed loop of a bucket that other quotas leave alone: the oracle of its tests."""

from __future__ import annotations

from collections.abc import Sequence

from kquota_spark.model.loops.open_loop import Judged
from kquota_spark.model.loops.tried import Bound, Closed
from kquota_spark.model.measure.muted_seconds import muted_until


def unchanged(of_bucket: Sequence[Judged], from_ms: int, until_ms: int) -> Closed:
    """A bucket that the tried quotas do not change, from `from_ms` until before `until_ms` (epoch ms)."""
    inside = [each for each in of_bucket if each.point.record_time_ms >= from_ms]
    throttled = [each for each in inside if each.throttle_ms > 0]
    delay_ms, served = sum(each.throttle_ms for each in throttled), sum(each.point.amount for each in inside)
    throttles = ((each.point.record_time_ms, each.throttle_ms) for each in throttled)
    return Closed(
        len(inside), len(throttled), delay_ms, muted_until(throttles, until_ms), served, 0, 0,
        Bound(delay_ms, max(delay_ms, sum(each.at_most_ms for each in inside))), Bound(served, served),
        is_censored=False,
    )  # fmt: skip
