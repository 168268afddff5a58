"""The closed loop of one broker: which buckets other quotas can change, and what becomes of each.

A bucket changes if its limit does, or if it has requests of a connection that another changed bucket throttles. All
other buckets keep their recorded throttles to the byte.

The log leaves open what a client does with lost time, and how much thread time a request took. So the loop runs for
each reading. The answer is that of `Reading.USUAL` with the logged amounts, and the others are its bounds.
Both ends are widened by 5 % and one throttle: so much do two runs of the same clients under one limit differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from kquota_spark.model.loops.closed_loop import Charge, ClosedLoop, Connection, Kind, Meter, Reading, Sent
from kquota_spark.model.loops.open_loop import THROTTLED_FETCHES, Judged
from kquota_spark.model.loops.paces import clock_of, does_reconnect, is_saturated, is_unmuted, was_active
from kquota_spark.model.measure.muted_seconds import Span, joined, muted_until
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket

Key = tuple[QuotaType, Bucket]
"""One bucket of the broker."""
_MARGIN = 0.05
"""How far two runs of the same clients under the same limit differ, beside a throttle more or less at the end."""
_IN_ORDER = attrgetter("record_time_ms", "log_time_ms", "connection_hash", "correlation_id")


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


class _Charged(NamedTuple):
    """A request in one bucket under both quotas; the first field orders it."""

    place: tuple[int, int, int, int]
    was: Judged
    tried: Judged
    key: Key

    @property
    def is_tried(self) -> bool:
        return self.was.limit_per_s != self.tried.limit_per_s


def closed_loop(
    was: Mapping[Key, Sequence[Judged]],
    tried: Mapping[Key, Sequence[Judged]],
    changed: set[Key],
    ring: RateConfig,
    from_ms: int,
    until_ms: int,
) -> dict[Key, Closed]:
    """Replay the connections of the changed buckets of one broker.

    Args:
        was: the requests by bucket under the recorded quotas, of bandwidth and thread time.
        tried: the same requests by bucket under the tried quotas.
        changed: the buckets of `tried` that have another limit, or that the recorded quotas do not make.
        ring: the broker's sample ring.
        from_ms: start of the period, epoch ms; what came before only fills the rings.
        until_ms: its end, epoch ms, exclusive.

    Returns:
        The buckets that can change, all of `tried`.
    """
    affected = _affected(tried, changed)
    if not affected:
        return {}
    numbers = {key: number for number, key in enumerate(affected)}
    before = _recorded(was, tried, affected)
    inside = [each for each in before if each.place[0] >= from_ms]
    sent, clients = _sent(inside, numbers)
    connections = _connections(sent, clients, until_ms)
    runs = []
    has_thread_time = any(key[0] is QuotaType.REQUEST for key in affected)
    for is_at_most in (False, True) if has_thread_time else (False,):
        for reading in Reading:
            meters = [_meter(key, tried[key], ring, from_ms, is_at_most=is_at_most) for key in affected]
            ClosedLoop(connections, meters, reading, is_at_most).run(until_ms)
            runs.append(meters)
    censored = _censored(inside, sent)
    recorded = _sums(inside)
    return {
        key: _closed([run[number] for run in runs], recorded[key], until_ms, is_censored=key in censored)
        for key, number in numbers.items()
    }


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
    was: Mapping[Key, Sequence[Judged]], tried: Mapping[Key, Sequence[Judged]], affected: Sequence[Key]
) -> list[_Charged]:
    """The requests of the affected buckets with both verdicts, in the broker's order."""
    verdicts: dict[QuotaType, dict[tuple[Point, tuple[str, str]], Judged]] = {}
    found = []
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
        found += [
            _Charged(_IN_ORDER(each.point), earlier, each, key)
            for earlier, each in zip(before, of_bucket, strict=True)
        ]
    found.sort(key=attrgetter("place"))
    return found


def _are_alike(one: Sequence[Judged], other: Sequence[Judged]) -> bool:
    """Whether both have the same requests in the same order."""
    return len(one) == len(other) and all(
        ours.point is theirs.point for ours, theirs in zip(one, other, strict=True)
    )


def _sent(
    charged: Sequence[_Charged], numbers: Mapping[Key, int]
) -> tuple[dict[int, list[Sent]], dict[int, tuple[str, str]]]:
    """The requests by connection, and the client of each; charges of one request are put together."""
    sent: dict[int, list[Sent]] = defaultdict(list)
    clients: dict[int, tuple[str, str]] = {}
    for order, (place, group) in enumerate(groupby(charged, key=attrgetter("place"))):
        of_request = list(group)
        sent[place[2]].append(
            Sent(
                place[0], order, max(each.was.throttle_ms for each in of_request),
                max(each.was.at_most_ms for each in of_request),
                tuple(_charge(each, numbers) for each in of_request), _kind(of_request),
            )
        )  # fmt: skip
        clients[place[2]] = of_request[0].tried.client
    return sent, clients


def _connections(
    sent: Mapping[int, Sequence[Sent]], clients: Mapping[int, tuple[str, str]], until_ms: int
) -> list[Connection]:
    """The connections with what the record shows of them, and of the clients that they belong to."""
    own: dict[tuple[str, str], list[Sequence[Sent]]] = defaultdict(list)
    for name, client in clients.items():
        own[client].append(sent[name])
    reconnecting = {client for client, connections in own.items() if does_reconnect(connections)}
    clocks = {client: clock_of(connections) for client, connections in own.items()}
    return [
        Connection(
            of_one,
            does_wait=clients[name] not in reconnecting and not is_unmuted(of_one),
            clock=clocks[clients[name]],
            continues=was_active(of_one, until_ms),
        )
        for name, of_one in sent.items()
    ]


def _charge(each: _Charged, numbers: Mapping[Key, int]) -> Charge:
    point, is_fetch = each.tried.point, each.key[0] is QuotaType.FETCH
    inferred_ms = each.was.throttle_ms if each.was.is_inferred and not each.is_tried else None
    return Charge(
        numbers[each.key], point.amount, point.amount + point.network_time_us, each.tried.limit_per_s, is_fetch,
        inferred_ms,
    )  # fmt: skip


def _kind(of_request: Sequence[_Charged]) -> Kind:
    fetches = [each for each in of_request if each.key[0] is QuotaType.FETCH]
    if not fetches or not any(each.is_tried for each in of_request):
        return Kind.PLAIN
    is_throttled = any(each.tried.point.kind in THROTTLED_FETCHES for each in fetches)
    return Kind.THROTTLED_FETCH if is_throttled else Kind.FETCH


def _meter(
    key: Key, of_bucket: Sequence[Judged], ring: RateConfig, from_ms: int, *, is_at_most: bool
) -> Meter:
    """The meter of a bucket, with what it charged before the period."""
    meter = Meter(SampleRing(ring), ring.window_ms if key[0] is QuotaType.REQUEST else None)
    earlier = [each.point for each in of_bucket if each.point.record_time_ms < from_ms]
    amounts = [each.amount + (each.network_time_us if is_at_most else 0) for each in earlier]
    meter.ring.record_all(amounts, [each.record_time_ms for each in earlier])
    return meter


def _censored(charged: Sequence[_Charged], sent: Mapping[int, Sequence[Sent]]) -> set[Key]:
    """The buckets in which a saturated connection gets a higher limit, or none any more."""
    saturated = {name for name, of_one in sent.items() if is_saturated(of_one)}
    return {
        each.key
        for each in charged
        if each.place[2] in saturated
        and each.was.limit_per_s is not None
        and (each.tried.limit_per_s is None or each.tried.limit_per_s > each.was.limit_per_s)
    }


def _sums(charged: Sequence[_Charged]) -> dict[Key, tuple[int, int]]:
    """The recorded amount and total delay (ms) by bucket."""
    found: dict[Key, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for each in charged:
        amount, delay_ms = found[each.key]
        found[each.key] = amount + each.tried.point.amount, delay_ms + each.was.throttle_ms
    return found


def _closed(runs: Sequence[Meter], recorded: tuple[int, int], until_ms: int, *, is_censored: bool) -> Closed:
    """The figures of the first run, with bounds over all; a bucket that does not change needs no margin."""
    meter, (amount, delay_ms) = runs[0], recorded
    delays, served = [each.delay_ms for each in runs], [each.served for each in runs]
    low, high = min(delays), max(delays)
    if meter.delay_ms != delay_ms:
        longest_ms = max(each.longest_ms for each in runs)
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
