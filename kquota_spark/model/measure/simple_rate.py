"""Replication quotas: a rate without padding, and partitions that are left out of fetches instead of delayed."""

from __future__ import annotations

from kquota_spark.model.measure.sampled_rate import FloatRing, RateConfig
from kquota_spark.model.measure.throttle_time import rate_per_s


class ReplicationRate:
    """Rate of leader or follower replication (Kafka's `SimpleRate`, `ReplicationQuotaManager`).

    The window is the time since the oldest sample, but at least the length of one sample. Missing windows do not count
    as empty ones, so a burst is above its limit at once.
    """

    __slots__ = ("_ring",)

    def __init__(self, config: RateConfig) -> None:
        self._ring = FloatRing(config)

    def record(self, amount_bytes: int, time_ms: int) -> None:
        """Charge replicated bytes; this never throttles."""
        self._ring.add(amount_bytes, time_ms)

    def rate_per_s(self, time_ms: int) -> float:
        """Bytes per second at `time_ms` (epoch ms)."""
        total, elapsed_ms = self._ring.measure_unpadded(time_ms)
        return rate_per_s(total, max(elapsed_ms, self._ring.config.window_ms))

    def is_exceeded(self, time_ms: int, limit_per_s: float) -> bool:
        """Whether throttled partitions are left out of fetches for now."""
        return not self.rate_per_s(time_ms) <= limit_per_s
