"""Sample rings of many buckets with the same windows, in columns: the arithmetic of `SampleRing`, all buckets at once.

A ring changes its shape only where a sample opens or is purged, a few times per second. Between two such turns the
amount in the window is a running sum. So all buckets take their next turn together, and the number of rounds is that of
the turns of one bucket, however many buckets and requests there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from kquota_spark.model.measure.sampled_rate import RateConfig, RingState

Numbers = npt.NDArray[np.int64]
Key = tuple[str, tuple[str, str, str | None]]
"""The text of a manager, and the tags of a bucket of it."""
_NEVER = np.iinfo(np.int64).max


class RingColumns:
    """Rings by their position.

    Attributes:
        current: the sample in use.
        size: how many samples there are.
        values: the amount of each sample, one row per ring; a sample that is not there has 0.
        starts_ms: when each began, epoch ms.
        last_ms: when each was last used.
    """

    __slots__ = ("config", "current", "last_ms", "size", "starts_ms", "values")

    def __init__(self, config: RateConfig, count: int) -> None:
        slots = config.lengths[1]
        self.config = config
        self.current, self.size = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.values, self.starts_ms, self.last_ms = (np.zeros((count, slots), np.int64) for _ in range(3))

    def __len__(self) -> int:
        return len(self.size)

    @property
    def _columns(self) -> tuple[Numbers, ...]:
        return self.current, self.size, self.values, self.starts_ms, self.last_ms

    def put(self, place: int, state: RingState) -> None:
        """Make one ring continue from the state of a `SampleRing`."""
        current, values, starts_ms, last_ms = state
        size = len(values)
        self.current[place], self.size[place] = current, size
        self.values[place, :size], self.starts_ms[place, :size], self.last_ms[place, :size] = (
            values,
            starts_ms,
            last_ms,
        )

    def copy_to(self, places: Any, other: RingColumns, others: Any) -> None:
        """Copy rings at some positions to positions of another."""
        for mine, its in zip(self._columns, other._columns, strict=True):
            its[others] = mine[places]

    def taken(self, places: Numbers) -> RingColumns:
        """Some of the rings."""
        found = RingColumns(self.config, len(places))
        self.copy_to(places, found, slice(None))
        return found

    def grown(self, count: int) -> RingColumns:
        """The same rings, and room for so many and more."""
        found = RingColumns(self.config, max(2 * len(self), count))
        self.copy_to(slice(None), found, slice(0, len(self)))
        return found

    @property
    def state(self) -> list[bytes]:
        """The columns as bytes."""
        return [column.tobytes() for column in self._columns]

    @classmethod
    def of_state(cls, config: RateConfig, state: Sequence[bytes]) -> RingColumns:
        """Rings that continue from a `state`."""
        found = cls(config, 0)
        current, size, *samples = (np.frombuffer(bytearray(column), np.int64) for column in state)
        found.current, found.size = current, size
        found.values, found.starts_ms, found.last_ms = (each.reshape(len(size), -1) for each in samples)
        return found

    def record(self, ring_of: Numbers, times_ms: Numbers, amounts: Numbers) -> tuple[Numbers, Numbers]:
        """Record requests, and measure after each.

        Args:
            ring_of: the ring of each request, ascending.
            times_ms: its time, which does not decrease within a ring, epoch ms.
            amounts: its amount.

        Returns:
            For each request, the amount in the window after it, and the window's length in ms.
        """
        count = len(times_ms)
        if not count:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(amounts)))
        first_ms, last_ms = int(times_ms.min()), int(times_ms.max())
        width = last_ms - first_ms + 2
        keys = ring_of * width + (times_ms - first_ms)
        rings, at = np.unique(ring_of, return_index=True)
        ends = np.append(at[1:], count)
        parts = []
        while len(rings):
            turns_at_ms = self._turn(rings, times_ms[at])
            until_ms = np.minimum(turns_at_ms - first_ms, width - 1)
            following = np.searchsorted(keys, rings * width + until_ms)
            following = np.minimum(np.maximum(following, at + 1), ends)
            in_use = rings, self.current[rings]
            parts.append((at, self.values[rings].sum(axis=1) - sums[at], self._oldest_ms(rings)))
            self.values[in_use] += sums[following] - sums[at]
            self.last_ms[in_use] = times_ms[following - 1]
            is_left = following < ends
            rings, at, ends = rings[is_left], following[is_left], ends[is_left]
        return self._measured(parts, sums[1:], times_ms)

    def _turn(self, rings: Numbers, now_ms: Numbers) -> Numbers:
        """Prepare rings for a request each: open the next sample, purge old ones; returns when the next turn may be."""
        is_by_last_event, slots, window_ms, expire_ms, _ = self.config.lengths
        size, current = self.size[rings], self.current[rings]
        opens = (size == 0) | (now_ms >= self.starts_ms[rings, current] + window_ms)
        current = np.where(opens, np.where(size == 0, 0, (current + 1) % slots), current)
        opened = rings[opens], current[opens]
        self.values[opened] = 0
        self.starts_ms[opened] = now_ms[opens]
        self.current[rings], self.size[rings] = current, np.maximum(size, current + 1)
        self.last_ms[rings, current] = now_ms
        basis_ms = self._there(self.last_ms if is_by_last_event else self.starts_ms, rings)
        is_old = basis_ms <= (now_ms - expire_ms)[:, None]
        if is_old.any():
            of_ring, sample = np.nonzero(is_old)
            purged = rings[of_ring], sample
            self.values[purged] = 0
            self.starts_ms[purged] = self.last_ms[purged] = now_ms[of_ring]
            basis_ms[is_old] = now_ms[of_ring]
        found: Numbers = np.minimum(
            self.starts_ms[rings, current] + window_ms, basis_ms.min(axis=1) + expire_ms
        )
        return found

    def _there(self, times_ms: Numbers, rings: Numbers) -> Numbers:
        """Times of samples, with the largest number for samples that are not there."""
        is_there = np.arange(times_ms.shape[1]) < self.size[rings][:, None]
        return np.where(is_there, times_ms[rings], _NEVER // 2)

    def _oldest_ms(self, rings: Numbers) -> Numbers:
        found: Numbers = self._there(self.starts_ms, rings).min(axis=1)
        return found

    def _measured(
        self, parts: Sequence[tuple[Numbers, Numbers, Numbers]], sums: Numbers, times_ms: Numbers
    ) -> tuple[Numbers, Numbers]:
        """The measure after each request.

        A part has where it begins, what is in the window before it less the sum so far, and the oldest start.
        """
        starts, bases, oldest_ms = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(starts)
        lengths = np.diff(starts[order], append=len(times_ms))
        totals = np.repeat(bases[order], lengths) + sums
        elapsed_ms = times_ms - np.repeat(oldest_ms[order], lengths)
        _, _, window_ms, _, padded_ms = self.config.lengths
        padded = np.where(elapsed_ms < padded_ms, padded_ms + elapsed_ms % window_ms, elapsed_ms)
        return totals, np.maximum(padded, 1)


class KeptRings:
    """Rings of buckets by name, between micro-batches.

    Attributes:
        places: the position of each bucket.
        rings: the rings.
        folded_ms: time up to which each ring has everything, epoch ms.
        forget_at_ms: time from which it equals a new one.
    """

    __slots__ = ("folded_ms", "forget_at_ms", "places", "rings")

    def __init__(self, config: RateConfig) -> None:
        self.places: dict[Key, int] = {}
        self.rings = RingColumns(config, 0)
        self.folded_ms, self.forget_at_ms = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def add(self, key: Key) -> int:
        """Add a bucket, which must not be there, with an empty ring; returns its position."""
        self.add_all([key])
        return self.places[key]

    def add_all(self, keys: Sequence[Key]) -> None:
        """Do `add` for several buckets."""
        first = len(self.places)
        self.places.update(zip(keys, range(first, first + len(keys)), strict=True))
        if len(self.places) > len(self.rings):
            self.rings = self.rings.grown(len(self.places))
            self.folded_ms, self.forget_at_ms = (
                np.concatenate((column, np.zeros(len(self.rings) - len(column), np.int64)))
                for column in (self.folded_ms, self.forget_at_ms)
            )

    def put(self, place: int, folded_ms: int, forget_at_ms: int, ring: RingState | None) -> None:
        """Make a ring continue from the state of a `SampleRing`.

        Args:
            place: its position.
            folded_ms: time up to which it has everything, epoch ms.
            forget_at_ms: time from which it equals a new one, epoch ms.
            ring: the state; None for an empty ring.
        """
        self.folded_ms[place], self.forget_at_ms[place] = folded_ms, forget_at_ms
        if ring is not None:
            self.rings.put(place, ring)

    def forget(self, oldest_ms: int) -> list[Key]:
        """Forget the rings that equal new ones from this time on (epoch ms); returns their buckets."""
        is_kept = self.forget_at_ms[: len(self.places)] > oldest_ms
        if is_kept.all():
            return []
        keys, places = [*self.places], np.flatnonzero(is_kept)
        self.places = {key: place for place, key in enumerate(compress(keys, is_kept.tolist()))}
        self.rings = self.rings.taken(places)
        self.folded_ms, self.forget_at_ms = self.folded_ms[places], self.forget_at_ms[places]
        return list(compress(keys, (~is_kept).tolist()))

    @property
    def state(self) -> tuple[object, ...]:
        """Everything: name of the windows, names of managers, columns of the buckets, and the rings as bytes."""
        managers: dict[str, int] = {}
        manager_of = [managers.setdefault(manager, len(managers)) for manager, _ in self.places]
        tags = [[*column] for column in zip(*(bucket for _, bucket in self.places), strict=True)]
        count = len(self.places)
        numbers = self.folded_ms[:count].tobytes(), self.forget_at_ms[:count].tobytes()
        rings = self.rings if len(self.rings) == count else self.rings.taken(np.arange(count))
        return self.rings.config.name, [*managers], manager_of, tags, *numbers, rings.state

    @classmethod
    def of_state(cls, state: Sequence[Any]) -> KeptRings:
        """Rings that continue from a `state`."""
        name, managers, manager_of, tags, folded_ms, forget_at_ms, rings = state
        found = cls(RateConfig.parse(name))
        keys: Iterator[Key] = zip(map(managers.__getitem__, manager_of), zip(*tags, strict=True), strict=True)
        found.places = {key: place for place, key in enumerate(keys)}
        found.rings = RingColumns.of_state(found.rings.config, rings)
        found.folded_ms, found.forget_at_ms = (
            np.frombuffer(bytearray(column), np.int64) for column in (folded_ms, forget_at_ms)
        )
        return found
