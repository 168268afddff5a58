"""The replay of one request_percentage bucket: an estimate between two bounds, marked as such.

The broker charges a request for its time on a handler thread, which the log contains (`localTimeMs`), and checks the
quota. The time on the network thread is charged afterwards, without a check, and is not logged. Sending the response
(`sendTimeMs`) takes longer than that. So the replay has two rings, without and with `sendTimeMs`.

A sample that opened one request earlier or later at the broker also ends earlier or later, with everything in it. So
the lower bound leaves out the oldest sample. A request is certainly throttled if the lower bound is above the limit,
certainly not throttled if the upper bound is not, and uncertain otherwise.

For measurements on three logs of two clusters, see `tests/unit/model/replay/test_request_replay.py`. The upper bound
misses the network thread's work before the first request of a connection (the handshake), which is charged but never
logged.

Source: Kafka's `ClientRequestQuotaManager`, `RequestHandlerHelper`, `RequestChannel` (KIP-124).
"""

from __future__ import annotations

from collections.abc import Sequence

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, RingState, SampleRing
from kquota_spark.model.measure.throttle_time import bounded_throttle_time_ms, rate_per_s
from kquota_spark.model.replay.causes import Cause, Governing, edge_of
from kquota_spark.model.replay.replay import Outcome, Verdict

US_PER_PERCENT = 10_000
"""Microseconds per percent of one thread-second. Amounts are in microseconds, so that the sum of a ring is exact."""

State = tuple[int, RingState, RingState]


class RequestReplay:
    """State of one bucket of one broker, continued from a `state`; the settings are those of the bandwidth quotas."""

    __slots__ = ("_config", "_lower", "_upper", "folded_through_ms")

    def __init__(self, config: RateConfig, state: State | None = None) -> None:
        self.folded_through_ms, lower, upper = state or (0, None, None)
        self._config = config
        self._lower, self._upper = SampleRing(config, lower), SampleRing(config, upper)

    @property
    def state(self) -> State:
        """The state from which another replay can continue."""
        return self.folded_through_ms, self._lower.state, self._upper.state

    @property
    def memory(self) -> object:
        """Everything that the replay remembers, in a form that can be compared."""
        return self._lower.memory, self._upper.memory

    @property
    def forget_at_ms(self) -> int:
        """The time (epoch ms) from which a new replay gives the same verdicts."""
        return self.folded_through_ms + self._config.horizon_ms

    def judge(self, points: Sequence[Point], governing: Sequence[Governing]) -> list[Verdict]:
        """Record and judge the requests of whole seconds, in order; see `BucketReplay.judge`."""
        if points:
            self.folded_through_ms = points[-1].record_time_ms // 1_000 * 1_000 + 1_000
        return list(map(self._judged, points, governing))

    def _judged(self, point: Point, governing: Governing) -> Verdict:
        time_ms, limit = point.record_time_ms, governing.limit_per_s
        window_ms = self._lower.record(point.amount, time_ms)
        self._upper.record(point.amount + point.network_time_us, time_ms)
        throttle_ms = self._throttle_ms(self._lower.total, window_ms, limit)
        is_throttled = self._throttle_ms(self._lower.total - self._lower.oldest, window_ms, limit) > 0
        could_be = self._throttle_ms(self._upper.total, window_ms, limit) > 0
        cause = edge_of(governing, time_ms)
        if cause is None and could_be and not is_throttled:
            cause = Cause.THREAD_TIME
        outcome = _outcome(point, governing, is_throttled=is_throttled, cause=cause)
        return Verdict(
            point, governing, rate_per_s(self._lower.total / US_PER_PERCENT, window_ms), window_ms, throttle_ms,
            outcome, None if outcome is Outcome.EXCLUDED else cause,
            rate_per_s(self._upper.total / US_PER_PERCENT, window_ms),
        )  # fmt: skip

    def _throttle_ms(self, total_us: int, window_ms: int, limit_percent: float | None) -> int:
        total = total_us / US_PER_PERCENT
        return max(bounded_throttle_time_ms(total, window_ms, limit_percent, self._config.window_ms), 0)


def _outcome(point: Point, governing: Governing, *, is_throttled: bool, cause: Cause | None) -> Outcome:
    if governing.has_request_quota and point.kind == PointKind.SHARED_REQUEST:
        return Outcome.EXCLUDED
    if cause is not None:
        return Outcome.UNCERTAIN
    if is_throttled is (point.observed_throttle_ms > 0):
        return Outcome.AGREES
    return Outcome.FALSE_POSITIVE if is_throttled else Outcome.FALSE_NEGATIVE
