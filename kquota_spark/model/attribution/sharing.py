"""Who slowed whom in a shared bucket, and how fairly its clients share it.

The delay that a client suffers is the sum of its throttles. The delay that it causes is its Shapley value: what the
charges of its requests add to the delay of all clients. Both add up to the same delay, to the millisecond. A client
that sends next to nothing causes nothing, however long it waits for the others.

Fairness compares what each client got with its max-min fair part of what all got. Jain's index is 1 if all clients got
the same share of their fair part, and 1/n if one of n got everything.

Source: R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness" (1984).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kquota_spark.model.attribution.counterfactuals import Case, Client, Replay, Request, uncharged
from kquota_spark.model.attribution.shapley import MOST_EXACT, shares
from kquota_spark.model.measure.max_min_fair import value_under
from kquota_spark.model.measure.muted_seconds import muted_until, seconds_of

OTHERS: Client = ("", "")
"""All clients beyond the largest ones, as one."""
MOST_CLIENTS = 20
"""Maximum number of clients with parts of their own."""
_MOST_MEASURED = 4_000_000
"""Maximum number of requests that all replays together measure: about 4 s."""
_HOUR_MS = 3_600_000


class Slowed(NamedTuple):
    """One client: the delays that it caused and suffered, ms."""

    client: Client
    caused_ms: int
    suffered_ms: int
    of_others_ms: int
    """The part of the caused delay that other clients suffered."""
    standard_error_ms: float
    """The standard error of the caused delay; 0 if it is exact."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """All clients of a bucket, the most caused delay first."""

    clients: tuple[Slowed, ...]
    matrix: Mapping[tuple[Client, Client], int]
    """Delay (ms) by the client that caused it and the client that suffered it."""
    others: int = 0
    """Number of clients that are one row together."""
    orders: int = 0
    """Number of drawn orders; 0 if the figures are exact."""
    measured: int = 0
    """Number of requests that the replays measured."""


def who_slowed_whom(case: Case, replay: Replay) -> Sharing:
    """The caused and the suffered delay of each client of a bucket.

    Args:
        case: the requests of the bucket.
        replay: how the brokers measure them.
    """
    players, others = _players(case.requests)
    place_of = {client: place for place, client in enumerate(players)}
    last = len(players) - 1
    replays = 0
    own_place = {request.client: place_of.get(request.client, last) for request in case.requests}

    def delays(mask: int) -> tuple[int, ...]:
        nonlocal replays
        replays += 1
        charging = {client for client, place in own_place.items() if mask >> place & 1}
        without = uncharged(case, own_place.keys() - charging)
        found = [0] * len(players)
        for request, throttle_ms in replay.throttles(without):
            found[own_place[request.client]] += throttle_ms
        return tuple(found)

    affordable = _MOST_MEASURED // max(len(case.requests) * len(players), 1)
    divided = shares(len(players), delays, most_orders=max(4, min(512, affordable // 2 * 2)))
    matrix = {
        (causing, suffering): divided.parts[by][of]
        for by, causing in enumerate(players)
        for of, suffering in enumerate(players)
    }
    found = [
        Slowed(
            client, sum(divided.parts[place]), divided.whole[place],
            sum(divided.parts[place]) - divided.parts[place][place], divided.standard_errors[place],
        )
        for place, client in enumerate(players)
    ]  # fmt: skip
    found.sort(key=lambda each: (-each.caused_ms, each.client))
    return Sharing(tuple(found), matrix, others, divided.orders, replays * len(case.requests))


def _players(requests: Sequence[Request]) -> tuple[list[Client], int]:
    """The clients by amount, and how many are the last one together.

    Up to 8 clients are exact. Larger buckets, and those with many requests, have fewer rows of their own.
    """
    amounts: Counter[Client] = Counter()
    for request in requests:
        amounts[request.client] += request.amount
    ordered = [client for client, _ in sorted(amounts.items(), key=lambda each: (-each[1], each[0]))]
    most = MOST_CLIENTS
    while most > 2 and len(requests) * (1 << min(most, MOST_EXACT)) > _MOST_MEASURED:
        most -= 1
    if len(ordered) <= most:
        return ordered, 0
    return [*ordered[: most - 1], OTHERS], len(ordered) - most + 1


def jain_index(values: Sequence[float]) -> float:
    """Jain's index: the square of the sum by the number times the sum of squares; 1 if all values are 0."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def max_min_fair(total: float, demands: Sequence[float]) -> list[float]:
    """The max-min fair parts of a total: nobody gets more than its demand, and small demands are met first."""
    value = value_under(demands, total)
    return [min(demand, value) for demand in demands]


class Fairness(NamedTuple):
    """One hour of a shared bucket."""

    from_ms: int
    clients: int
    jain_index: float
    """By what each client got as a share of its fair part."""
    shortfall: float
    """What clients got less than their fair parts, together, in the unit of the bucket."""
    shortfall_percent: float
    """The same in percent of what all got."""


def fairness(
    case: Case, throttles: Iterable[tuple[Request, int]], from_ms: int, to_ms: int
) -> list[Fairness]:
    """The fairness of each hour with requests.

    The demand of a client is what it got by the share of the hour in which it was not throttled.

    Args:
        case: the requests of the bucket.
        throttles: its throttled requests with their throttles (ms).
        from_ms: beginning of the period, epoch ms.
        to_ms: its end, exclusive.
    """
    amounts: dict[int, Counter[Client]] = defaultdict(Counter)
    for request in case.requests:
        if from_ms <= request.time_ms < to_ms and not request.is_probe:
            amounts[request.time_ms // _HOUR_MS][request.client] += request.amount
    spans: dict[Client, list[tuple[int, int]]] = defaultdict(list)
    for request, throttle_ms in throttles:
        spans[request.client].append((request.time_ms, throttle_ms))
    muted = {client: muted_until(of_client, to_ms) for client, of_client in spans.items()}
    found = []
    for hour, of_hour in sorted(amounts.items()):
        begin_ms, end_ms = max(from_ms, hour * _HOUR_MS), min(to_ms, (hour + 1) * _HOUR_MS)
        begin_s, end_s = begin_ms // 1_000, -(-end_ms // 1_000)
        got, demands = list(of_hour.values()), []
        for client, amount in of_hour.items():
            free_s = max(1, end_s - begin_s - seconds_of(muted.get(client, ()), begin_s, end_s))
            demands.append(amount * (end_s - begin_s) / free_s)
        fair = max_min_fair(sum(got), demands)
        shortfall = sum(max(0.0, part - amount) for part, amount in zip(fair, got, strict=True))
        shares_of_fair = [amount / part for part, amount in zip(fair, got, strict=True) if part]
        percent = 100 * shortfall / sum(got) if sum(got) else 0.0
        found.append(Fairness(begin_ms, len(got), jain_index(shares_of_fair or [0.0]), shortfall, percent))
    return found
