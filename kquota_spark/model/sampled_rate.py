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
_SURELY_INT32 = 2.0**31 - 2


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


RingState = tuple[int, list[int], list[int], list[int]]


class SampleRing:
    """Samples of one quota sensor. Times must not go back from one `record` to the next.

    A sample is one place of the three lists: its value, its start and its last event; `current` is the place
    in use. Lists of numbers, because their sums and minima cost a tenth of those over objects.

    Args:
        config: the broker's settings.
        state: `state` of a ring with these settings, to go on from.
    """

    __slots__ = ("_basis_ms", "_expire_ms", "_last_ms", "_oldest_start_ms", "_padded_ms", "_purge_at_ms", "_slots",
                 "_starts_ms", "_values", "_window_ms", "config", "current", "total")  # fmt: skip

    def __init__(self, config: RateConfig, state: RingState | None = None) -> None:
        self.config = config
        self.current, self._values, self._starts_ms, self._last_ms = state or (0, [], [], [])
        self.total = sum(self._values)
        is_by_last_event = config.variant is RingVariant.FROM_3_8
        self._basis_ms = self._last_ms if is_by_last_event else self._starts_ms
        self._slots = config.num_samples + (1 if is_by_last_event else 0)
        self._window_ms = config.window_ms
        self._expire_ms = config.num_samples * config.window_ms
        self._padded_ms = (config.num_samples - 1) * config.window_ms
        self._index()

    @property
    def state(self) -> RingState:
        """What another ring needs to go on from here: current place, values, starts, last events."""
        return self.current, self._values, self._starts_ms, self._last_ms

    def _index(self) -> None:
        """Cache what changes only when a sample opens or is purged."""
        self._oldest_start_ms = min(self._starts_ms, default=0)
        # A sample's last event only moves on, so this is a lower bound until the next call.
        self._purge_at_ms = min(self._basis_ms, default=0) + self._expire_ms

    def record(self, amount: int, time_ms: int) -> int:
        """Record an event, then measure as the broker does, the event included.

        Returns:
            The length of the measured window in ms; the amount in it is `total`.
        """
        starts_ms, current = self._starts_ms, self.current
        if not starts_ms or time_ms - starts_ms[current] >= self._window_ms:
            current = self._open(time_ms)
        self._values[current] += amount
        self._last_ms[current] = time_ms
        self.total += amount
        if time_ms >= self._purge_at_ms:
            self._purge(time_ms)
        elapsed_ms = time_ms - self._oldest_start_ms
        if elapsed_ms < self._padded_ms:
            # Windows that are missing count as empty ones.
            return self._padded_ms + elapsed_ms % self._window_ms
        return elapsed_ms if elapsed_ms > 0 else 1

    def _open(self, time_ms: int) -> int:
        """Open the next sample; its place."""
        size = len(self._starts_ms)
        current = (self.current + 1) % self._slots if size else 0
        if current >= size:
            self._values.append(0)
            self._starts_ms.append(time_ms)
            self._last_ms.append(time_ms)
        else:
            self._reset(current, time_ms)
        self.current = current
        self._index()
        return current

    def _reset(self, place: int, time_ms: int) -> None:
        self.total -= self._values[place]
        self._values[place] = 0
        self._starts_ms[place] = self._last_ms[place] = time_ms

    def _purge(self, time_ms: int) -> None:
        for place, basis_ms in enumerate(self._basis_ms):
            if time_ms - basis_ms >= self._expire_ms:
                self._reset(place, time_ms)
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
    if 0.0 <= raw < _SURELY_INT32:  # what nearly all are; the rest goes Java's way in full
        whole = int(raw)
        return whole + (raw - whole >= 0.5)
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
