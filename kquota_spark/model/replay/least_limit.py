"""The least limit under which the recorded requests of a bucket have no throttle.

A limit does not change what the broker's ring measures. So the requests are measured once, and each candidate limit is
compared with these measures. The arithmetic is that of `replay`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.measure.throttle_time import rate_per_s, throttle_time_ms


class Measure(NamedTuple):
    """What one broker measures at one request."""

    broker_id: int
    record_time_ms: int
    total: int
    """Bytes in the window, with those of the request."""
    window_ms: int

    @property
    def rate_per_s(self) -> float:
        """The measured rate, bytes per second."""
        return rate_per_s(self.total, self.window_ms)


def measured(broker_id: int, points: Iterable[Point], ring: RateConfig, from_ms: int) -> list[Measure]:
    """The measures of the requests of one bucket on one broker.

    Args:
        broker_id: the broker.
        points: the requests, in any order.
        ring: the broker's sample ring.
        from_ms: epoch ms; earlier requests only fill the ring.
    """
    ordered = sorted(points)
    times_ms = [point.record_time_ms for point in ordered]
    totals, windows_ms = SampleRing(ring).record_all([point.amount for point in ordered], times_ms)
    return [
        Measure(broker_id, *each)
        for each in zip(times_ms, totals, windows_ms, strict=True)
        if each[0] >= from_ms
    ]


def throttled_under(measures: Iterable[Measure], limit_per_s: float) -> list[Measure]:
    """The measures at which the broker would throttle under a limit, bytes per second."""
    return [each for each in measures if throttle_time_ms(each.total, each.window_ms, limit_per_s) > 0]


def least_limit(measures: Sequence[Measure]) -> int | None:
    """The least limit, in whole bytes per second, under which no request is throttled; None without requests.

    The highest rate `r` has a throttle of 1 ms under `r * window / (window + 1)`, and none under `r`. The limit is
    bisected between the two. A limit is at least 1.
    """
    if not measures:
        return None
    top = max(measures, key=lambda each: each.rate_per_s)
    low = math.floor(top.rate_per_s * top.window_ms / (top.window_ms + 1))
    high = max(math.ceil(top.rate_per_s), 1)
    # Requests with a lower rate have no throttle under any candidate.
    kept = [each for each in measures if each.rate_per_s > low]
    while high - low > 1:
        middle = (low + high) // 2
        over = throttled_under(kept, middle)
        if over:
            low, kept = middle, over
        else:
            high = middle
    return high
