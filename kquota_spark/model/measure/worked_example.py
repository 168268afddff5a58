"""A limit applied to a few requests: what a broker would measure, and how long it would throttle.

Amounts are integers: bytes, or milliseconds of handler time (one percent is 10 ms per second). The requests go through
the same sample ring as in the broker.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.measure.throttle_time import bounded_throttle_time_ms, rate_per_s, throttle_time_ms
from kquota_spark.model.quotas.quota_types import QuotaType

MS_PER_PERCENT = 10
"""Milliseconds of handler time per second in one percent of a thread."""
_BURST_PART = 1.5
_MOST_STEPS = 4


class Moment(NamedTuple):
    """The broker's measurement at one request: the sum of its window, the window's length, and the throttle."""

    time_ms: int
    total: int
    window_ms: int
    throttle_ms: int

    @property
    def rate_per_s(self) -> float:
        """Amount per second over the window."""
        return rate_per_s(self.total, self.window_ms)


class Example(NamedTuple):
    """A limit applied to a few requests."""

    limit_per_s: float
    """Amount per second."""
    free: int
    """Largest amount without a throttle in one request after idleness."""
    burst: Moment
    """One request of half as much again."""
    after: Moment
    """One more byte half a window length later: the burst is still in the window."""
    steady: Moment | None
    """The first throttled request of a client that sends exactly the limit, once per window; None if it never is."""


def worked_example(quota_type: QuotaType, limit: float, config: RateConfig) -> Example | None:
    """The example for a limit; None if the limit throttles nobody, or is not a rate over samples.

    Controller mutations have no example: a token bucket limits them.

    Args:
        quota_type: the type of the limit.
        limit: in the unit of the type.
        config: windows of the broker.
    """
    per_s = limit * MS_PER_PERCENT if quota_type is QuotaType.REQUEST else limit
    if quota_type is QuotaType.CONTROLLER_MUTATION or not 0 < per_s < 2**62:
        return None
    cap_ms = config.window_ms if quota_type is QuotaType.REQUEST else None
    cold_ms = max((config.num_samples - 1) * config.window_ms, 1)
    ring = SampleRing(config)
    burst = _record(ring, math.ceil(per_s * cold_ms * _BURST_PART / 1_000), 0, per_s, cap_ms)
    after = _record(ring, 1, cold_ms // 2, per_s, cap_ms)
    free = math.floor(per_s * cold_ms / 1_000)
    return Example(per_s, free, burst, after, _first_throttle(per_s, config, cap_ms))


def _record(ring: SampleRing, amount: int, time_ms: int, per_s: float, cap_ms: int | None) -> Moment:
    window_ms = ring.record(amount, time_ms)
    if cap_ms is None:
        throttle_ms = throttle_time_ms(ring.total, window_ms, per_s)
    else:
        throttle_ms = bounded_throttle_time_ms(ring.total, window_ms, per_s, cap_ms)
    return Moment(time_ms, ring.total, window_ms, max(throttle_ms, 0))


def _first_throttle(per_s: float, config: RateConfig, cap_ms: int | None) -> Moment | None:
    ring = SampleRing(config)
    amount = math.ceil(per_s * config.window_ms / 1_000)
    for step in range(config.num_samples + _MOST_STEPS):
        moment = _record(ring, amount, step * config.window_ms, per_s, cap_ms)
        if moment.throttle_ms > 0:
            return moment
    return None
