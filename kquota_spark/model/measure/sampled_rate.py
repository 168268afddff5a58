"""The broker's rate measure: a ring of samples that open on events, not on the clock.

Source: Kafka's `SampledStat`, `WindowedSum`, `Rate`. Brokers from 3.8.0 keep N+1 samples and purge one when its
*last event* is N windows old. Up to 3.7 they kept N and purged by *start*. Two rings have these rules: `SampleRing`
for bytes, with a running integer sum that is exact and takes constant work per event, and `FloatRing` for amounts that
are fractions.

A window is at least 1 ms long (Kafka 3.3 and later). Before, only N = 1 differed: the window of a fresh sample was
0 ms, the rate infinite and the throttle time, infinity * 0, rounded to 0. The model does not have that case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from kquota_spark.model.measure.broker_version import major_minor


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
        return cls.FROM_3_8 if major_minor(version) >= (3, 8) else cls.UP_TO_3_7


@dataclass(frozen=True, slots=True)
class RateConfig:
    """Broker settings quota.window.num and quota.window.size.seconds (in ms), and the ring's variant."""

    num_samples: int = 11
    window_ms: int = 1_000
    variant: RingVariant = RingVariant.FROM_3_8

    name: str = field(init=False, repr=False, compare=False)
    """Short text for tables, e.g. `3.8+/11x1000ms`."""
    lengths: tuple[bool, int, int, int, int] = field(init=False, repr=False, compare=False)
    """Whether a sample is purged by its last event; the number of places; the ms of one sample, of N, of N - 1."""
    first_window_ms: int = field(init=False, repr=False, compare=False)
    """The window (ms) that a ring measures at its first event."""

    def __post_init__(self) -> None:
        # Computed once, because each bucket reads them once per second.
        num, size_ms = self.num_samples, self.window_ms
        is_by_last_event = self.variant is RingVariant.FROM_3_8
        lengths = is_by_last_event, num + is_by_last_event, size_ms, num * size_ms, (num - 1) * size_ms
        object.__setattr__(self, "name", f"{self.variant.value}/{num}x{size_ms}ms")
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "first_window_ms", SampleRing(self).record(0, time_ms=0))

    @classmethod
    def parse(cls, name: str) -> RateConfig:
        """The settings that have this `name`."""
        variant, _, windows = name.partition("/")
        num_samples, _, window_ms = windows.removesuffix("ms").partition("x")
        return cls(int(num_samples), int(window_ms), RingVariant(variant))

    @property
    def horizon_ms(self) -> int:
        """The time (ms) without an event after which a ring equals a new one."""
        return (self.num_samples + 1) * self.window_ms


RingState = tuple[int, list[int], list[int], list[int]]
"""The current place, then the values, starts and last events of the samples (epoch ms)."""


Amounts = TypeVar("Amounts", int, float)


class _Samples(Generic[Amounts]):
    """Samples of one sensor: when they open and when they are purged.

    A sample is one place of three lists: its value, its start and its last event; `current` is the place in use.
    These are lists of numbers, because their sums and minima cost a tenth of those over objects.
    """

    __slots__ = ("_basis_ms", "_expire_ms", "_last_ms", "_oldest_start_ms", "_opens_at_ms", "_padded_ms",
                 "_purge_at_ms", "_slots", "_starts_ms", "_values", "_window_ms", "config", "current")  # fmt: skip

    def __init__(
        self,
        config: RateConfig,
        current: int,
        values: list[Amounts],
        starts_ms: list[int],
        last_ms: list[int],
    ) -> None:
        self.config = config
        self._values: list[Amounts] = values
        self.current, self._starts_ms, self._last_ms = current, starts_ms, last_ms
        is_by_last_event, self._slots, self._window_ms, self._expire_ms, self._padded_ms = config.lengths
        self._basis_ms = last_ms if is_by_last_event else starts_ms
        self._index()

    @property
    def last_event_ms(self) -> int:
        """When the newest sample was last used (epoch ms); 0 before the first event."""
        return max(self._last_ms, default=0)

    def _index(self) -> None:
        """Cache the values that change only when a sample opens or is purged; the first event opens one."""
        if not self._starts_ms:
            self._opens_at_ms = self._oldest_start_ms = 0
            self._purge_at_ms = self._expire_ms
            return
        self._opens_at_ms = self._starts_ms[self.current] + self._window_ms
        self._oldest_start_ms = min(self._starts_ms)
        # The last event of a sample only moves forward, so this is a lower bound until the next call.
        self._purge_at_ms = min(self._basis_ms) + self._expire_ms

    def _open(self, time_ms: int) -> None:
        """Open the next sample; `_index` must follow."""
        size = len(self._starts_ms)
        self.current = current = (self.current + 1) % self._slots if size else 0
        if current < size:
            self._values[current] = 0
            self._starts_ms[current] = self._last_ms[current] = time_ms
        else:
            self._values.append(0)
            self._starts_ms.append(time_ms)
            self._last_ms.append(time_ms)

    def _purge(self, time_ms: int) -> None:
        """Empty the samples that are too old; `_index` must follow."""
        expired_ms = time_ms - self._expire_ms
        for place in [place for place, basis_ms in enumerate(self._basis_ms) if basis_ms <= expired_ms]:
            self._values[place] = 0
            self._starts_ms[place] = self._last_ms[place] = time_ms


class SampleRing(_Samples[int]):
    """Samples of one bandwidth sensor, continued from a `state`. Times must not decrease from one `record` to the next.

    Examples:
        By default a ring is that of a broker from 3.8 on, with 11 windows of 1 s. 15 MB at once are measured over 10 s,
        because missing windows count as empty ones:

        >>> from kquota_spark.model import RateConfig, SampleRing, throttle_time_ms
        >>> ring = SampleRing(RateConfig())
        >>> window_ms = ring.record(15_000_000, time_ms=0)
        >>> ring.total, window_ms
        (15000000, 10000)

        That is 15 s of a quota of 1 MB/s in a window of 10 s:

        >>> throttle_time_ms(ring.total, window_ms, 1_000_000.0)
        5000
    """

    __slots__ = ("total",)

    def __init__(self, config: RateConfig, state: RingState | None = None) -> None:
        current, values, starts_ms, last_ms = state or (0, [], [], [])
        super().__init__(config, current, values, starts_ms, last_ms)
        self.total = sum(values)

    @property
    def state(self) -> RingState:
        """The state from which another ring can continue: current place, values, starts, last events."""
        return self.current, self._values, self._starts_ms, self._last_ms

    @property
    def memory(self) -> object:
        """The samples, oldest place first: two rings that measure the same may number them differently."""
        lists = (self._values, self._starts_ms, self._last_ms)
        return [values[self.current :] + values[: self.current] for values in lists]

    @property
    def steady(self) -> tuple[int, int, int]:
        """What holds until the next `turn`: its time, the start of the oldest sample (epoch ms), and `total`."""
        return min(self._opens_at_ms, self._purge_at_ms), self._oldest_start_ms, self.total

    @property
    def last_ms(self) -> int | None:
        """Time of the last event (epoch ms); None before the first."""
        return self._last_ms[self.current] if self._last_ms else None

    @property
    def oldest(self) -> int:
        """Amount in the oldest sample before the current one, which is purged next; 0 if there is none.

        Purged samples begin where the first request after a pause does. They do not count, as a new ring has none.
        """
        return sum(
            value
            for place, value in enumerate(self._values)
            if self._starts_ms[place] == self._oldest_start_ms and place != self.current
        )

    def record(self, amount: int, time_ms: int) -> int:
        """Record an event, then measure as the broker does, with the event included.

        Returns:
            The length of the measured window in ms; the amount in it is `total`.
        """
        # The same steps as `record_all` without its lists, which cost more than the arithmetic of one event.
        if time_ms >= self._opens_at_ms or time_ms >= self._purge_at_ms:
            self._turn(time_ms)
        self._values[self.current] += amount
        self._last_ms[self.current] = time_ms
        self.total += amount
        elapsed_ms = time_ms - self._oldest_start_ms
        if elapsed_ms < self._padded_ms:
            elapsed_ms = self._padded_ms + elapsed_ms % self._window_ms
        return elapsed_ms or 1

    def record_all(self, amounts: Iterable[int], times_ms: Iterable[int]) -> tuple[list[int], list[int]]:
        """Record events in order, and measure after each.

        This is the hot loop of the audit. State that changes with each event is in local variables, and is written
        back only where a sample opens or ends, which is rare.

        Returns:
            For each event, the amount in the window after it, and the window's length in ms.
        """
        totals, windows_ms = [], []
        padded_ms, size_ms = self._padded_ms, self._window_ms
        turns_at_ms, oldest_ms, total = self.steady
        added, last_ms = 0, None
        for amount, time_ms in zip(amounts, times_ms, strict=True):
            if time_ms >= turns_at_ms:
                if last_ms is not None:
                    self.add(added, last_ms)
                    added = 0
                self._turn(time_ms)
                turns_at_ms, oldest_ms, total = self.steady
            added += amount
            total += amount
            last_ms = time_ms
            elapsed_ms = time_ms - oldest_ms
            if elapsed_ms < padded_ms:
                # Missing windows count as empty ones.
                elapsed_ms = padded_ms + elapsed_ms % size_ms
            totals.append(total)
            windows_ms.append(elapsed_ms or 1)
        if last_ms is not None:
            self.add(added, last_ms)
        return totals, windows_ms

    def add(self, amount: int, last_ms: int) -> None:
        """Record what came since the last `turn`, with the last event at `last_ms` (epoch ms); nothing is measured."""
        self._values[self.current] += amount
        self._last_ms[self.current] = last_ms
        self.total += amount

    def turn(self, time_ms: int) -> tuple[int, int, int]:
        """Prepare the ring for an event at a time that `steady` does not reach; the new `steady`."""
        self._turn(time_ms)
        return self.steady

    def _turn(self, time_ms: int) -> None:
        """Prepare the ring for an event: open the next sample if it is time, and purge those that are too old."""
        if time_ms >= self._opens_at_ms:
            self._open_next(time_ms)
        # This is the last event of the current sample, so that sample is not too old, whatever the others are.
        self._last_ms[self.current] = time_ms
        if time_ms >= self._purge_at_ms:
            self._purge(time_ms)
            self._index()
            self.total = sum(self._values)

    def _open_next(self, time_ms: int) -> None:
        """Do `_open` and `_index` in one, only for the values that change: half the cost."""
        size = len(self._starts_ms)
        following = (self.current + 1) % self._slots
        if following < size:
            self.total -= self._values[following]
            is_oldest = self._starts_ms[following] == self._oldest_start_ms
            self._open(time_ms)
            if is_oldest:
                self._oldest_start_ms = min(self._starts_ms)
        else:
            self._open(time_ms)
            if not size:
                self._oldest_start_ms, self._purge_at_ms = time_ms, time_ms + self._expire_ms
        self._opens_at_ms = time_ms + self._window_ms


class FloatRing(_Samples[float]):
    """Samples of a sensor that measures doubles, added up in the order in which the broker adds them.

    It is slower than `SampleRing`, and takes the broker's own steps one by one. `add` is `Sensor.record` without a
    quota check: it measures nothing and therefore purges nothing. A negative amount un-records.
    """

    __slots__ = ("total",)

    def __init__(self, config: RateConfig) -> None:
        super().__init__(config, 0, [], [], [])
        self.total = 0.0
        """Amount in the window that `record` measured last."""

    def record(self, amount: float, time_ms: int) -> int:
        """Record an event, then measure as the broker does, with the event included; see `SampleRing.record`."""
        self.add(amount, time_ms)
        self.total, window_ms = self.measure(time_ms)
        return window_ms

    def add(self, amount: float, time_ms: int) -> None:
        """Record an event without measuring."""
        if not self._starts_ms or time_ms - self._starts_ms[self.current] >= self._window_ms:
            self._open(time_ms)
            self._index()
        self._values[self.current] += amount
        self._last_ms[self.current] = time_ms

    def measure(self, time_ms: int) -> tuple[float, int]:
        """The amount in the window, and the window's length in ms as `Rate` pads it."""
        total, elapsed_ms = self.measure_unpadded(time_ms)
        if elapsed_ms < self._padded_ms:
            return total, self._padded_ms + elapsed_ms % self._window_ms
        return total, elapsed_ms if elapsed_ms > 0 else 1

    def measure_unpadded(self, time_ms: int) -> tuple[float, int]:
        """The amount in the window, and ms since its oldest sample opened; opens a sample if there is none."""
        if not self._starts_ms:
            self._open(time_ms)
            self._index()
        elif time_ms >= self._purge_at_ms:
            self._purge(time_ms)
            self._index()
        total = 0.0
        for value in self._values:
            total += value  # not sum(): from Python 3.12 it compensates for rounding, Java does not
        return total, time_ms - self._oldest_start_ms
