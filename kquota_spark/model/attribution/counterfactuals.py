"""The recorded requests of a bucket, and how they would have been without one cause.

Each function takes a case and returns another one, for example with the limit from before a cut, or with the requests
spread evenly over the brokers. The functions can be applied one after the other. A replay then gives the total delay.

The replay is the closed loop of `kquota whatif`: a throttle delays the later requests of its connection, and the own
pace between two requests stays. So a client that waits less sends earlier, and all cases have the same requests.
Without a change each request keeps its recorded time and throttle exactly.

A throttled fetch came back empty. It is a probe: the broker measures it with the size of the next answered fetch of its
connection, and un-records it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import NamedTuple

from kquota_spark.model.loops.open_loop import SURELY_BELOW
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.measure.throttle_time import bounded_throttle_time_ms, throttle_time_ms
from kquota_spark.model.replay.request_replay import US_PER_PERCENT

Client = tuple[str, str]
"""User and client id."""


class Request(NamedTuple):
    """One request of a bucket; the first two fields order requests."""

    time_ms: int
    """Its recorded time, epoch ms, which it keeps in all cases."""
    order: int
    """Its place among the recorded requests, which it keeps too."""
    broker_id: int
    connection: int
    client: Client
    amount: int
    """Bytes, or microseconds of threads."""
    is_probe: bool = False
    """Whether it is a throttled fetch: its amount is measured and un-recorded."""
    own_ms: int = 0
    """Its time on the clock of its connection, which stops during throttles (`with_own_times`)."""
    ring: int = 0
    """Which ring of the broker measures it: 0, or one of its client alone."""


class LimitFrom(NamedTuple):
    """A limit of the bucket on each broker from a time on; None for no limit."""

    from_ms: int
    limit_per_s: float | None


class Case(NamedTuple):
    """Requests in their order, and the limits, of which the first begins before all requests."""

    requests: Sequence[Request]
    limits: tuple[LimitFrom, ...]


Change = Callable[[Case], Case]
"""Makes the case without one cause."""


@dataclass(frozen=True, slots=True)
class Replay:
    """How brokers measure the bucket.

    Args:
        ring: sample ring of a broker without one of its own in `rings`.
        from_ms: beginning of the period, epoch ms; throttles of requests before it do not count.
        rings: sample ring by broker.
        is_thread_time: whether amounts are microseconds of threads, with throttles of one sample at most.
        not_waiting: connections that send at their recorded times, whatever the throttles are.
    """

    ring: RateConfig
    from_ms: int
    rings: Mapping[int, RateConfig] = field(default_factory=dict)
    is_thread_time: bool = False
    not_waiting: frozenset[int] = frozenset()

    def delay_ms(self, case: Case) -> int:
        """Total delay in the period, ms."""
        return sum(throttle_ms for _, throttle_ms in self.throttles(case))

    def throttles(self, case: Case) -> list[tuple[Request, int]]:
        """The throttled requests of the period and their throttles (ms), in the order in which they are sent."""
        return [each for each in self.all_throttles(case) if each[0].time_ms >= self.from_ms]

    def all_throttles(self, case: Case) -> list[tuple[Request, int]]:
        """The same with the requests before the period."""
        connections: dict[int, list[Request]] = defaultdict(list)
        for request in case.requests:
            connections[request.connection].append(request)
        of_all = list(connections.values())
        heap = [(sent[0].time_ms, sent[0].order, index, 0) for index, sent in enumerate(of_all)]
        heapify(heap)
        rings: dict[tuple[int, int], SampleRing] = {}
        limits = _Limits(case.limits)
        found = []
        while heap:
            time_ms, _, index, place = heap[0]
            sent = of_all[index]
            request = sent[place]
            ring = rings.get((request.broker_id, request.ring))
            if ring is None:
                ring = SampleRing(self.rings.get(request.broker_id, self.ring))
                rings[request.broker_id, request.ring] = ring
            throttle_ms = self._throttle_ms(ring, request, time_ms, limits.at(time_ms))
            if throttle_ms > 0:
                found.append((request, throttle_ms))
            place += 1
            if place == len(sent):
                heappop(heap)
                continue
            following = sent[place]
            if request.connection in self.not_waiting:
                time_ms = following.time_ms
            else:
                time_ms += max(0, following.own_ms - request.own_ms + throttle_ms)
            heapreplace(heap, (time_ms, following.order, index, place))
        return found

    def _throttle_ms(self, ring: SampleRing, request: Request, time_ms: int, limit: float | None) -> int:
        """Charge a request, and return its throttle (ms)."""
        window_ms = ring.record(request.amount, time_ms)
        total = ring.total
        if request.is_probe:
            ring.record(-request.amount, time_ms)
        if limit is None:
            return 0
        if self.is_thread_time:
            return max(
                bounded_throttle_time_ms(total / US_PER_PERCENT, window_ms, limit, self.ring.window_ms), 0
            )
        if total * 1_000 * SURELY_BELOW < limit * window_ms:
            return 0
        return max(throttle_time_ms(total, window_ms, limit), 0)


class _Limits:
    """The limit at a time."""

    def __init__(self, limits: tuple[LimitFrom, ...]) -> None:
        self._starts_ms = [limit.from_ms for limit in limits]
        self._limits = [limit.limit_per_s for limit in limits]

    def at(self, time_ms: int) -> float | None:
        """The limit at a time, epoch ms."""
        if len(self._limits) == 1:
            return self._limits[0]
        return self._limits[max(bisect_right(self._starts_ms, time_ms) - 1, 0)]


def with_own_times(case: Case, replay: Replay) -> Case:
    """The recorded requests with the times of their connections' own clocks.

    Args:
        case: requests at their recorded times, without own times.
        replay: how the brokers measure them.
    """
    fixed = replay_at_recorded_times(replay, case)
    throttles = {request.order: throttle_ms for request, throttle_ms in fixed}
    muted_ms: dict[int, int] = defaultdict(int)
    requests = []
    for request in case.requests:
        own_ms = request.time_ms - muted_ms[request.connection]
        requests.append(request._replace(own_ms=own_ms))
        muted_ms[request.connection] += throttles.get(request.order, 0)
    return case._replace(requests=requests)


def replay_at_recorded_times(replay: Replay, case: Case) -> list[tuple[Request, int]]:
    """The throttled requests with their throttles (ms), each sent at its recorded time.

    Args:
        replay: how the brokers measure them.
        case: the recorded requests.
    """
    connections = frozenset(request.connection for request in case.requests)
    waiting = Replay(replay.ring, replay.from_ms, replay.rings, replay.is_thread_time, connections)
    return waiting.all_throttles(case)


def limit_kept(case: Case, at_ms: int) -> Case:
    """The limit from before `at_ms` (epoch ms) stays in force."""
    return case._replace(limits=tuple(limit for limit in case.limits if limit.from_ms < at_ms))


def uncharged(case: Case, clients: Collection[Client]) -> Case:
    """The requests of some clients are not charged: they slow nobody, and are still throttled for what others send."""
    requests = [
        request._replace(amount=0) if request.client in clients else request for request in case.requests
    ]
    return case._replace(requests=requests)


def without_requests(case: Case, orders: Collection[int]) -> Case:
    """Some requests, by their order, are not sent."""
    return case._replace(requests=[request for request in case.requests if request.order not in orders])


def scaled(case: Case, factors: Mapping[Client, tuple[int, int]], kept: Collection[int]) -> Case:
    """The requests of some clients are smaller.

    Args:
        case: the case.
        factors: numerator and denominator by client.
        kept: orders of requests that keep their amount.
    """
    requests = []
    for request in case.requests:
        if request.client in factors and request.order not in kept:
            more, less = factors[request.client]
            requests.append(request._replace(amount=request.amount * more // less))
        else:
            requests.append(request)
    return case._replace(requests=requests)


def spread_over_brokers(case: Case, brokers: Sequence[int], from_ms: int) -> Case:
    """Each request goes to the broker that has the least of the bucket's bytes so far.

    Args:
        case: the case.
        brokers: ids of the brokers, at least one.
        from_ms: earlier requests stay where they are, epoch ms.
    """
    loads = dict.fromkeys(brokers, 0)
    requests = []
    for request in case.requests:
        broker_id = request.broker_id
        if request.time_ms >= from_ms:
            broker_id = min(loads, key=lambda each: (loads[each], each))
            loads[broker_id] += request.amount
        requests.append(request if broker_id == request.broker_id else request._replace(broker_id=broker_id))
    return case._replace(requests=requests)


def in_own_rings(case: Case) -> Case:
    """Each client has a bucket of its own with the same limit."""
    rings: dict[Client, int] = {}
    requests = [
        request._replace(ring=rings.setdefault(request.client, len(rings) + 1)) for request in case.requests
    ]
    return case._replace(requests=requests)


def merged(case: Case, fixed: Mapping[Client, int], within_ms: int) -> Case:
    """The requests of a connection within some time of the first are one request.

    Args:
        case: the case.
        fixed: by client that sends so, the amount that each request costs whatever its size is.
        within_ms: the time, ms.
    """
    firsts: dict[int, tuple[int, int]] = {}
    requests: list[Request] = []
    for request in case.requests:
        place, first_ms = firsts.get(request.connection, (-1, 0))
        if request.client not in fixed:
            requests.append(request)
        elif place < 0 or request.own_ms - first_ms > within_ms:
            firsts[request.connection] = len(requests), request.own_ms
            requests.append(request)
        else:
            before = requests[place]
            more = max(request.amount - fixed[request.client], 0)
            requests[place] = before._replace(amount=before.amount + more)
    return case._replace(requests=requests)


def spread_in_time(case: Case, bursts: Mapping[int, Collection[int]], over_s: int) -> Case:
    """The amount of each burst comes in equal parts, one per second.

    Args:
        case: the case.
        bursts: the orders of the requests of a burst, by the time of its beginning (epoch ms).
        over_s: the time in which it comes, seconds.
    """
    burst_of = {order: begin_ms for begin_ms, orders in bursts.items() for order in orders}
    requests: list[Request] = []
    sums: dict[tuple[int, int, Client], Request] = {}
    for request in case.requests:
        begin_ms = burst_of.get(request.order)
        if begin_ms is None or request.is_probe:
            requests.append(request)
            continue
        key = begin_ms, request.broker_id, request.client
        before = sums.get(key)
        sums[key] = request if before is None else before._replace(amount=before.amount + request.amount)
    for number, ((begin_ms, _, _), whole) in enumerate(sums.items(), 1):
        for part in range(over_s):
            time_ms = begin_ms + 1_000 * part
            amount = whole.amount * (part + 1) // over_s - whole.amount * part // over_s
            # Connections of their own: they wait for nobody.
            requests.append(
                whole._replace(time_ms=time_ms, own_ms=time_ms, connection=-number, amount=amount)
            )
    requests.sort(key=attrgetter("time_ms", "order"))
    return case._replace(requests=requests)


def charged(requests: Iterable[Request]) -> int:
    """The amount that requests are charged, without that of probes."""
    return sum(request.amount for request in requests if not request.is_probe)
