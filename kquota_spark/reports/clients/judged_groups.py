"""The figures of clients that are judged together: their buckets under the past quotas and under others.

Both loops need all requests of these clients, so the replay takes one group of one broker at a time.

The other quotas may come with another sample ring. Then the verdicts on each request are compared too, at the recorded
times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kquota_spark.model.govern.govern import Governor
from kquota_spark.model.govern.traffic import Traffic, governed_seconds_of
from kquota_spark.model.loops.open_loop import Judged, judged
from kquota_spark.model.loops.reach import reached
from kquota_spark.model.loops.tried import Bound, Closed, Key, closed_loop
from kquota_spark.model.measure.muted_seconds import Span, joined, muted_until
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.replay.decision import GovernedSecond


@dataclass(frozen=True, slots=True)
class Side:
    """One bucket over all brokers under one set of quotas."""

    limit_per_s: float | None
    """The last limit in force, on each broker; None is no limit."""
    requests: int = 0
    throttled_requests: int = 0
    throttled_ms: int = 0
    """Sum of all throttles, by replay (ms)."""
    muted: tuple[Span, ...] = ()
    """The seconds in which a throttle began or still ran, on any broker, in the period."""
    unknown: int = 0
    """Requests without a verdict: their amount is not in the log, and the limit is another one than the broker's."""
    at_most_ms: int | None = None
    """Upper bound of `throttled_ms` for thread time, of which the log has bounds; None for other types."""

    @property
    def throttled_seconds(self) -> int:
        """Time throttled (s)."""
        return sum(span.end_s - span.first_s for span in self.muted)


@dataclass(frozen=True, slots=True)
class Flips:
    """Requests of one bucket with another verdict: throttled only under the tried quotas and ring, or only before."""

    only_after: int = 0
    only_before: int = 0

    def __add__(self, other: Flips) -> Flips:
        """The flips of two brokers."""
        return Flips(self.only_after + other.only_after, self.only_before + other.only_before)


class Figures(NamedTuple):
    """One bucket under both quotas, of one broker or of several.

    Attributes:
        before: under the past quotas; None if they do not make the bucket.
        after: under the other quotas, in the open loop.
        closed: under the other quotas, in the closed loop; None for controller mutations.
        fitting: bytes that the tried limit lets through while they arrive; None if it is not bandwidth.
        amount: recorded bytes, or microseconds of threads.
        flips: the requests with another verdict; counted only for another sample ring.
    """

    before: Side | None = None
    after: Side | None = None
    closed: Closed | None = None
    fitting: float | None = None
    amount: int = 0
    flips: Flips = Flips()


def summed(one: Figures, other: Figures) -> Figures:
    """The sums over two brokers; the limits are those of the other."""
    closed = one.closed or other.closed
    if one.closed is not None and other.closed is not None:
        closed = one.closed + other.closed
    fitting = None
    if one.fitting is not None or other.fitting is not None:
        fitting = (one.fitting or 0.0) + (other.fitting or 0.0)
    before, after = _sum(one.before, other.before), _sum(one.after, other.after)
    return Figures(before, after, closed, fitting, one.amount + other.amount, one.flips + other.flips)


class Period(NamedTuple):
    """What is counted: from the first second until before the end, epoch ms."""

    from_ms: int
    to_ms: int
    settle_ms: int = 0
    """Time before it that the closed loop runs under the other quotas too, without counting, ms."""


class JudgedGroup(NamedTuple):
    """The figures of all buckets of a group, and its requests in the period."""

    figures: dict[Key, Figures]
    requests: int


def judged_group(
    rows: Sequence[Traffic],
    governors: tuple[Governor, Governor],
    rings: tuple[RateConfig, RateConfig],
    period: Period,
    tried_ring: RateConfig | None = None,
) -> JudgedGroup:
    """Judge the usage of a group of one broker, before and after.

    Args:
        rows: its usage; what came before the period fills the windows.
        governors: the past quotas and the others.
        rings: the broker's ring, and that of controller mutations.
        period: what is counted.
        tried_ring: the broker's ring under the other quotas, with which flips are counted; None for its own ring.
    """
    loops = _Loops(rows, *governors, *rings, tried_ring)
    was, tried = loops.was, loops.tried
    closed = loops.closed(period)
    flips = {} if tried_ring is None else loops.flips(period.from_ms)
    inferred = {
        each.point: each.limit_per_s for of_bucket in was.values() for each in of_bucket if each.is_inferred
    }
    found: dict[Key, Figures] = {}
    requests = 0
    for key, of_bucket in was.items():
        if inside := _inside(of_bucket, period.from_ms):
            found[key] = Figures(_side(key, inside, {}, period.to_ms))
            requests += sum(each.point.kind != PointKind.SHARED_REQUEST for each in inside)
    for key, of_bucket in tried.items():
        inside = _inside(of_bucket, period.from_ms)
        if not inside:
            continue
        before = found[key].before if key in found else None
        if before is not None and of_bucket is was.get(
            key
        ):  # most buckets do not change: they are summed up once
            side, fitting = before, float(sum(each.point.amount for each in inside))
        else:
            side, fitting = (
                _side(key, inside, inferred, period.to_ms),
                _fitting(inside, tried_ring or rings[0]),
            )
        found[key] = _after(key, inside, before, side, closed, fitting)._replace(
            flips=flips.get(key, Flips())
        )
    return JudgedGroup(found, requests)


class _Loops:
    """The requests of one broker, judged under both quotas: most buckets have the same limit, and so one verdict."""

    def __init__(
        self,
        rows: Sequence[Traffic],
        before: Governor,
        after: Governor,
        ring: RateConfig,
        mutation: RateConfig,
        tried_ring: RateConfig | None = None,
    ) -> None:
        as_was, as_tried = (
            {key[1:]: of_bucket for key, of_bucket in governed_seconds_of(rows, governor).items()}
            for governor in (before, after)
        )
        self._ring, self._tried_ring = ring, tried_ring or ring
        self._rings = {QuotaType.CONTROLLER_MUTATION: mutation}
        self._earlier: dict[QuotaType, dict[tuple[Point, tuple[str, str]], Judged]] = {}
        self.was = {key: self._judged(key, of_bucket, is_recorded=True) for key, of_bucket in as_was.items()}
        self._changed = {
            key
            for key, of_bucket in as_tried.items()
            if self._has_other_ring(key) or _limits(of_bucket) != _limits(as_was.get(key, ()))
        }
        self.tried = {
            key: self._judged(key, of_bucket, is_recorded=False) if key in self._changed else self.was[key]
            for key, of_bucket in as_tried.items()
        }

    def _judged(self, key: Key, of_bucket: Sequence[GovernedSecond], *, is_recorded: bool) -> list[Judged]:
        ring = self._ring if is_recorded else self._tried_ring
        return judged(key[0], of_bucket, self._rings.get(key[0], ring), is_recorded=is_recorded)

    def _has_other_ring(self, key: Key) -> bool:
        return self._tried_ring != self._ring and key[0] not in self._rings

    def closed(self, period: Period) -> dict[Key, Closed]:
        """The buckets that change in the closed loop; controller mutations have none."""
        was, tried = (
            {key: of_bucket for key, of_bucket in side.items() if key[0] is not QuotaType.CONTROLLER_MUTATION}
            for side in (self.was, self.tried)
        )
        changed = reached(was, tried, self._changed & tried.keys(), self._tried_ring)
        times = period.from_ms, period.to_ms
        return closed_loop(was, tried, changed, self._tried_ring, *times, settle_ms=period.settle_ms)

    def flips(self, from_ms: int) -> dict[Key, Flips]:
        """The flips of the changed buckets from a time (epoch ms) on.

        Throttled fetches are left out: their size is not in the log, so no other verdict on them is known.
        """
        return {
            key: _flips(pair for pair in self._pairs(key) if pair[1].point.record_time_ms >= from_ms)
            for key in self._changed
        }

    def _pairs(self, key: Key) -> Iterable[tuple[Judged, Judged]]:
        """Each request of a tried bucket with its past verdict, which other rules may have in another bucket."""
        was, tried = self.was.get(key, ()), self.tried[key]
        if len(was) == len(tried) and all(map(_is_of_one_request, was, tried)):
            return zip(was, tried, strict=True)
        if key[0] not in self._earlier:
            self._earlier[key[0]] = {
                (each.point, each.client): each
                for other, of_bucket in self.was.items()
                if other[0] is key[0]
                for each in of_bucket
            }
        earlier = self._earlier[key[0]]
        return ((earlier[each.point, each.client], each) for each in tried)


def _is_of_one_request(one: Judged, other: Judged) -> bool:
    return one.point is other.point


def _flips(pairs: Iterable[tuple[Judged, Judged]]) -> Flips:
    only_after = only_before = 0
    for was, tried in pairs:
        if was.is_inferred or tried.is_inferred or was.is_unknown or tried.is_unknown:
            continue
        only_after += was.throttle_ms <= 0 < tried.throttle_ms
        only_before += tried.throttle_ms <= 0 < was.throttle_ms
    return Flips(only_after, only_before)


def _fitting(of_bucket: Sequence[Judged], ring: RateConfig) -> float:
    """How many of the bytes of requests their limits let through by the time of the last request.

    Bytes above the limit wait, and the limit drains them. One window of bytes may be ahead of the limit, as in the
    broker's ring.
    """
    total, waiting, last_ms, window_s = 0, 0.0, 0, (ring.num_samples - 1) * ring.window_ms / 1_000
    ahead = 0.0
    for point, _, limit, *_ in of_bucket:
        total += point.amount
        if limit is None:
            waiting = ahead = 0.0
        else:
            waiting = max(0.0, waiting - limit * (point.record_time_ms - last_ms) / 1_000) + point.amount
            ahead = limit * window_s
        last_ms = point.record_time_ms
    return total - max(0.0, waiting - ahead)


def _inside(of_bucket: Sequence[Judged], from_ms: int) -> Sequence[Judged]:
    """The requests from a time on (epoch ms); earlier ones only fill the windows."""
    start = bisect_left(of_bucket, from_ms, key=lambda each: each.point.record_time_ms)
    return of_bucket[start:] if start else of_bucket


def _after(
    key: Key,
    inside: Sequence[Judged],
    before: Side | None,
    side: Side,
    closed: Mapping[Key, Closed],
    fitting: float,
) -> Figures:
    amount = sum(each.point.amount for each in inside)
    of_key = None
    if key[0] is not QuotaType.CONTROLLER_MUTATION:
        of_key = closed.get(key) or _unchanged(side, amount)
    return Figures(before, side, of_key, fitting if key[0] in BANDWIDTH else None, amount)


def _side(key: Key, inside: Sequence[Judged], inferred: Mapping[Point, float | None], to_ms: int) -> Side:
    """One bucket of one broker under one set of quotas, in a period that ends before `to_ms` (epoch ms)."""
    is_open = bool(inferred) or key[0] is QuotaType.CONTROLLER_MUTATION
    throttled = [each for each in inside if each.throttle_ms > 0]
    if is_open:
        throttled = [each for each in throttled if not _is_unknown(each, inferred)]
    longest_ms: dict[int, int] = {}
    for each in throttled:
        second = each.point.record_time_ms // 1_000
        longest_ms[second] = max(each.throttle_ms, longest_ms.get(second, 0))
    return Side(
        limit_per_s=inside[-1].limit_per_s,
        requests=len(inside),
        throttled_requests=len(throttled),
        throttled_ms=sum([each.throttle_ms for each in throttled]),
        muted=muted_until(((second * 1_000, ms) for second, ms in longest_ms.items()), to_ms),
        unknown=sum(_is_unknown(each, inferred) for each in inside) if is_open else 0,
        at_most_ms=sum(each.at_most_ms for each in inside) if key[0] is QuotaType.REQUEST else None,
    )


def _sum(one: Side | None, other: Side | None) -> Side | None:
    """The sums over two brokers; the limit is that of the other."""
    if one is None or other is None:
        return one or other
    return Side(
        other.limit_per_s, one.requests + other.requests, one.throttled_requests + other.throttled_requests,
        one.throttled_ms + other.throttled_ms, tuple(joined([*one.muted, *other.muted])),
        one.unknown + other.unknown,
        None if other.at_most_ms is None else (one.at_most_ms or 0) + other.at_most_ms,
    )  # fmt: skip


def _unchanged(side: Side, amount: int) -> Closed:
    """The closed loop of a bucket that it does not change."""
    high_ms = side.throttled_ms if side.at_most_ms is None else side.at_most_ms
    return Closed(
        side.requests, side.throttled_requests, side.throttled_ms, side.muted, amount, 0, 0,
        Bound(side.throttled_ms, high_ms), Bound(amount, amount), is_censored=False,
    )  # fmt: skip


def _is_unknown(each: Judged, inferred: Mapping[Point, float | None]) -> bool:
    """Whether a throttled fetch has another limit than the one that throttled it; never if `inferred` is empty."""
    limit = each.limit_per_s
    return each.is_unknown or (limit is not None and inferred.get(each.point, limit) != limit)


def _limits(of_bucket: Sequence[GovernedSecond]) -> list[tuple[object, ...]]:
    """All inputs that the throttles of a bucket depend on, beside the ring."""
    return [(each.second_ms, each.governing.limit_per_s, each.points) for each in of_bucket]
