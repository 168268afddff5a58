"""What the tables have of a throttled bucket: the input of the detectors.

A detector that needs another column of the log gets it as a field of `Observed`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from kquota_spark.model.attribution.backlogs import Backlog, Position, backlogs
from kquota_spark.model.attribution.counterfactuals import (
    Case,
    Client,
    Replay,
    Request,
    charged,
)
from kquota_spark.model.attribution.onsets import onset_ms
from kquota_spark.model.replay.request_replay import US_PER_PERCENT

BURST_S = 60
"""Time over which the bytes of a burst would fit under the limit, seconds."""
BURST_SHARE = 0.8
"""Maximum bytes of a burst, as a share of what the limit lets through in that time.

A client that always wants more gets all of it."""
FIRST_THROTTLE_MS = 11_000
"""Maximum time from the beginning of a burst to its first throttle, ms."""
KNOWN_BEFORE_MS = 600_000
"""Least time that the tables contain before a client is first seen, ms: else everyone is new."""
REQUEST_TIMEOUT_MS = 30_000
"""Default request.timeout.ms of clients: a retry comes within this time of the request, ms."""
OPEN_PERCENT = 10
"""Least share of the delay in what may still be a burst, from which on growth is not certain, percent."""
LEAST_FREE = 0.05
"""Least share of a time that counts as not throttled."""
_LEAST_CORE_MS = 10_000
"""Least length of the throttled time in which rates are measured, ms: one window."""


class BaselineKind(Enum):
    """The time with which the period is compared."""

    WEEKS = "the same hour of the last weeks"
    DAY = "the same hour of the day before"
    BEFORE = "the time before"


class Totals(NamedTuple):
    """The traffic of one client in some time."""

    amount: int = 0
    """Bytes, or microseconds of threads."""
    requests: int = 0
    throttled_ms: int = 0
    """The sum of its throttles, ms."""


class Sizes(NamedTuple):
    """The produce and fetch requests of one client in some time."""

    data_bytes: int
    requests: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """The usual traffic of the bucket.

    Args:
        kind: the time that it is from.
        seconds: length of that time.
        clients: the traffic of each client.
        sizes: its produce and fetch requests; only for thread time.
    """

    kind: BaselineKind
    seconds: int
    clients: Mapping[Client, Totals]
    sizes: Mapping[Client, Sizes] = field(default_factory=dict)


@dataclass(frozen=True)
class Observed:
    """One bucket in one period, with what came before. Times are epoch ms.

    Args:
        case: the requests, also those before the period that fill the rings, and the limits.
        replay: how the brokers measure them.
        to_ms: end of the period, exclusive; it begins at `replay.from_ms`.
        tables_from_ms: the first time that the tables contain.
        tables_to_ms: the last one.
        first_seen_ms: when each client was first seen, with any quota type.
        baseline: None if the tables contain no time before.
        slots: amounts of slots of 10 s, which begin at `slots_from_ms`.
        slots_from_ms: the beginning of the first slot.
        brokers: all brokers of the cluster that served clients in the period.
        sizes: the produce and fetch requests of each client in the period; only for thread time.
        later: the requests of the minute after the period.
        positions: what each fetch read, by the order of its request; empty if its lines were not read.
        known_before_ms: least time that the tables contain before a new client.
    """

    case: Case
    replay: Replay
    to_ms: int
    tables_from_ms: int = 0
    tables_to_ms: int = 0
    first_seen_ms: Mapping[Client, int] | None = None
    baseline: Baseline | None = None
    slots: Sequence[int] = ()
    slots_from_ms: int = 0
    brokers: tuple[int, ...] = ()
    sizes: Mapping[Client, Sizes] = field(default_factory=dict)
    later: Sequence[Request] = ()
    positions: Mapping[int, Sequence[Position]] = field(default_factory=dict)
    known_before_ms: int = KNOWN_BEFORE_MS

    @property
    def from_ms(self) -> int:
        """Beginning of the period."""
        return self.replay.from_ms

    @cached_property
    def throttles(self) -> list[tuple[Request, int]]:
        """The throttled requests in the period, with their throttles by replay (ms)."""
        return self.replay.throttles(self.case)

    @cached_property
    def delay_ms(self) -> int:
        """The total delay by replay, ms."""
        return sum(throttle_ms for _, throttle_ms in self.throttles)

    @cached_property
    def core_ms(self) -> tuple[int, int]:
        """The throttled time: from one window before the first throttled request to the last one."""
        times_ms = [request.time_ms for request, _ in self.throttles] or [self.from_ms]
        first_ms = min(times_ms) - _LEAST_CORE_MS
        return first_ms, max(max(times_ms) + 1, min(times_ms) + _LEAST_CORE_MS // 2)

    @property
    def throttled_ms(self) -> int:
        """When throttling began."""
        return self.core_ms[0] + _LEAST_CORE_MS

    @cached_property
    def onset_ms(self) -> int | None:
        """When the traffic rose last before throttling began; None if it did not."""
        return onset_ms(self.slots, self.slots_from_ms, self.throttled_ms)

    @cached_property
    def inside(self) -> list[Request]:
        """The requests in the throttled time."""
        first_ms, end_ms = self.core_ms
        return [request for request in self.case.requests if first_ms <= request.time_ms < end_ms]

    @cached_property
    def repeats(self) -> frozenset[int]:
        """Orders of the first requests of new connections that repeat the last request of an ended one."""
        return frozenset(_repeats(self.case.requests))

    @cached_property
    def backlogs(self) -> list[Backlog]:
        """Old records that consumers read in the throttled time."""
        throttles = {request.order: throttle_ms for request, throttle_ms in self.throttles}
        inside = {request.order for request in self.inside}
        found = backlogs(self.case.requests, self.positions, throttles, self.replay.ring.horizon_ms)
        return [each for each in found if not inside.isdisjoint(each.orders)]

    @cached_property
    def bursts(self) -> Mapping[int, frozenset[int]]:
        """The orders of the requests of each burst, by the time of its beginning."""
        found = self._possible_bursts.items()
        return {begin_ms: orders for begin_ms, orders in found if _known_ms(begin_ms) <= self.tables_to_ms}

    @cached_property
    def burst_known_ms(self) -> int | None:
        """When it is known whether the delay is of a burst; None if that is known, or if the burst has little of it."""
        still = [each for each in self._possible_bursts if _known_ms(each) > self.tables_to_ms]
        orders = frozenset[int]().union(*(self._possible_bursts[each] for each in still))
        delay_ms = sum(throttle_ms for request, throttle_ms in self.throttles if request.order in orders)
        is_much = still and 100 * delay_ms >= OPEN_PERCENT * self.delay_ms
        return _known_ms(max(still)) if is_much else None

    @cached_property
    def _possible_bursts(self) -> Mapping[int, frozenset[int]]:
        """The bursts, and what is one so far where the tables end before its minute does."""
        throttles = {request.order: throttle_ms for request, throttle_ms in self.throttles}
        found: dict[int, frozenset[int]] = {}
        of_brokers: dict[int, list[Request]] = defaultdict(list)
        for request in self.case.requests:
            of_brokers[request.broker_id].append(request)
        for requests in of_brokers.values():
            for begin_ms, burst in _after_idle(requests, throttles, self.replay.ring.horizon_ms):
                if begin_ms - self.replay.ring.horizon_ms >= self.tables_from_ms and self._is_burst(
                    begin_ms, burst, throttles
                ):
                    found[begin_ms] = found.get(begin_ms, frozenset()) | {each.order for each in burst}
        return found

    def _is_burst(self, begin_ms: int, burst: Sequence[Request], throttles: Mapping[int, int]) -> bool:
        """Whether requests after a pause are soon throttled, and would fit under the limit in a longer time."""
        times_ms = [each.time_ms for each in burst if each.order in throttles]
        if not times_ms or times_ms[0] - begin_ms > FIRST_THROTTLE_MS:
            return False
        broker_id = burst[0].broker_id
        later = [
            each for each in self.later if each.broker_id == broker_id and each.time_ms < _known_ms(begin_ms)
        ]
        limit = [each.limit_per_s for each in self.case.limits if each.from_ms <= begin_ms][-1]
        unit = US_PER_PERCENT if self.replay.is_thread_time else 1
        return limit is not None and charged(burst) + charged(later) <= BURST_SHARE * limit * unit * BURST_S

    @cached_property
    def apart(self) -> frozenset[int]:
        """Orders of requests in bursts, of repeats and of backlogs: they do not count as growth."""
        return self.repeats.union(*self.bursts.values(), *(each.orders for each in self.backlogs))

    @cached_property
    def sustained(self) -> Mapping[Client, Totals]:
        """The traffic of each client in the throttled time, without bursts and repeats."""
        throttles = {request.order: throttle_ms for request, throttle_ms in self.throttles}
        found: dict[Client, Totals] = {}
        for request in self.inside:
            if request.order not in self.apart:
                amount, requests, throttled_ms = found.get(request.client, Totals())
                found[request.client] = Totals(
                    amount + (0 if request.is_probe else request.amount),
                    requests + (not request.is_probe),
                    throttled_ms + throttles.get(request.order, 0),
                )
        return found

    @cached_property
    def connections(self) -> Mapping[Client, int]:
        """The number of connections of each client in the throttled time."""
        found: dict[Client, set[int]] = defaultdict(set)
        for request in self.inside:
            if request.order not in self.apart:
                found[request.client].add(request.connection)
        return {client: len(connections) for client, connections in found.items()}

    def demand_per_s(self, client: Client, totals: Totals, length_ms: int) -> float:
        """The rate at which a client sends while it is not throttled.

        Args:
            client: the client; it has as many connections as in the throttled time.
            totals: its traffic.
            length_ms: in this time, ms.
        """
        muted_ms = totals.throttled_ms / max(self.connections.get(client, 1), 1)
        return totals.amount * 1_000 / max(length_ms - muted_ms, LEAST_FREE * length_ms)

    @cached_property
    def sustained_ms(self) -> int:
        """The throttled time without that of bursts, at least one window, ms."""
        first_ms, end_ms = self.core_ms
        in_bursts = sum(
            max(0, min(end_ms, begin_ms + 1_000 * BURST_S) - max(first_ms, begin_ms))
            for begin_ms in self.bursts
        )
        return max(end_ms - first_ms - in_bursts, _LEAST_CORE_MS)


def _known_ms(begin_ms: int) -> int:
    """When a burst that begins at a time is known to be one (epoch ms)."""
    return begin_ms + 1_000 * BURST_S


def _after_idle(
    requests: Sequence[Request], throttles: Mapping[int, int], idle_ms: int
) -> Iterable[tuple[int, Sequence[Request]]]:
    """The requests of one minute after each pause in which nobody was muted, with the time of the first."""
    end_ms = 0
    last_ms: int | None = None
    for place, request in enumerate(requests):
        is_idle = last_ms is None or request.time_ms - last_ms >= idle_ms
        if is_idle and request.time_ms >= end_ms:
            end_ms = request.time_ms + 1_000 * BURST_S
            beyond = bisect_left(requests, end_ms, lo=place, key=attrgetter("time_ms"))
            yield request.time_ms, requests[place:beyond]
        muted_ms = request.time_ms + throttles.get(request.order, 0)
        last_ms = max(muted_ms, last_ms or 0)


def _repeats(requests: Sequence[Request]) -> Iterable[int]:
    of_client: dict[tuple[Client, int], dict[int, list[Request]]] = defaultdict(dict)
    for request in requests:
        if not request.is_probe:
            connections = of_client[request.client, request.broker_id]
            connections.setdefault(request.connection, []).append(request)
    for connections in of_client.values():
        # A dictionary keeps the order in which connections began.
        yield from _of_client(list(connections.values()))


def _of_client(connections: Sequence[Sequence[Request]]) -> Iterable[int]:
    """The repeats of one client: connections in the order of their beginnings."""
    ended: dict[int, list[Request]] = defaultdict(list)
    for before, sent in pairwise(connections):
        ended[before[-1].amount].append(before[-1])
        first = sent[0]
        of_size = ended[first.amount]
        while of_size and first.time_ms - of_size[0].time_ms > REQUEST_TIMEOUT_MS:
            of_size.pop(0)
        for last in of_size:
            if first.time_ms > last.time_ms:
                yield first.order
                of_size.remove(last)
                break


def clients_of(requests: Iterable[Request]) -> Collection[Client]:
    """The clients of requests, each once, in the order in which they came."""
    return list(dict.fromkeys(request.client for request in requests))
