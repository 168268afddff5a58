"""Perturbed rings, which differ from the broker's by as much as the log leaves open.

The log shows when a request was recorded to a few milliseconds. So a request about one window after the start of a
sample may have opened the next sample or not. A request about N windows after the last event of a sample may have ended
it or not. Reading the rate ends samples as well. A scrape of JMX between two requests purges samples that are too old
by then, and the purged sample begins at the scrape (`SampledStat.purgeObsoleteSamples`). Later, this makes the window
longer. No log contains the time of a scrape.

Each of these rings decides some of these cases differently. A verdict on which all of them agree with the broker's own
ring does not depend on such a time. After a gap of the log they differ by up to a whole window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from random import Random
from typing import NamedTuple

from kquota_spark.model.measure.sampled_rate import RateConfig, RingState, SampleRing

PerturbedState = tuple[Sequence[RingState | None], Sequence[int], Sequence[int]]
"""The rings, and amounts and times of requests that are not recorded yet."""

_MOST_WAITING = 64
_CYCLE = 61  # a prime: samples that are one second apart take one pair after another


class Scrape(Enum):
    """When another reader measured the rate, between the end of a sample and the next request."""

    NEVER = 0
    AT_ONCE = 1
    SOME_TIME = 2


class Perturbation(NamedTuple):
    """How far off the times are at which samples open and end: pairs of ms.

    The pair of a sample is a function of its start. So the same input gives the same answer in every run, in whatever
    batches it comes.
    """

    off_ms: tuple[tuple[int, int], ...]
    scrape: Scrape


_chance = Random(3)  # noqa: S311 - the same noise in every run, not a secret
_DRAWN = tuple((_chance.randint(-4, 4), _chance.randint(-4, 4)) for _ in range(_CYCLE))
PERTURBATIONS = (
    Perturbation(((-3, -3),), Scrape.SOME_TIME),
    Perturbation(((3, 3),), Scrape.AT_ONCE),
    Perturbation(_DRAWN, Scrape.AT_ONCE),
    Perturbation(tuple((-opens_by_ms, -ends_by_ms) for opens_by_ms, ends_by_ms in _DRAWN), Scrape.SOME_TIME),
)
"""The perturbations, one per ring.

They were tested on 45,239 real produce verdicts under a limit, 63 of them wrong. 8 of the wrong ones stay certain, and
2.4 % of all are uncertain. With other draws 5 to 19 wrong ones stay certain (99.957 % right and more). With the first
two rings alone it is 19, with six rings no fewer.
"""


class PerturbedRing(SampleRing):
    """A `SampleRing` that decides differently where the log leaves it open, by its `perturbation`."""

    __slots__ = ("_off_ms", "_scrape")

    def __init__(
        self, config: RateConfig, perturbation: Perturbation, state: RingState | None = None
    ) -> None:
        self._off_ms, self._scrape = perturbation
        super().__init__(config, state)

    def begin(self, time_ms: int, ago_ms: int) -> None:
        """Restart before an event, in a sample that opened `ago_ms` earlier with an unknown amount, taken as 0."""
        self._forget()
        self._values.append(0)
        self._starts_ms.append(time_ms - ago_ms)
        self._last_ms.append(time_ms)
        self._index()

    def _index(self) -> None:
        if self._starts_ms:
            start_ms = self._starts_ms[self.current]
            opens_by_ms, ends_by_ms = self._off_ms[start_ms % len(self._off_ms)]
            self._expire_ms = self.config.num_samples * self._window_ms + ends_by_ms
            super()._index()
            self._opens_at_ms += opens_by_ms
        else:
            super()._index()

    def _open_next(self, time_ms: int) -> None:
        super()._open_next(time_ms)
        opens_by_ms, ends_by_ms = self._off_ms[time_ms % len(self._off_ms)]
        self._opens_at_ms = time_ms + self._window_ms + opens_by_ms
        expire_ms = self.config.num_samples * self._window_ms + ends_by_ms
        self._purge_at_ms += expire_ms - self._expire_ms
        self._expire_ms = expire_ms

    def _turn(self, time_ms: int) -> None:
        if time_ms > self._purge_at_ms and self._starts_ms:
            if time_ms - self._last_ms[self.current] >= self.config.horizon_ms:
                self._forget()
            elif self._scrape is not Scrape.NEVER:
                self._purge_before(time_ms)
        super()._turn(time_ms)

    def _forget(self) -> None:
        """Become a new ring, because the audit forgets a bucket that was idle for so long."""
        for of_samples in (self._values, self._starts_ms, self._last_ms):
            of_samples.clear()
        self.current = self.total = 0
        self._index()

    def _purge_before(self, time_ms: int) -> None:
        """Purge samples that were too old before `time_ms`, as a scrape in between would."""
        for place, basis_ms in enumerate(self._basis_ms):
            over_ms = time_ms - basis_ms - self._expire_ms
            if over_ms > 0:
                # After N more windows it was scraped again. A perturbation may leave nothing of windows of a few ms.
                over_ms %= max(self._expire_ms, 1)
                if self._scrape is Scrape.SOME_TIME:
                    over_ms = over_ms * (basis_ms % _CYCLE) // _CYCLE
                self._values[place] = 0
                self._starts_ms[place] = self._last_ms[place] = time_ms - over_ms
        self._index()
        self.total = sum(self._values)


NO_RINGS: Sequence[None] = (None,) * len(PERTURBATIONS)
"""The rings of a bucket in which all requests wait."""


class PerturbedRings:
    """All perturbed rings of one bucket, continued from a `state` and advanced only when one could matter.

    Most buckets stay far below their limit. While the requests cannot lift any ring above it, for any samples, they
    wait to be recorded. The result is the same, because the rings do not depend on when they are queried.
    """

    __slots__ = ("_amounts", "_config", "_most", "_rings", "_states", "_times_ms")

    def __init__(self, config: RateConfig, state: PerturbedState | None = None) -> None:
        self._config = config
        states, amounts, times_ms = state or (NO_RINGS, (), ())
        self._states, self._amounts, self._times_ms = states, list(amounts), list(times_ms)
        self._rings: list[PerturbedRing] | None = None
        # An upper bound of the amount in any ring.
        self._most = max(sum(ring[1]) for ring in states if ring is not None) if states[0] else 0
        self._most += sum(amounts)

    @property
    def state(self) -> PerturbedState:
        """The state from which other rings can continue: the rings, and the requests that wait."""
        states = self._states if self._rings is None else [ring.state for ring in self._rings]
        return states, self._amounts, self._times_ms

    def recorded(self) -> list[PerturbedRing]:
        """The rings, with all requests recorded."""
        if self._rings is None:
            self._rings = [
                PerturbedRing(self._config, *each) for each in zip(PERTURBATIONS, self._states, strict=True)
            ]
        if self._times_ms:
            for ring in self._rings:
                ring.record_all(self._amounts, self._times_ms)
            self._amounts, self._times_ms = [], []
            self._most = max(ring.total for ring in self._rings)
        return self._rings

    def begin(self, time_ms: int) -> None:
        """Restart before an event, each ring at another time in the last window."""
        count = len(PERTURBATIONS) + 1
        for part, ring in enumerate(self.recorded(), start=1):
            ring.begin(time_ms, part * self._config.window_ms // count)
        self._most = 0

    def wait(self, amounts: Sequence[int], times_ms: Sequence[int], least_per_ms: float) -> bool:
        """Take requests that lift no ring above the lowest of their limits, and leave them to be recorded later.

        Returns:
            Whether the requests were taken. If not, some ring may be above the limit, which `record_all` shows.
        """
        most = self._most + sum(amounts)
        if not most <= least_per_ms * (self._config.num_samples - 1) * self._config.window_ms:
            return False
        self._most = most
        self._amounts += amounts
        self._times_ms += times_ms
        if len(self._times_ms) > _MOST_WAITING:
            self.recorded()
        return True

    def record_all(
        self, amounts: Sequence[int], times_ms: Sequence[int]
    ) -> list[tuple[list[int], list[int]]]:
        """Record requests in each ring, and return what each measured; see `SampleRing.record_all`."""
        found = [ring.record_all(amounts, times_ms) for ring in self.recorded()]
        self._most = max(ring.total for ring in self.recorded())
        return found


def places_after_gaps(
    requests: Iterable[tuple[int, Iterable[tuple[int, int]]]], last_ms: int | None, horizon_ms: int
) -> Iterator[int]:
    """Places of the first requests after a gap of the log; the given gaps end when a ring remembers nothing of them.

    The broker's sample opened somewhere in the gap, or with this request. Unless the bucket pauses, that difference
    stays long after everything in the gap has left the ring. So the rings restart there, each at another time. Once
    they have the same samples, they agree from then on. If the first request of a bucket comes after a given gap, the
    bucket has paused. Its ring is then new, whatever the gap hides. So gaps that ended before a request may be left
    out.
    """
    before_ms = last_ms or 0
    for place, (time_ms, gaps) in enumerate(requests):
        if any(before_ms < until_ms - horizon_ms <= time_ms < until_ms for _, until_ms in gaps):
            yield place
        before_ms = time_ms
