"""The closed loop of one broker: which buckets other quotas can change, and what becomes of each.

A bucket changes if its limit does, or if it has requests of a connection that another changed bucket throttles. All
other buckets keep their recorded throttles to the byte.

The log leaves open what a client does with lost time, and how much thread time a request took. So the loop runs for
each reading. The answer is that of `Reading.USUAL` with the logged amounts, and the others are its bounds.
Both ends are widened by 5 % and one throttle: so much do two runs of the same clients under one limit differ. The last
throttles of several connections differ by the root of their number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile
from math import isqrt
from operator import itemgetter

from kquota_spark.model.loops.both_sides import Both, Times
from kquota_spark.model.loops.closed_loop import Charge, ClosedLoop, Connection, Kind, Reading, Sent
from kquota_spark.model.loops.meters import Meter
from kquota_spark.model.loops.open_loop import THROTTLED_FETCHES, Judged
from kquota_spark.model.loops.paces import connections_of, is_saturated
from kquota_spark.model.loops.plain_loop import PlainLoop, lanes_of
from kquota_spark.model.measure.muted_seconds import Span, joined, muted_until
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket

Key = tuple[QuotaType, Bucket]
"""One bucket of the broker."""
_NOISE = 0.01
"""How far the rates of two such runs differ. It counts for clients that do not wait: their delays add up."""
_MARGIN = 0.05
"""How far two runs of the same clients under the same limit differ, beside a throttle more or less at the end."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The least and the most of a figure, over all readings; the most is None if the demand is unknown."""

    low: int
    high: int | None

    def __add__(self, other: Bound) -> Bound:
        """The bound of the sum of two figures."""
        high = None if self.high is None or other.high is None else self.high + other.high
        return Bound(self.low + other.low, high)


@dataclass(frozen=True, slots=True)
class Closed:
    """One bucket of one broker in the closed loop; amounts are bytes, or microseconds of threads."""

    requests: int
    throttled_requests: int
    throttled_ms: int
    muted: tuple[Span, ...]
    """The seconds in which a throttle began or still ran, on any broker, in the period."""
    served: int
    deferred: int
    """The recorded part that is no longer served in the period."""
    added: int
    """The part of `served` that was not recorded: from connections that continue (`closed_loop`)."""
    delay: Bound
    """Bounds of the total delay, ms."""
    served_bound: Bound
    is_censored: bool
    """Whether a saturated connection gets a higher limit: it would send more."""

    @property
    def throttled_seconds(self) -> int:
        """Time throttled (s)."""
        return sum(span.end_s - span.first_s for span in self.muted)

    def __add__(self, other: Closed) -> Closed:
        """The sums over two brokers; a second counts once."""
        return Closed(
            self.requests + other.requests, self.throttled_requests + other.throttled_requests,
            self.throttled_ms + other.throttled_ms, tuple(joined([*self.muted, *other.muted])),
            self.served + other.served, self.deferred + other.deferred, self.added + other.added,
            self.delay + other.delay, self.served_bound + other.served_bound, self.is_censored or other.is_censored,
        )  # fmt: skip


_Charged = tuple[tuple[int, int, int, int], Key, Judged, Judged]
"""A request in one bucket under both quotas, after what orders it."""


def closed_loop(
    was: Mapping[Key, Sequence[Judged]],
    tried: Mapping[Key, Sequence[Judged]],
    changed: set[Key],
    ring: RateConfig,
    from_ms: int,
    until_ms: int,
    *,
    settle_ms: int = 0,
) -> dict[Key, Closed]:
    """Replay the connections of the changed buckets of one broker.

    Args:
        was: the requests by bucket under the recorded quotas, of bandwidth and thread time.
        tried: the same requests by bucket under the tried quotas.
        changed: the buckets of `tried` that have another limit, or that the recorded quotas do not make.
        ring: the broker's sample ring.
        from_ms: start of the period, epoch ms; what came before only fills the rings.
        until_ms: its end, epoch ms, exclusive.
        settle_ms: time before the period that runs under the tried quotas too, but is not counted, ms.

    Returns:
        The buckets that can change, all of `tried`.
    """
    affected = _affected(tried, changed)
    if not affected:
        return {}
    numbers = {key: number for number, key in enumerate(affected)}
    times = Times(from_ms - settle_ms, from_ms, until_ms)
    both = _recorded(was, tried, affected, times)
    sent, clients = _sent(both, numbers)
    connections = connections_of(sent, clients, until_ms, lambda: _sent(_earlier(both), numbers)[0])
    has_thread_time = any(key[0] is QuotaType.REQUEST for key in affected)
    runs = [
        run
        for is_at_most in ((False, True) if has_thread_time else (False,))
        for run in _runs(connections, both, ring, times, is_at_most=is_at_most)
    ]
    nearby = [*_nearby(connections, both, ring, times)]
    noisy = _without_waiting(connections)
    censored = _censored(both, sent)
    throttles = _differing(connections)
    return {
        key: _closed(
            [run[number] for run in runs], [run[number] for run in nearby if number in noisy], both[key], until_ms,
            throttles=throttles.get(number, 1), is_censored=key in censored,
        )
        for key, number in numbers.items()
    }  # fmt: skip


def _differing(connections: Sequence[Connection]) -> dict[int, int]:
    """How many throttles two runs of the same clients differ by, for each bucket by its number."""
    waiting = Counter(
        charge.meter for each in connections if each.does_wait for charge in each.sent[0].charges
    )
    return {number: isqrt(count) for number, count in waiting.items()}


def _without_waiting(connections: Sequence[Connection]) -> set[int]:
    """The numbers of the buckets that connections charge which do not wait for throttles."""
    loose = (each for each in connections if not each.does_wait)
    return {charge.meter for each in loose for sent in each.sent for charge in sent.charges}


def _runs(
    connections: Sequence[Connection],
    both: Mapping[Key, Both],
    ring: RateConfig,
    times: Times,
    *,
    is_at_most: bool,
) -> Iterator[list[Meter]]:
    """The meters of each bucket after a run for each reading, the usual one first."""
    is_paced = False
    plain = None if is_at_most or times.has_settling else _plain(connections, both, ring)
    for reading in Reading:
        if reading is Reading.PACED and is_paced:
            continue
        if plain is None:
            meters = [_meter(key, of_key, ring, is_at_most=is_at_most) for key, of_key in both.items()]
            loop = ClosedLoop(connections, meters, reading, is_at_most, None)
            loop.run(times.until_ms, times.counts_from_ms)
            has_added = loop.has_added
        else:
            meter, has_added = plain.run(reading, times.until_ms)
            meters = [meter]
        if reading is Reading.USUAL:
            # Without clocks, and if nobody continued beyond the record, `PACED` would take the same steps.
            is_paced = not has_added and all(each.clock is None for each in connections)
        yield meters


def _nearby(
    connections: Sequence[Connection], both: Mapping[Key, Both], ring: RateConfig, times: Times
) -> Iterator[list[Meter]]:
    """The meters after runs under limits that differ by `_NOISE`; none if all connections wait for throttles."""
    if all(each.does_wait for each in connections):
        return
    for factor in (1 - _NOISE, 1 + _NOISE):
        meters = [_meter(key, of_key, ring, is_at_most=False) for key, of_key in both.items()]
        others = [each.under(factor) for each in connections]
        ClosedLoop(others, meters, times_ms=None).run(times.until_ms, times.counts_from_ms)
        yield meters


def _plain(connections: Sequence[Connection], both: Mapping[Key, Both], ring: RateConfig) -> PlainLoop | None:
    """The faster loop of a single bucket of bytes, if it has plain requests only."""
    [(key, of_key), *others] = both.items()
    lanes = None if others or key[0] is QuotaType.REQUEST else lanes_of(connections)
    if lanes is None:
        return None
    same = takewhile(lambda pair: pair[0].throttle_ms == pair[1].throttle_ms, of_key.inside())
    meter = _meter(key, of_key, ring, is_at_most=False)
    return PlainLoop(connections, lanes, meter, sum(1 for _ in same))


def _affected(tried: Mapping[Key, Sequence[Judged]], changed: set[Key]) -> list[Key]:
    """The changed buckets, and all that share connections with them, directly or not."""
    if not changed:
        return []
    of_connection: dict[int, set[Key]] = defaultdict(set)
    connections: dict[Key, set[int]] = {}
    for key, of_bucket in tried.items():
        connections[key] = {each.point.connection_hash for each in of_bucket}
        for connection in connections[key]:
            of_connection[connection].add(key)
    found, waiting = set(changed), list(changed)
    seen: set[int] = set()
    while waiting:
        for connection in connections[waiting.pop()] - seen:
            seen.add(connection)
            waiting += of_connection[connection] - found
            found |= of_connection[connection]
    return [key for key in tried if key in found]


def _recorded(
    was: Mapping[Key, Sequence[Judged]],
    tried: Mapping[Key, Sequence[Judged]],
    affected: Sequence[Key],
    times: Times,
) -> dict[Key, Both]:
    """The requests of the affected buckets with both verdicts, in the broker's order."""
    verdicts: dict[QuotaType, dict[tuple[Point, tuple[str, str]], Judged]] = {}
    found = {}
    for key in affected:
        of_bucket, before = tried[key], was.get(key, ())
        if not _are_alike(of_bucket, before):  # other rules make other buckets
            if key[0] not in verdicts:
                verdicts[key[0]] = {
                    (each.point, each.client): each
                    for other, of_other in was.items()
                    if other[0] is key[0]
                    for each in of_other
                }
            before = [verdicts[key[0]][each.point, each.client] for each in of_bucket]
        start, counted = (
            bisect_left(of_bucket, time_ms, key=lambda each: each.point.record_time_ms)
            for time_ms in (times.begins_ms, times.from_ms)
        )
        found[key] = Both(before, of_bucket, start, counted)
    return found


def _earlier(both: Mapping[Key, Both]) -> dict[Key, Both]:
    """The requests before the loop begins."""
    return {
        key: Both(of_key.was[: of_key.start], of_key.tried[: of_key.start], 0, 0)
        for key, of_key in both.items()
    }


def _are_alike(one: Sequence[Judged], other: Sequence[Judged]) -> bool:
    """Whether both have the same requests in the same order."""
    return one is other or (
        len(one) == len(other)
        and all(ours.point is theirs.point for ours, theirs in zip(one, other, strict=True))
    )


def _sent(
    both: Mapping[Key, Both], numbers: Mapping[Key, int]
) -> tuple[dict[int, list[Sent]], dict[int, tuple[str, str]]]:
    """The requests by connection, and the client of each; charges of one request are put together."""
    sent: dict[int, list[Sent]] = defaultdict(list)
    clients: dict[int, tuple[str, str]] = {}
    charged = _in_order(both)
    order, following = 0, next(charged, None)
    while following is not None:
        place, key, was, tried = following
        following = next(charged, None)
        if following is None or following[0] != place:  # nearly all requests charge one bucket
            kind = Kind.PLAIN if key[0] is not QuotaType.FETCH else _kind([(place, key, was, tried)])
            charge = _charge(key, was, tried, numbers)
            one = _new(Sent, (place[0], order, was[3], was[4], (charge,), kind))
        else:
            of_request = [(place, key, was, tried)]
            while following is not None and following[0] == place:
                of_request.append(following)
                following = next(charged, None)
            one = Sent(
                place[0], order, max(each[2].throttle_ms for each in of_request),
                max(each[2].at_most_ms for each in of_request),
                tuple(_charge(*each[1:], numbers) for each in of_request), _kind(of_request),
            )  # fmt: skip
        sent[place[2]].append(one)
        clients[place[2]] = tried.client
        order += 1
    return sent, clients


def _in_order(both: Mapping[Key, Both]) -> Iterator[_Charged]:
    """The requests of the period in the broker's order."""
    of_keys = [_of_bucket(key, of_key) for key, of_key in both.items()]
    return of_keys[0] if len(of_keys) == 1 else merge(*of_keys, key=itemgetter(0))


def _of_bucket(key: Key, both: Both) -> Iterator[_Charged]:
    for was, tried in both.inside():
        yield tried.point[:4], key, was, tried


def _charge(key: Key, was: Judged, tried: Judged, numbers: Mapping[Key, int]) -> Charge:
    point, limit = tried[0], tried[2]
    inferred_ms = was[3] if was[6] and was[2] == limit else None
    amount = point[4]
    return _new(
        Charge, (numbers[key], amount, amount + point[7], limit, key[0] is QuotaType.FETCH, inferred_ms)
    )


_new = tuple.__new__  # three times as fast as the constructor, as in `replay`


def _kind(of_request: Sequence[_Charged]) -> Kind:
    fetches = [tried for _, key, _, tried in of_request if key[0] is QuotaType.FETCH]
    if not fetches or all(was.limit_per_s == tried.limit_per_s for _, _, was, tried in of_request):
        return Kind.PLAIN
    is_throttled = any(tried.point.kind in THROTTLED_FETCHES for tried in fetches)
    return Kind.THROTTLED_FETCH if is_throttled else Kind.FETCH


def _meter(key: Key, both: Both, ring: RateConfig, *, is_at_most: bool) -> Meter:
    """The meter of a bucket, with what it charged before the period."""
    meter = Meter(SampleRing(ring), ring.window_ms if key[0] is QuotaType.REQUEST else None)
    earlier = [each.point for each in both.tried[: both.start]]
    amounts = [each.amount + (each.network_time_us if is_at_most else 0) for each in earlier]
    meter.ring.record_all(amounts, [each.record_time_ms for each in earlier])
    return meter


def _censored(both: Mapping[Key, Both], sent: Mapping[int, Sequence[Sent]]) -> set[Key]:
    """The buckets in which a saturated connection that was throttled gets a higher limit, or none any more."""
    saturated: dict[int, bool] = {}
    found = set()
    for key, of_key in both.items():
        raised = {
            tried.point.connection_hash
            for was, tried in of_key.inside()
            if was[3] > 0 and was[2] is not None and (tried[2] is None or tried[2] > was[2])
        }
        for name in raised:
            if name not in saturated:
                saturated[name] = is_saturated(sent[name])
            if saturated[name]:
                found.add(key)
    return found


def _closed(
    runs: Sequence[Meter],
    nearby: Sequence[Meter],
    both: Both,
    until_ms: int,
    *,
    throttles: int,
    is_censored: bool,
) -> Closed:
    """The figures of the first run, with bounds over all; a bucket that does not change needs no margin.

    `throttles` are those that two runs of the same clients differ by.
    """
    meter = runs[0]
    amount = sum([each[0][4] for each in both.tried[both.counted :]])
    delay_ms = sum([each[3] for each in both.was[both.counted :]])
    delays, served = [each.delay_ms for each in runs], [each.served for each in runs]
    low, high = min(delays), max(delays)
    if meter.delay_ms != delay_ms:
        delays += [each.delay_ms for each in nearby]
        low, high = min(delays), max(delays)
        longest_ms = throttles * max(each.longest_ms for each in runs)
        low = max(round(low * (1 - _MARGIN)) - longest_ms, 0)
        high = round(high * (1 + _MARGIN)) + longest_ms
    return Closed(
        meter.requests, meter.throttled_requests, meter.delay_ms,
        muted_until(((second * 1_000, length_ms) for second, length_ms in meter.mutes.items()), until_ms), meter.served,
        amount - (meter.served - meter.added), meter.added,
        Bound(low, None if is_censored else high),
        Bound(min(served), None if is_censored else max(served)),
        is_censored,
    )  # fmt: skip
