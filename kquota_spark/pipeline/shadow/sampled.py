"""The sampled rates of one shard under the shadow quotas: requests of many buckets in columns, judged at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import msgspec
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
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.windows_from_throttles import MARGIN_MS
from kquota_spark.pipeline.shadow.moved import POINT_FIELDS, MovedTerms, Numbers, Place, numbered
from kquota_spark.pipeline.shadow.rings import KeptRings, Key, RingColumns

manager_of = cache(msgspec.json.Decoder(Place).decode)
"""A manager as values, from its text."""
_SURELY_INT32 = 2.0**31 - 2
"""A throttle below is not narrowed, ms."""
_TIME, _AMOUNT, _KIND = map(Point._fields.index, ("record_time_ms", "amount", "kind"))


class SampledSecond(NamedTuple):
    """One second of a bucket under the shadow quotas."""

    key: Key
    place: Place
    second: ShadowSecond
    has_gap: bool
    """Whether a gap of the log makes the ring incomplete."""


class _Requests(NamedTuple):
    points: Any
    terms_of: Numbers
    totals: Numbers
    windows_ms: Numbers

    def at(self, places: Any) -> _Requests:
        return _Requests(*(column[places] for column in self))


class _Sums(NamedTuple):
    """The sums of a second; the first four numbers are in the order of `ShadowSecond`."""

    rate_per_s: float
    throttle_ms: int
    throttled_requests: int
    total_throttle_ms: int
    is_near: bool


class SampledBuckets:
    """Requests since the last micro-batch that are to be judged, in buckets with the same windows.

    A bucket is the position of its ring in `kept`. One with a ring that is not kept afterwards has a negative number.
    """

    def __init__(self, config: RateConfig, kept: KeptRings) -> None:
        self.config, self._kept = config, kept
        self._given: list[tuple[Key, int, RingState | None]] = []
        self._terms: list[MovedTerms] = []
        self._parts: list[tuple[Numbers, Numbers, Numbers, Numbers]] = []

    def add_given(self, key: Key, folded_ms: int, ring: RingState | None) -> int:
        """Add a bucket with a ring that is not kept.

        Args:
            key: its name.
            folded_ms: time up to which the ring has everything, epoch ms.
            ring: the ring; None for an empty one.

        Returns:
            Its number.
        """
        self._given.append((key, folded_ms, ring))
        return -len(self._given)

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
            buckets: number of the bucket.
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
        numbers, terms_of, seconds_ms, points = (
            np.concatenate(column) if len(column) > 1 else column[0]
            for column in zip(*self._parts, strict=True)
        )
        shifted, buckets = numbered(numbers + len(self._given))
        used = shifted - len(self._given)
        is_new = seconds_ms >= self._folded_ms(used)[buckets]  # a late line is not folded in force either
        order = _replay_order(buckets, points)
        order = order[is_new[order]]
        if not len(order):
            return
        buckets, terms_of, seconds_ms, points = (
            column[order] for column in (buckets, terms_of, seconds_ms, points)
        )
        names, keys = [*self._kept.places], []
        for at in used.tolist():
            keys.append(names[at] if at >= 0 else self._given[-at - 1][0])
        managers = {text: manager_of(text) for text, _ in keys}
        totals, windows_ms = self._recorded(used, buckets, seconds_ms, points)
        scales = np.array([scale_of(managers[text][2]) for text, _ in keys])[buckets]
        is_open = self._are_open(scales, terms_of, points[:, _KIND], totals, windows_ms)
        is_first = (np.diff(buckets, prepend=-1) != 0) | (np.diff(seconds_ms, prepend=-1) != 0)
        starts = np.flatnonzero(is_first)
        chosen = np.logical_or.reduceat(is_open, starts)
        if wanted:
            _choose(chosen, buckets[starts], seconds_ms[starts], keys, wanted)
        requests = _Requests(points, terms_of, totals, windows_ms)
        ends = np.append(starts[1:], len(order))
        picked = np.flatnonzero(np.repeat(chosen, ends - starts))
        summed = self._summed(requests.at(picked), scales[picked], (ends - starts)[chosen])
        for place, found in zip(np.flatnonzero(chosen).tolist(), summed, strict=True):
            begin, end = int(starts[place]), int(ends[place])
            key, second_ms = keys[int(buckets[begin])], int(seconds_ms[begin])
            of_second = requests.at(slice(begin, end))
            second = self._second(managers[key[0]][2], second_ms, of_second, found)
            has_gap = any(self._terms[each].has_gap for each in np.unique(of_second.terms_of).tolist())
            yield SampledSecond(key, managers[key[0]], second, has_gap)

    def _summed(self, requests: _Requests, scales: Numbers, sizes: Numbers) -> Iterator[_Sums | None]:
        """The sums of seconds with these numbers of requests; None for those that are not of the usual kind.

        In a usual second all requests have one limit of bytes and known amounts. The steps are those of
        `sampled_verdict`, in doubles too.
        """
        if not len(sizes):
            return iter(())
        points, terms_of, totals, windows_ms = requests
        starts = np.cumsum(sizes) - sizes
        limit = np.array([each.limit.limit_per_s or 0.0 for each in self._terms])[terms_of]
        is_usual = (scales == 1) & (limit > 0) & ~np.isin(points[:, _KIND], THROTTLED_FETCHES)
        limit = np.where(is_usual, limit, 1.0)
        rate = totals / (windows_ms / 1_000.0)
        raw = np.where(rate > limit, (rate - limit) / limit * windows_ms, 0.0)
        is_usual &= raw < _SURELY_INT32
        whole = np.floor(np.where(is_usual, raw, 0.0))
        throttle_ms = (whole + (raw - whole >= 0.5)).astype(np.int64)
        per_ms = limit * 1 / 1_000
        is_near = np.abs(totals - per_ms * windows_ms) <= MARGIN_MS * per_ms
        are_usual = np.logical_and.reduceat(is_usual, starts) & (
            np.minimum.reduceat(limit, starts) == np.maximum.reduceat(limit, starts)
        )
        columns = (
            np.maximum.reduceat(rate, starts), np.maximum.reduceat(throttle_ms, starts),
            np.add.reduceat((throttle_ms > 0).astype(np.int64), starts), np.add.reduceat(throttle_ms, starts),
            np.logical_or.reduceat(is_near, starts),
        )  # fmt: skip
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return (_Sums(*row) if usual else None for usual, row in zip(are_usual.tolist(), rows, strict=True))

    def _folded_ms(self, used: Numbers) -> Numbers:
        """The time up to which each ring has everything, epoch ms."""
        found, is_kept = np.zeros(len(used), np.int64), used >= 0
        found[is_kept] = self._kept.folded_ms[used[is_kept]]
        for place in np.flatnonzero(~is_kept).tolist():
            found[place] = self._given[-int(used[place]) - 1][1]
        return found

    def _recorded(
        self, used: Numbers, buckets: Numbers, seconds_ms: Numbers, points: Any
    ) -> tuple[Numbers, Numbers]:
        """The amount and the length (ms) of the window after each request; kept rings have them from now on."""
        rings, is_kept = RingColumns(self.config, len(used)), used >= 0
        self._kept.rings.copy_to(used[is_kept], rings, is_kept)
        for place in np.flatnonzero(~is_kept).tolist():
            state = self._given[-int(used[place]) - 1][2]
            if state is not None:
                rings.put(place, state)
        found = rings.record(buckets, points[:, _TIME], points[:, _AMOUNT])
        rings.copy_to(is_kept, self._kept.rings, used[is_kept])
        lasts = np.flatnonzero(np.diff(buckets, append=-1))
        lasts = lasts[is_kept[buckets[lasts]]]
        at, folded_ms = used[buckets[lasts]], seconds_ms[lasts] + 1_000
        self._kept.folded_ms[at], self._kept.forget_at_ms[at] = folded_ms, folded_ms + self.config.horizon_ms
        return found

    def _are_open(
        self, scales: Numbers, terms_of: Numbers, kinds: Numbers, totals: Numbers, windows_ms: Numbers
    ) -> Any:
        """Whether each request has a limit and is near it or above, or has no known amount."""
        limits = [terms.limit.limit_per_s for terms in self._terms]
        has_limit = np.array([limit is not None for limit in limits])[terms_of]
        limit = np.array([limit or 0.0 for limit in limits])[terms_of] * scales
        is_below = totals * SURELY_BELOW < limit / 1_000 * (windows_ms - MARGIN_MS)
        return has_limit & (~is_below | np.isin(kinds, THROTTLED_FETCHES))

    def _second(
        self, quota_type: QuotaType, second_ms: int, requests: _Requests, sums: _Sums | None
    ) -> ShadowSecond:
        points, terms_of, totals, windows_ms = requests
        if sums is not None:
            limit, count = self._terms[int(terms_of[0])].limit, len(totals)
            return ShadowSecond(second_ms, limit, sums.rate_per_s, count, *sums[1:4], is_near=sums.is_near)
        limits = [self._terms[each].limit for each in terms_of.tolist()]
        measured = zip(points.tolist(), limits, totals.tolist(), windows_ms.tolist(), strict=True)
        found = [
            sampled_verdict(quota_type, self.config, Point(*point), limit, total, window_ms)
            for point, limit, total, window_ms in measured
        ]
        return summed_second(second_ms, limits, found)


def _choose(
    chosen: Any,
    buckets: Numbers,
    seconds_ms: Numbers,
    keys: Sequence[Key],
    wanted: Mapping[Key, Iterable[int]],
) -> None:
    """Mark the seconds that are asked for."""
    for bucket, key in enumerate(keys):
        of_bucket = wanted.get(key)
        if of_bucket:
            begin, end = np.searchsorted(buckets, (bucket, bucket + 1))
            chosen[begin:end] |= np.isin(seconds_ms[begin:end], [*of_bucket])


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
