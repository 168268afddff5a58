"""The broker's rate measure: a ring of samples that open on events, not on the clock.

Source: Kafka's `SampledStat`, `WindowedSum`, `Rate` and `QuotaUtils.throttleTime`. Brokers from 3.8.0 keep
N+1 samples and purge one when its *last event* is N windows old; up to 3.7 they kept N and purged by *start*.
Quota amounts are integers, so the ring's sum is kept as a running integer: exact, and constant work per event.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

_INT_BITS = 32
_LONG_MAX = 2**63 - 1


class RingVariant(Enum):
    """Which sample ring a broker version has; the value is its name in tables."""

    UP_TO_3_7 = "<=3.7"
    FROM_3_8 = "3.8+"

    @classmethod
    def of_version(cls, version: str) -> RingVariant:
        """The ring of a broker version such as `3.9.1`.

        Raises:
            ValueError: the text does not begin with major.minor.
        """
        major, minor = version.split(".")[:2]
        return cls.FROM_3_8 if (int(major), int(minor)) >= (3, 8) else cls.UP_TO_3_7


@dataclass(frozen=True, slots=True)
class RateConfig:
    """Broker settings quota.window.num and quota.window.size.seconds (in ms), and the ring's variant."""

    num_samples: int = 11
    window_ms: int = 1_000
    variant: RingVariant = RingVariant.FROM_3_8

    @property
    def name(self) -> str:
        """Short text for tables, e.g. `3.8+/11x1000ms`."""
        return f"{self.variant.value}/{self.num_samples}x{self.window_ms}ms"

    @property
    def horizon_ms(self) -> int:
        """After this long without an event a ring equals a new one."""
        return (self.num_samples + 1) * self.window_ms


class SampleRing:
    """Samples of one quota sensor. Times must not go back from one `record` to the next.

    `samples` holds [value, start_ms, last_event_ms] each, in slot order; `current` is the slot in use.
    """

    __slots__ = ("_by_last_event", "_expire_ms", "_oldest_start_ms", "_purge_at_ms", "_slots", "config",
                 "current", "samples", "total")  # fmt: skip

    def __init__(self, config: RateConfig, samples: list[list[int]] | None = None, current: int = 0) -> None:
        self.config = config
        self.samples = samples if samples is not None else []
        self.current = current
        self.total = sum(sample[0] for sample in self.samples)
        self._by_last_event = config.variant is RingVariant.FROM_3_8
        self._slots = config.num_samples + (1 if self._by_last_event else 0)
        self._expire_ms = config.num_samples * config.window_ms
        self._index()

    def _index(self) -> None:
        """Cache what changes only when a sample opens or is purged."""
        basis = 2 if self._by_last_event else 1
        self._oldest_start_ms = min((sample[1] for sample in self.samples), default=0)
        # A sample's last event only moves on, so this is a lower bound until the next call.
        self._purge_at_ms = min((s[basis] for s in self.samples), default=0) + self._expire_ms

    def record(self, amount: int, time_ms: int) -> int:
        """Record an event, then measure as the broker does, the event included.

        Returns:
            The length of the measured window in ms; the amount in it is `total`.
        """
        samples = self.samples
        window_ms = self.config.window_ms
        if not samples:
            samples.append([0, time_ms, time_ms])
            self._index()
        sample = samples[self.current]
        if time_ms - sample[1] >= window_ms:
            self.current = (self.current + 1) % self._slots
            if self.current >= len(samples):
                samples.append([0, time_ms, time_ms])
            else:
                self.total -= samples[self.current][0]
                samples[self.current] = [0, time_ms, time_ms]
            sample = samples[self.current]
            self._index()
        sample[0] += amount
        sample[2] = time_ms
        self.total += amount
        if time_ms >= self._purge_at_ms:
            self._purge(time_ms)
        elapsed_ms = time_ms - self._oldest_start_ms
        missing = self.config.num_samples - 1 - elapsed_ms // window_ms
        if missing > 0:
            elapsed_ms += missing * window_ms
        return elapsed_ms if elapsed_ms > 0 else 1

    def _purge(self, time_ms: int) -> None:
        basis = 2 if self._by_last_event else 1
        for sample in self.samples:
            if time_ms - sample[basis] >= self._expire_ms:
                self.total -= sample[0]
                sample[:] = [0, time_ms, time_ms]
        self._index()


def rate_per_s(total: int, window_ms: int) -> float:
    """Amount per second over the measured window, in the broker's own floating-point steps."""
    return total / (window_ms / 1000.0)


def throttle_time_ms(total: int, window_ms: int, limit_per_s: float | None) -> int:
    """Throttle time of a bandwidth quota: (rate - limit) / limit * window, rounded and narrowed as in Java.

    Returns:
        0 when the rate is not above the limit or there is none; may be negative after the broker's
        narrowing of a long to 32 bits (a limit of 0 gives -1), and the broker then does not throttle.
    """
    if limit_per_s is None:
        return 0
    rate = rate_per_s(total, window_ms)
    if not rate > limit_per_s:
        return 0
    if limit_per_s == 0:
        return _to_int32(_LONG_MAX)
    raw = (rate - limit_per_s) / limit_per_s * window_ms
    return _to_int32(_java_round(raw))


def _java_round(value: float) -> int:
    """`Math.round(double)`: halves go up, saturating at the ends of a long, NaN to 0."""
    if math.isnan(value):
        return 0
    if abs(value) >= _LONG_MAX:
        return _LONG_MAX if value > 0 else -_LONG_MAX - 1
    floor = math.floor(value)
    # Not floor(value + 0.5): that sum is rounded itself, and makes 1 of 0.49999999999999994.
    return floor + (value - floor >= 0.5)


def _to_int32(value: int) -> int:
    """Java's cast from long to int: the low 32 bits, signed."""
    low: int = value & (2**_INT_BITS - 1)
    return low - 2**_INT_BITS if low >= 2 ** (_INT_BITS - 1) else low
