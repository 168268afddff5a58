"""The sampled rates of one shard under the shadow quotas: requests of many buckets in columns, judged at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from kquota_spark.model.loops.open_loop import SURELY_BELOW, THROTTLED_FETCHES
from kquota_spark.model.loops.shadow_bucket import (
    ShadowSecond,
    sampled_verdict,
    scale_of,
    summed_second,
)
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig, RingState
from kquota_spark.model.replay.windows_from_throttles import MARGIN_MS
from kquota_spark.pipeline.shadow.moved import POINT_FIELDS, MovedTerms, Numbers, Place
from kquota_spark.pipeline.shadow.rings import KeptRings, Key, RingColumns

_TIME, _AMOUNT, _KIND = map(Point._fields.index, ("record_time_ms", "amount", "kind"))


class SampledSecond(NamedTuple):
    """One second of a bucket under the shadow quotas."""

    key: Key
    place: Place
    second: ShadowSecond
    has_gap: bool
    """Whether a gap of the log makes the ring incomplete."""


class SampledBuckets:
    """Requests since the last micro-batch that are to be judged, in buckets with the same windows.

    A bucket has a ring in `kept`, or one that is given with it and not kept afterwards.
    """

    def __init__(self, config: RateConfig, kept: KeptRings) -> None:
        self.config, self._kept = config, kept
        self._at: dict[Key, int] = {}
        self._places: list[Place] = []
        self._kept_at: list[int] = []
        self._given: list[tuple[int, RingState | None]] = []
        self._terms: list[MovedTerms] = []
        self._parts: list[tuple[Numbers, Numbers, Numbers, Numbers]] = []

    def place_of(self, key: Key) -> int | None:
        """The position of a bucket; None if it was not added."""
        return self._at.get(key)

    def add(self, key: Key, place: Place, kept_at: int) -> int:
        """Add a bucket with a ring in `kept`, at this position there; returns its position here."""
        found = self._at[key] = len(self._places)
        self._places.append(place)
        self._kept_at.append(kept_at)
        return found

    def add_all(self, buckets: Sequence[tuple[Key, Place]], kept_at: Sequence[int]) -> None:
        """Do `add` for several buckets."""
        first = len(self._places)
        self._at.update(zip((key for key, _ in buckets), range(first, first + len(buckets)), strict=True))
        self._places += [place for _, place in buckets]
        self._kept_at += kept_at

    def add_given(self, key: Key, place: Place, folded_ms: int, ring: RingState | None) -> int:
        """Add a bucket with a ring that is not kept, and the time up to which it has everything (epoch ms)."""
        self._given.append((folded_ms, ring))
        return self.add(key, place, -len(self._given))

    def add_requests(
        self,
        buckets: Numbers,
        terms_of: Numbers,
        seconds_ms: Numbers,
        points: Any,
        terms: Iterable[MovedTerms],
    ) -> None:
        """Add requests, one per element.

        Args:
            buckets: position of the bucket.
            terms_of: position in `terms`.
            seconds_ms: start of the second, epoch ms.
            points: a row of the fields of `Point` for each.
            terms: limits, windows and gaps.
        """
        self._parts.append((buckets, terms_of + len(self._terms), seconds_ms, points))
        self._terms.extend(terms)

    def add_points(self, bucket: int, pieces: Sequence[tuple[int, Sequence[Point], MovedTerms]]) -> None:
        """Add requests of one bucket: for each piece the start of its second, its requests, and its terms."""
        counts = [len(points) for _, points, _ in pieces]
        numbers = chain.from_iterable(chain.from_iterable(points for _, points, _ in pieces))
        matrix = np.fromiter(numbers, np.int64, POINT_FIELDS * sum(counts)).reshape(-1, POINT_FIELDS)
        seconds_ms = np.repeat(np.array([piece[0] for piece in pieces], np.int64), counts)
        terms_of = np.repeat(np.arange(len(pieces)), counts)
        self.add_requests(
            np.full(len(matrix), bucket), terms_of, seconds_ms, matrix, [terms for *_, terms in pieces]
        )

    def judged(self, wanted: Mapping[Key, Iterable[int]]) -> Iterator[SampledSecond]:
        """Record all requests, and judge the seconds that may have a throttle or are asked for.

        Args:
            wanted: further seconds (epoch ms) of buckets to judge, if they have requests in them.
        """
        if not self._parts:
            return
        buckets, terms_of, seconds_ms, points = (
            np.concatenate(column) if len(column) > 1 else column[0]
            for column in zip(*self._parts, strict=True)
        )
        folded_ms = self._folded_ms()
        is_new = seconds_ms >= folded_ms[buckets]  # a late line is not folded in force either
        if not is_new.all():
            buckets, terms_of, seconds_ms, points = (
                column[is_new] for column in (buckets, terms_of, seconds_ms, points)
            )
        order = _replay_order(buckets, points)
        buckets, terms_of, seconds_ms, points = (
            column[order] for column in (buckets, terms_of, seconds_ms, points)
        )
        if not len(order):
            return
        totals, windows_ms = self._recorded(buckets, seconds_ms, points)
        is_open = self._are_open(buckets, terms_of, points[:, _KIND], totals, windows_ms)
        starts = np.flatnonzero(
            np.diff(buckets, prepend=-1).astype(bool) | np.diff(seconds_ms, prepend=-1).astype(bool)
        )
        chosen = np.logical_or.reduceat(is_open, starts)
        self._choose(chosen, buckets[starts], seconds_ms[starts], wanted)
        ends = np.append(starts[1:], len(order))
        keys = [*self._at]
        for place in np.flatnonzero(chosen).tolist():
            part = slice(int(starts[place]), int(ends[place]))
            bucket = int(buckets[part.start])
            requests = (
                points[part].tolist(),
                terms_of[part].tolist(),
                totals[part].tolist(),
                windows_ms[part].tolist(),
            )
            yield self._second(keys[bucket], self._places[bucket], int(seconds_ms[part.start]), requests)

    def _folded_ms(self) -> Numbers:
        at = np.array(self._kept_at, np.int64)
        if not self._given:
            return self._kept.folded_ms[at]
        given = np.array([folded_ms for folded_ms, _ in self._given], np.int64)
        is_kept = at >= 0
        found = np.zeros(len(at), np.int64)
        found[is_kept] = self._kept.folded_ms[at[is_kept]]
        found[~is_kept] = given[-at[~is_kept] - 1]
        return found

    def _recorded(self, buckets: Numbers, seconds_ms: Numbers, points: Any) -> tuple[Numbers, Numbers]:
        """The amount and the length (ms) of the window after each request; kept rings have them from now on."""
        kept_at = np.array(self._kept_at, np.int64)
        rings = RingColumns(self.config, len(kept_at))
        is_kept = kept_at >= 0
        self._kept.rings.copy_to(kept_at[is_kept], rings, is_kept)
        for place in np.flatnonzero(~is_kept).tolist():
            state = self._given[-int(kept_at[place]) - 1][1]
            if state is not None:
                rings.put(place, state)
        found = rings.record(buckets, points[:, _TIME], points[:, _AMOUNT])
        rings.copy_to(is_kept, self._kept.rings, kept_at[is_kept])
        lasts = np.flatnonzero(np.diff(buckets, append=-1))
        used, folded_ms = kept_at[buckets[lasts]], seconds_ms[lasts] + 1_000
        self._kept.folded_ms[used[used >= 0]] = folded_ms[used >= 0]
        self._kept.forget_at_ms[used[used >= 0]] = folded_ms[used >= 0] + self.config.horizon_ms
        return found

    def _are_open(
        self, buckets: Numbers, terms_of: Numbers, kinds: Numbers, totals: Numbers, windows_ms: Numbers
    ) -> Any:
        """Whether each request has a limit and is near it or above, or has no known amount."""
        limits = [terms.limit.limit_per_s for terms in self._terms]
        has_limit = np.array([limit is not None for limit in limits])[terms_of]
        scales = np.array([scale_of(quota_type) for *_, quota_type in self._places])[buckets]
        limit = np.array([limit or 0.0 for limit in limits])[terms_of] * scales
        is_below = totals * SURELY_BELOW < limit / 1_000 * (windows_ms - MARGIN_MS)
        return has_limit & (~is_below | np.isin(kinds, THROTTLED_FETCHES))

    def _choose(
        self, chosen: Any, buckets: Numbers, seconds_ms: Numbers, wanted: Mapping[Key, Iterable[int]]
    ) -> None:
        """Mark the seconds that are asked for."""
        for key, of_bucket in wanted.items():
            bucket = self._at.get(key)
            if bucket is not None:
                begin, end = np.searchsorted(buckets, (bucket, bucket + 1))
                chosen[begin:end] |= np.isin(seconds_ms[begin:end], [*of_bucket])

    def _second(
        self, key: Key, place: Place, second_ms: int, requests: tuple[list[list[int]], ...]
    ) -> SampledSecond:
        points, terms_of, totals, windows_ms = requests
        terms = [self._terms[place] for place in terms_of]  # type: ignore[call-overload]
        limits = [each.limit for each in terms]
        found = [
            sampled_verdict(place[2], self.config, Point(*point), limit, total, window_ms)  # type: ignore[arg-type]
            for point, limit, total, window_ms in zip(points, limits, totals, windows_ms, strict=True)
        ]
        return SampledSecond(
            key, place, summed_second(second_ms, limits, found), any(each.has_gap for each in terms)
        )


def _replay_order(buckets: Numbers, points: Any) -> Numbers:
    """The order of the replay: by bucket, then that of `Point`."""
    times_ms = points[:, _TIME]
    order = np.lexsort((times_ms, buckets))
    # Few requests share a millisecond, and only these need the other fields.
    is_tied = (np.diff(buckets[order]) == 0) & (np.diff(times_ms[order]) == 0)
    if is_tied.any():
        tied = np.flatnonzero(np.append(is_tied, False) | np.insert(is_tied, 0, False))
        of_tied = points[order[tied]]
        order[tied] = order[tied][np.lexsort((*of_tied.T[::-1], buckets[order[tied]]))]
    return order
