"""The effect of other quotas on past traffic: a period of `usage`, judged under the past quotas and under others.

Two answers, from the same requests:

* Open loop: the requests keep their times. Under lower limits throttled clients would have sent later, so the total
  delay is too high. Under higher limits they would have sent more, so it is too low.
* Closed loop: a throttle moves the later requests of its connection (`model.loops.closed_loop`).

A throttled fetch came back empty, so its verdict under another limit is unknown in the open loop, and counted as such.

The loops cover quotas of bandwidth and of thread time. Controller mutations have the open loop only: the tables do not
show when a client asks again for a refused topic. Connections per ip have none: the request log does not show the
connections that a broker refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from kquota_spark.config.governor import mutation_config, rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.model.govern.govern import Governor
from kquota_spark.model.loops.open_loop import Judged
from kquota_spark.model.loops.tried import Bound, Closed, Key
from kquota_spark.model.measure.muted_seconds import Span, joined, muted_until
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.reports.clients.both_verdicts import BothVerdicts, Flips, RingPair
from kquota_spark.reports.clients.stored_usage import UsagePart, stored_rings, stored_usage
from kquota_spark.schema import harm
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

_KEY = "quota_type, bucket_user, bucket_client_id"
_LOGGED = f"""
with found as materialized (
  select {_KEY}, epoch_ms(second) as second_ms, true as is_log, observed_total_throttle_ms is not null as is_logged,
         {harm.THROTTLED_REQUESTS} as requests, {harm.DELAY_MS} as delay_ms,
         {harm.LONGEST_THROTTLE_MS} as longest_ms, {harm.IS_THROTTLED} as is_throttled
  from decisions
  where cluster_id = ? and {FROM_LOG} and bucket_tags is null
    and decisions.second >= make_timestamptz(?::bigint) and decisions.second < make_timestamptz(?::bigint)
), {harm.time_throttled(_KEY, "found")}, sums as (
  select {_KEY}, sum(requests)::bigint as requests, sum(delay_ms)::bigint as delay_ms
  from found group by all having bool_or(is_logged)
)
select {_KEY}, requests, delay_ms, coalesce(time_throttled_s, 0) from sums left join of_time using ({_KEY})
"""  # noqa: S608 - names of ours
WARM_UP_MS = 130_000
"""Usage (ms) that is read before the period, to fill the longest common window (61 samples of 2 s)."""


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
class Logged:
    """The throttles of one bucket in the period as brokers logged them, with the meanings of `Side`."""

    throttled_requests: int
    throttled_ms: int
    throttled_seconds: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One bucket before and after; None where the rules do not create the bucket."""

    quota_type: QuotaType
    bucket: Bucket
    before: Side | None
    after: Side | None
    logged: Logged | None = None
    """None if brokers logged no throttle times of this bucket."""
    fits_percent: float | None = None
    """Percent of the recorded bytes that the tried limit lets through while they arrive; None without requests."""
    closed: Closed | None = None
    """The bucket in the closed loop; None for controller mutations, and where the tried rules do not create it."""
    amount: int = 0
    """Recorded bytes, or microseconds of threads, in the period."""
    flips: Flips = field(default_factory=Flips)

    @property
    def is_changed(self) -> bool:
        """Whether the two sides differ, in the open or in the closed loop."""
        return self.before != self.after or self._is_moved

    @property
    def _is_moved(self) -> bool:
        before, closed = self.before, self.closed
        return (
            before is not None
            and closed is not None
            and (before.throttled_requests, before.throttled_ms, before.throttled_seconds, 0)
            != (closed.throttled_requests, closed.throttled_ms, closed.throttled_seconds, closed.deferred)
        )

    @property
    def is_lower(self) -> bool:
        """Whether the tried limit is lower than the past one, or the only one."""
        after = None if self.after is None else self.after.limit_per_s
        before = None if self.before is None else self.before.limit_per_s
        return after is not None and (before is None or after < before)

    @property
    def throttled_ms(self) -> tuple[int, int]:
        """Throttled time before and after (ms)."""
        before, after = self.before, self.after
        return 0 if before is None else before.throttled_ms, 0 if after is None else after.throttled_ms

    @property
    def more_ms(self) -> int:
        """Increase of the throttled time (ms); negative for a decrease."""
        before_ms, after_ms = self.throttled_ms
        return after_ms - before_ms


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The period, and its buckets, those that change most first."""

    from_ms: int
    to_ms: int
    requests: int
    differences: list[Difference] = field(default_factory=list)
    clients: frozenset[tuple[QuotaType, str, str]] = frozenset()
    """Type, user and client id of all requests in the period."""


def what_if(
    settings: Settings,
    before: Governor,
    after: Governor,
    from_ms: int,
    to_ms: int,
    *,
    parts: Sequence[UsagePart] = (),
    tried: Callable[[RateConfig], RateConfig] = lambda ring: ring,
    is_open_only: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> WhatIf:
    """Judge a period of the tables' usage under the past quotas and rings, and under others.

    Args:
        settings: where the tables are, and the cluster.
        before: the past quotas.
        after: the other quotas.
        from_ms: first second, epoch ms; usage shortly before it fills the windows.
        to_ms: end, epoch ms, exclusive.
        parts: only usage of at least one of these; empty for all.
        tried: gives the other ring of a broker from its past one.
        is_open_only: whether to leave out the closed loop, which costs most of the time.
        progress: takes the number of requests that are about to be judged.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    default, stored = rate_config(settings), stored_rings(settings)
    tally = _Tally(from_ms, to_ms)
    clients: set[tuple[QuotaType, str, str]] = set()
    rows = stored_usage(settings, from_ms - WARM_UP_MS, to_ms, tuple(QuotaType), parts=parts)
    traffic = sorted(rows, key=lambda row: row.broker_id)
    progress(sum(len(row.points) for row in traffic))
    # One broker at a time: verdicts take several times the memory of the requests.
    for broker_id, group in groupby(traffic, key=lambda row: row.broker_id):
        of_broker, ring = list(group), stored.get(broker_id, default)
        inside = (row for row in of_broker if row.second_ms >= from_ms)
        clients.update((row.quota_type, row.principal.name, row.client_id) for row in inside)
        rings = RingPair(ring, tried(ring))
        verdicts = BothVerdicts(of_broker, before, after, rings, mutation_config(settings))
        closed = {} if is_open_only else verdicts.closed(from_ms, to_ms)
        tally.add(verdicts, closed, rings)
    found = tally.differences(_logged(settings, from_ms, to_ms))
    return WhatIf(from_ms, to_ms, tally.requests, found, frozenset(clients))


def _logged(settings: Settings, from_ms: int, to_ms: int) -> dict[tuple[QuotaType, Bucket], Logged]:
    """The brokers' figures by bucket, where their log has them; without those of a callback's tags."""
    with Tables(settings) as tables:
        if not tables.open_if_there("decisions", from_ms):
            return {}
        parameters = [settings.cluster_id, from_ms * 1_000, to_ms * 1_000, to_ms]
        rows = tables.query(_LOGGED, parameters).rows
    return {
        (QuotaType(quota_type), Bucket(user, client_id)): Logged(*figures)
        for quota_type, user, client_id, *figures in rows
    }


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


class _Tally:
    """Sums by bucket over all brokers, from `from_ms` until before `to_ms`."""

    def __init__(self, from_ms: int, to_ms: int) -> None:
        self._from_ms, self._to_ms = from_ms, to_ms
        self._before: dict[Key, Side] = {}
        self._after: dict[Key, Side] = {}
        self._closed: dict[Key, Closed] = {}
        self._fitting: dict[Key, float] = {}
        self._flips: dict[Key, Flips] = {}
        self._amounts: dict[Key, int] = {}
        self.requests = 0

    def add(self, verdicts: BothVerdicts, closed: Mapping[Key, Closed], rings: RingPair) -> None:
        """Add the buckets of one broker.

        Args:
            verdicts: its requests by bucket.
            closed: the buckets that the closed loop changes.
            rings: the broker's sample rings.
        """
        was = verdicts.was
        inferred = {
            each.point: each.limit_per_s
            for of_bucket in was.values()
            for each in of_bucket
            if each.is_inferred
        }
        sides: dict[Key, Side] = {}
        for key, of_bucket in was.items():
            inside = self._inside(of_bucket)
            if inside:
                sides[key] = _side(key, inside, {}, self._to_ms)
                self._before[key] = _sum(self._before.get(key), sides[key])
            self.requests += sum(each.point.kind != PointKind.SHARED_REQUEST for each in inside)
        for key, of_bucket in verdicts.tried.items():
            inside = self._inside(of_bucket)
            if not inside:
                continue
            # Most buckets do not change: they are summed up once.
            is_same = of_bucket is was.get(key)
            side = sides[key] if is_same else _side(key, inside, inferred, self._to_ms)
            self._after[key] = _sum(self._after.get(key), side)
            amount = sum(each.point.amount for each in inside)
            self._amounts[key] = self._amounts.get(key, 0) + amount
            if key[0] in BANDWIDTH:
                fitting = float(amount) if is_same else _fitting(inside, rings.tried)
                self._fitting[key] = self._fitting.get(key, 0.0) + fitting
            if key[0] is not QuotaType.CONTROLLER_MUTATION:
                found = closed.get(key) or _unchanged(side, amount)
                self._closed[key] = found + self._closed[key] if key in self._closed else found
        for key, flips in verdicts.flips(self._from_ms).items():
            self._flips[key] = self._flips.get(key, Flips()) + flips

    def _inside(self, of_bucket: Sequence[Judged]) -> Sequence[Judged]:
        start = bisect_left(of_bucket, self._from_ms, key=lambda each: each.point.record_time_ms)
        return of_bucket[start:] if start else of_bucket

    def differences(self, logged: Mapping[tuple[QuotaType, Bucket], Logged]) -> list[Difference]:
        """The differences of all buckets: those that change first, with the largest change of throttled time first.

        Types other than bandwidth are left out where neither side has a limit.

        Args:
            logged: the brokers' figures by bucket.
        """
        found = [
            Difference(
                *key, before, after, logged.get(key) if before else None, self._percent(key), self._closed.get(key),
                self._amounts.get(key, 0), self._flips.get(key, Flips()),
            )
            for key in {**self._before, **self._after}
            for before, after in [(self._before.get(key), self._after.get(key))]
            if key[0] in BANDWIDTH or any(side and side.limit_per_s is not None for side in (before, after))
        ]  # fmt: skip
        return sorted(
            found,
            key=lambda each: (not each.is_changed, -abs(each.more_ms), -sum(each.throttled_ms), each.quota_type.value,
                              each.bucket.user, each.bucket.client_id),
        )  # fmt: skip

    def _percent(self, key: Key) -> float | None:
        total = self._amounts.get(key, 0)
        return 100 * self._fitting[key] / total if total and key[0] in BANDWIDTH else None


def _side(key: Key, inside: Sequence[Judged], inferred: Mapping[Point, float | None], to_ms: int) -> Side:
    """One bucket of one broker under one set of quotas, in a period that ends before `to_ms` (epoch ms)."""
    throttled = [each for each in inside if each.throttle_ms > 0 and not _is_unknown(each, inferred)]
    is_open = bool(inferred) or key[0] is QuotaType.CONTROLLER_MUTATION
    return Side(
        limit_per_s=inside[-1].limit_per_s,
        requests=len(inside),
        throttled_requests=len(throttled),
        throttled_ms=sum(each.throttle_ms for each in throttled),
        muted=muted_until(((each.point.record_time_ms, each.throttle_ms) for each in throttled), to_ms),
        unknown=sum(_is_unknown(each, inferred) for each in inside) if is_open else 0,
        at_most_ms=sum(each.at_most_ms for each in inside) if key[0] is QuotaType.REQUEST else None,
    )


def _sum(one: Side | None, other: Side) -> Side:
    """The sums over two brokers; the limit is that of the other."""
    if one is None:
        return other
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
