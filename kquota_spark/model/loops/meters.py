"""What one bucket measures in a run of the closed loop, and the sums of what it charged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kquota_spark.model.loops.open_loop import SURELY_BELOW
from kquota_spark.model.measure.sampled_rate import SampleRing
from kquota_spark.model.measure.throttle_time import bounded_throttle_time_ms, throttle_time_ms
from kquota_spark.model.replay.request_replay import US_PER_PERCENT

SURELY_BELOW_PER_MS = 1_000 * SURELY_BELOW
"""Factor of an amount in a window of ms for the same comparison."""


@dataclass(slots=True)
class Meter:
    """The ring of one bucket, and the sums of what it charged.

    Args:
        ring: with what was charged before the period.
        cap_ms: longest throttle, ms; None for bandwidth, which has none. With a cap the amounts are thread time.
    """

    ring: SampleRing
    cap_ms: int | None = None
    requests: int = 0
    throttled_requests: int = 0
    delay_ms: int = 0
    longest_ms: int = 0
    served: int = 0
    added: int = 0
    """The part of it that was not recorded: from connections that continue."""
    mutes: dict[int, int] = field(default_factory=dict)
    """The longest throttle (ms) that began in a second, by the epoch second."""

    def measure(self, amount: int, time_ms: int, limit_per_s: float | None) -> int:
        """Record an amount, and return the throttle (ms) that the broker computes then; nothing is counted."""
        ring = self.ring
        window_ms = ring.record(amount, time_ms)
        if limit_per_s is None:
            return 0
        if self.cap_ms is None:
            if ring.total * SURELY_BELOW_PER_MS < limit_per_s * window_ms:
                return 0
            return max(throttle_time_ms(ring.total, window_ms, limit_per_s), 0)
        return max(
            bounded_throttle_time_ms(ring.total / US_PER_PERCENT, window_ms, limit_per_s, self.cap_ms), 0
        )

    def count(self, throttle_ms: int, time_ms: int, served: int, *, is_added: bool) -> None:
        """Count a request, and its throttle if it has one.

        Args:
            throttle_ms: its throttle, ms; 0 for none.
            time_ms: when it is sent, epoch ms.
            served: bytes, or microseconds of threads.
            is_added: whether it was not recorded.
        """
        self.requests += 1
        self.served += served
        if is_added:
            self.added += served
        if throttle_ms > 0:
            self._count_throttle(throttle_ms, time_ms)

    def throttle(self, total: int, window_ms: int, limit_per_s: float, time_ms: int) -> int:
        """The throttle (ms) by the bytes in the window; it is counted at once, and the request is not.

        Args:
            total: bytes in the window.
            window_ms: its length, ms.
            limit_per_s: the limit, bytes per second.
            time_ms: when the request is sent, epoch ms.
        """
        found = throttle_time_ms(total, window_ms, limit_per_s)
        if found <= 0:
            return 0
        self._count_throttle(found, time_ms)
        return found

    def _count_throttle(self, throttle_ms: int, time_ms: int) -> None:
        self.throttled_requests += 1
        self.delay_ms += throttle_ms
        self.longest_ms = max(self.longest_ms, throttle_ms)
        second = time_ms // 1_000
        self.mutes[second] = max(throttle_ms, self.mutes.get(second, 0))

    def forget_counts(self) -> None:
        """Count from now on; the ring stays."""
        self.requests = self.throttled_requests = self.delay_ms = self.longest_ms = self.served = (
            self.added
        ) = 0
        self.mutes.clear()

    def copy(self) -> Meter:
        """A meter that continues from here by itself."""
        current, *samples = self.ring.state
        ring = SampleRing(self.ring.config, (current, *map(list, samples)))  # type: ignore[arg-type]
        return replace(self, ring=ring, mutes=dict(self.mutes))
