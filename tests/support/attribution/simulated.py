"""A simulated cluster: clients that wait for their throttles, and the records that an audit would have of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from kquota_spark.model.attribution.counterfactuals import (
    Case,
    Client,
    LimitFrom,
    Replay,
    Request,
    with_own_times,
)
from kquota_spark.model.attribution.observed import Baseline, BaselineKind, Observed, Sizes, Totals
from kquota_spark.model.attribution.onsets import SLOT_MS
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.measure.throttle_time import throttle_time_ms
from tests.support.chance import Chance

RING = RateConfig()
BEGIN_MS = 1_795_238_700_000
"""When the tables begin."""
NORMAL_MS = 900_000
"""How long nothing happens."""
PERIOD_MS = 240_000
FROM_MS, TO_MS = BEGIN_MS + NORMAL_MS, BEGIN_MS + NORMAL_MS + PERIOD_MS
WARM_UP_MS = 130_000
END_MS = TO_MS + 60_000
"""When the tables end."""


@dataclass(slots=True)
class Sender:
    """One connection of a client.

    Args:
        client: user and client id.
        size: the bytes of the request that is sent at a time; 0 for none.
        pace_ms: mean time between two requests without a throttle.
        broker: the broker of a request that is sent at a time.
        from_ms: when it begins.
        retries: how often a request is sent again, each time on a new connection.
    """

    client: Client
    size: Callable[[int], float]
    pace_ms: Callable[[int], float]
    broker: Callable[[int], int] = lambda _: 1
    from_ms: int = BEGIN_MS
    retries: Callable[[int], int] = lambda _: 0
    _left: int = field(default=0, init=False)


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as the log has it."""

    time_ms: int
    broker_id: int
    connection: int
    client: Client
    amount: int
    throttle_ms: int


def sent(senders: Sequence[Sender], limits: tuple[LimitFrom, ...], chance: Chance) -> list[Sent]:
    """What the senders send until the tables end, each after the throttle of its last request."""
    rings: dict[int, SampleRing] = defaultdict(lambda: SampleRing(RING))
    heap = [(sender.from_ms + chance.randrange(1_000), index) for index, sender in enumerate(senders)]
    heapify(heap)
    connections = list(range(len(senders)))
    again: dict[int, tuple[int, int]] = {}
    found: list[Sent] = []
    while heap and heap[0][0] < END_MS:
        time_ms, index = heap[0]
        sender = senders[index]
        if index in again:
            amount, left = again.pop(index)
            connections[index] = max(connections) + 1
        else:
            amount, left = round(sender.size(time_ms) * chance.uniform(0.7, 1.3)), sender.retries(time_ms)
        pace_ms = sender.pace_ms(time_ms) * chance.uniform(0.8, 1.2)
        throttle_ms = 0
        if amount > 0:
            ring = rings[broker_id := sender.broker(time_ms)]
            window_ms = ring.record(amount, time_ms)
            limit = [each.limit_per_s for each in limits if each.from_ms <= time_ms][-1]
            throttle_ms = max(throttle_time_ms(ring.total, window_ms, limit), 0)
            found.append(Sent(time_ms, broker_id, connections[index], sender.client, amount, throttle_ms))
            if left:
                again[index] = amount, left - 1
                pace_ms = min(pace_ms, 900)
        if time_ms + throttle_ms + pace_ms >= END_MS:
            heappop(heap)
        else:
            heapreplace(heap, (round(time_ms + throttle_ms + max(pace_ms, 1)), index))
    return found


class Recording(NamedTuple):
    """What was sent, under which limits, on a cluster of which brokers."""

    records: Sequence[Sent]
    limits: tuple[LimitFrom, ...]
    brokers: tuple[int, ...] = (1,)


def observed(recording: Recording) -> Observed:
    """What the tables have of the period, compared with the time before."""
    records, limits, brokers = recording
    requests = [
        Request(each.time_ms, order, each.broker_id, each.connection, each.client, each.amount)
        for order, each in enumerate(records)
        if each.time_ms >= FROM_MS - WARM_UP_MS
    ]
    replay = Replay(RING, FROM_MS)
    later = [request for request in requests if request.time_ms >= TO_MS]
    case = with_own_times(Case(requests[: len(requests) - len(later)], limits), replay)
    first_seen_ms: dict[Client, int] = {}
    slots = [0] * ((END_MS - BEGIN_MS) // SLOT_MS)
    for each in records:
        first_seen_ms.setdefault(each.client, each.time_ms)
        slots[(each.time_ms - BEGIN_MS) // SLOT_MS] += each.amount
    before = [each for each in records if BEGIN_MS + 60_000 <= each.time_ms < FROM_MS]
    baseline = Baseline(BaselineKind.BEFORE, (NORMAL_MS - 60_000) // 1_000, totals(before))
    return Observed(
        case, replay, TO_MS, BEGIN_MS, END_MS, first_seen_ms, baseline, slots, BEGIN_MS, brokers, later=later,
    )  # fmt: skip


def totals(records: Sequence[Sent]) -> Mapping[Client, Totals]:
    """The traffic of each client."""
    found: dict[Client, Totals] = {}
    for each in records:
        before = found.get(each.client, Totals())
        found[each.client] = Totals(
            before.amount + each.amount, before.requests + 1, before.throttled_ms + each.throttle_ms
        )
    return found


def sizes(records: Sequence[Sent], data_bytes: Callable[[Sent], int]) -> Mapping[Client, Sizes]:
    """The produce requests of each client, by the bytes of each."""
    found: dict[Client, Sizes] = {}
    for each in records:
        before = found.get(each.client, Sizes(0, 0))
        found[each.client] = Sizes(before.data_bytes + data_bytes(each), before.requests + 1)
    return found
