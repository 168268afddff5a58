"""Detectors of causes: each finds one cause by its evidence, and the case without it.

A change is found against what was usual: a cut limit, a new client, growth, repeats, bursts, small requests. A
condition may have been there before: a shared bucket, or one broker with most of the traffic. It counts only where the
bucket is throttled without the changes as well. All thresholds are here.

A new detector is a function and an entry of `DETECTORS`. If it needs another column of the log, it reads a field of
`Observed`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from itertools import pairwise
from statistics import quantiles
from typing import NamedTuple

from kquota_spark.model.attribution.counterfactuals import (
    Case,
    Change,
    Client,
    charged,
    in_own_rings,
    limit_kept,
    merged,
    scaled,
    spread_in_time,
    spread_over_brokers,
    uncharged,
    without_requests,
)
from kquota_spark.model.attribution.observed import BURST_S, Observed, Totals, clients_of

CUT_BEFORE_MS = 600_000
"""Maximum time from a cut to the beginning of the throttling, ms."""
GROWTH = 1.3
"""Least amount of a client that grew, as a multiple of its usual amount."""
NEW_MS = 86_400_000
"""Maximum time since a new client was first seen, ms."""
SMALL = 0.3
"""Maximum size of small requests, as a multiple of the usual size."""
MERGED_MS = 100
"""Time within which small requests of a connection could be one, ms."""
HOT = 2.0
"""Least amount of a hot broker, as a multiple of the mean of all brokers."""
HOT_OTHERS_PERCENT = 2
"""Least amount of the other brokers, percent, now or in the minutes before: else the client has one partition."""
LEAST_REPEATS = 5
"""Least number of repeated requests."""
LEFT_PERCENT = 10
"""Percent of the delay that is left without all changes from which on a condition is searched."""
ALONE_PERCENT = 10
"""Maximum delay that a client of a shared bucket has alone, in percent of the delay of all."""
LEAST_SHARE_PERCENT = 5
"""Least share of the amount from which on a client counts as one that shares a bucket, percent."""


UNDECIDED = "burst_known_ms"
"""The fact of growth that may still be a burst: when that is known, epoch ms."""


class Cause(Enum):
    """Why a bucket was throttled."""

    LIMIT_CUT = "limit_cut"
    NEW_CLIENT = "new_client"
    GROWTH = "growth"
    REPEATS = "repeats"
    BACKFILL = "backfill"
    BURST = "burst_after_idle"
    SMALL_REQUESTS = "small_requests"
    HOT_BROKER = "hot_broker"
    SHARED_BUCKET = "shared_bucket"
    STEADY = "steady_at_the_limit"


Fact = int | float | str | None
Facts = Mapping[str, Fact]


class Evidence(NamedTuple):
    """What shows a cause: numbers by name with unit, and the case without the cause."""

    facts: Facts
    change: Change


class Detector(NamedTuple):
    """How one cause is found.

    Args:
        cause: the cause.
        find: the evidence; None if there is none. Its case is the recorded one, or for a condition the one without all
            changes.
        is_condition: whether it may have been there before.
    """

    cause: Cause
    find: Callable[[Observed, Case], Evidence | None]
    is_condition: bool = False


def limit_cut(observed: Observed, case: Case) -> Evidence | None:
    """An edit that lowered the limit, at most ten minutes before the throttling began, or during it."""
    from_ms = observed.throttled_ms - CUT_BEFORE_MS
    for before, after in pairwise(case.limits):
        is_lower = _value(after.limit_per_s) < _value(before.limit_per_s)
        if is_lower and from_ms <= after.from_ms < observed.to_ms:
            facts: Facts = {
                "at_ms": after.from_ms,
                "limit_before_per_s": before.limit_per_s,
                "limit_after_per_s": after.limit_per_s,
            }
            return Evidence(facts, partial(limit_kept, at_ms=after.from_ms))
    return None


def _value(limit_per_s: float | None) -> float:
    return math.inf if limit_per_s is None else limit_per_s


def new_clients(observed: Observed) -> Mapping[Client, int]:
    """Clients that were first seen at most a day before the period, with that time."""
    first_seen_ms = observed.first_seen_ms or {}
    return {
        client: first_ms
        for client in clients_of(observed.inside)
        if (first_ms := first_seen_ms.get(client)) is not None
        and first_ms >= observed.from_ms - NEW_MS
        and first_ms - observed.tables_from_ms >= observed.known_before_ms
    }


def new_client(observed: Observed, _: Case) -> Evidence | None:
    """Clients that were first seen at most a day before the period."""
    new = new_clients(observed)
    if not new:
        return None
    largest = max(new, key=lambda client: observed.sustained.get(client, Totals()).amount)
    amount = charged(each for each in observed.inside if each.client in new)
    facts: Facts = {
        "clients": len(new),
        "user": largest[0],
        "client_id": largest[1],
        "first_seen_ms": new[largest],
        "amount_percent": _percent(amount, charged(observed.inside)),
    }
    return Evidence(facts, partial(uncharged, clients=frozenset(new)))


def growth(observed: Observed, _: Case) -> Evidence | None:
    """Known clients that would send more than usual if they were not throttled."""
    baseline = observed.baseline
    if baseline is None:
        return None
    rates: dict[Client, tuple[float, float]] = {}
    others = {*small_sizes(observed), *new_clients(observed)}
    for client, totals in observed.sustained.items():
        before = baseline.clients.get(client, Totals())
        usual = observed.demand_per_s(client, before, 1_000 * baseline.seconds)
        now = observed.demand_per_s(client, totals, observed.sustained_ms)
        if usual > 0 and now >= GROWTH * usual and client not in others:
            rates[client] = now, usual
    if not rates:
        return None
    factors = {
        client: (round(1_000_000 * usual), round(1_000_000 * now)) for client, (now, usual) in rates.items()
    }
    largest = max(rates, key=lambda client: rates[client][0] - rates[client][1])
    now, usual = (sum(rate[place] for rate in rates.values()) for place in (0, 1))
    facts: Facts = {
        "clients": len(rates),
        "user": largest[0],
        "client_id": largest[1],
        "wanted_rate_per_s": now,
        "usual_rate_per_s": usual,
        "times": now / usual,
        "compared_with": baseline.kind.value,
        "since_ms": observed.onset_ms,
    }
    if observed.burst_known_ms is not None:
        facts = {**facts, UNDECIDED: observed.burst_known_ms}
    return Evidence(facts, partial(scaled, factors=factors, kept=observed.apart))


def repeats(observed: Observed, _: Case) -> Evidence | None:
    """Requests that a client sends again on a new connection: likely, because the log has no sequence numbers."""
    inside = {request.order for request in observed.inside}
    found = observed.repeats & inside
    if len(found) < LEAST_REPEATS:
        return None
    amount = charged(each for each in observed.inside if each.order in found)
    facts: Facts = {
        "requests": len(found),
        "connections": len({each.connection for each in observed.inside}),
        "amount_percent": _percent(amount, charged(observed.inside)),
    }
    return Evidence(facts, partial(without_requests, orders=observed.repeats))


def backfill(observed: Observed, _: Case) -> Evidence | None:
    """Consumers that read old records: from an earlier offset, or those of a pause."""
    found = observed.backlogs
    if not found:
        return None
    orders = frozenset[int]().union(*(each.orders for each in found))
    largest = max(found, key=lambda each: (each.lag_records, -each.begin_ms))
    amount = charged(each for each in observed.inside if each.order in orders)
    facts: Facts = {
        "clients": len({each.client for each in found}),
        "user": largest.client[0],
        "client_id": largest.client[1],
        "at_ms": largest.begin_ms,
        "lag_records": largest.lag_records,
        "back_records": largest.back_records,
        "amount_percent": _percent(amount, charged(observed.inside)),
    }
    return Evidence(facts, partial(without_requests, orders=orders))


def burst_after_idle(observed: Observed, _: Case) -> Evidence | None:
    """Requests after a pause that are soon throttled, and that would fit under the limit within a minute."""
    if not observed.bursts:
        return None
    orders = frozenset[int]().union(*observed.bursts.values())
    largest_ms = max(
        observed.bursts,
        key=lambda begin_ms: charged(
            each for each in observed.case.requests if each.order in observed.bursts[begin_ms]
        ),
    )
    burst = [each for each in observed.case.requests if each.order in observed.bursts[largest_ms]]
    delay_ms = sum(throttle_ms for request, throttle_ms in observed.throttles if request.order in orders)
    facts: Facts = {
        "bursts": len(observed.bursts),
        "largest_at_ms": largest_ms,
        "largest_amount": charged(burst),
        "over_s": BURST_S,
        "part_percent": _percent(delay_ms, observed.delay_ms),
    }
    return Evidence(facts, partial(spread_in_time, bursts=observed.bursts, over_s=BURST_S))


def small_sizes(observed: Observed) -> Mapping[Client, tuple[float, float]]:
    """Clients that send about their usual bytes in many smaller requests: bytes per request, and the usual ones.

    Only for thread time, of which each request has a fixed part. Under a bandwidth quota a client waits as long with
    few large requests as with many small ones.
    """
    baseline = observed.baseline
    if baseline is None or not observed.replay.is_thread_time:
        return {}
    seconds = (observed.to_ms - observed.from_ms) / 1_000
    found = {}
    for client, now in observed.sizes.items():
        before = baseline.sizes.get(client)
        if before is None or not before.data_bytes or not before.requests or not now.requests:
            continue
        size, usual_size = now.data_bytes / now.requests, before.data_bytes / before.requests
        is_more = now.data_bytes * baseline.seconds >= GROWTH * before.data_bytes * seconds
        if size <= SMALL * usual_size and not is_more:
            found[client] = size, usual_size
    return found


def small_requests(observed: Observed, _: Case) -> Evidence | None:
    """Clients that send about their usual bytes in many smaller requests, which take more thread time."""
    small = small_sizes(observed)
    fixed = {
        client: max(math.floor(quantiles(amounts, n=10)[0]), 0)
        for client in small
        if len(amounts := [each.amount for each in observed.inside if each.client == client]) > 1
    }
    if not fixed or observed.baseline is None:
        return None
    largest = max(fixed, key=lambda client: observed.sizes[client].requests)
    facts: Facts = {
        "clients": len(fixed),
        "user": largest[0],
        "client_id": largest[1],
        "request_bytes": small[largest][0],
        "usual_request_bytes": small[largest][1],
        "requests": observed.sizes[largest].requests,
        "compared_with": observed.baseline.kind.value,
    }
    return Evidence(facts, partial(merged, fixed=fixed, within_ms=MERGED_MS))


def hot_broker(observed: Observed, case: Case) -> Evidence | None:
    """One broker that gets a multiple of the mean of all brokers.

    A client that only ever sends to one broker has one partition there. That is how it was made, and no imbalance.
    """
    brokers = observed.brokers
    if len(brokers) < 2:
        return None
    first_ms, end_ms = observed.core_ms
    amounts: dict[int, int] = defaultdict(int)
    for request in case.requests:
        if first_ms <= request.time_ms < end_ms and not request.is_probe:
            amounts[request.broker_id] += request.amount
    total = sum(amounts.values())
    hottest = max(amounts, key=lambda broker_id: (amounts[broker_id], -broker_id), default=None)
    if hottest is None or amounts[hottest] * len(brokers) < HOT * total:
        return None
    elsewhere = charged(each for each in case.requests if each.broker_id != hottest)
    if 100 * elsewhere < HOT_OTHERS_PERCENT * charged(case.requests):
        return None
    facts: Facts = {
        "broker_id": hottest,
        "brokers": len(brokers),
        "amount_percent": _percent(amounts[hottest], total),
        "times_the_mean": amounts[hottest] * len(brokers) / total if total else None,
    }
    return Evidence(facts, partial(spread_over_brokers, brokers=brokers, from_ms=first_ms))


def shared_bucket(observed: Observed, case: Case) -> Evidence | None:
    """Several clients in one bucket, none of which would be throttled much alone."""
    amounts: dict[Client, int] = defaultdict(int)
    for request in case.requests:
        if not request.is_probe:
            amounts[request.client] += request.amount
    total = sum(amounts.values())
    sharing = [client for client, amount in amounts.items() if 100 * amount >= LEAST_SHARE_PERCENT * total]
    if len(sharing) < 2:
        return None
    alone: dict[Client, int] = dict.fromkeys(sharing, 0)
    for request, throttle_ms in observed.replay.throttles(in_own_rings(case)):
        alone[request.client] = alone.get(request.client, 0) + throttle_ms
    if 100 * max(alone.values()) > ALONE_PERCENT * observed.replay.delay_ms(case):
        return None
    largest = max(sharing, key=lambda client: amounts[client])
    facts: Facts = {
        "clients": len(sharing),
        "user": largest[0],
        "client_id": largest[1],
        "largest_percent": _percent(amounts[largest], total),
        "alone_ms": sum(alone.values()),
    }
    return Evidence(facts, in_own_rings)


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


DETECTORS = (
    Detector(Cause.NEW_CLIENT, new_client),
    Detector(Cause.REPEATS, repeats),
    Detector(Cause.BACKFILL, backfill),
    Detector(Cause.GROWTH, growth),
    Detector(Cause.SMALL_REQUESTS, small_requests),
    Detector(Cause.BURST, burst_after_idle),
    Detector(Cause.LIMIT_CUT, limit_cut),
    Detector(Cause.HOT_BROKER, hot_broker, is_condition=True),
    Detector(Cause.SHARED_BUCKET, shared_bucket, is_condition=True),
)
"""All detectors, in the order in which a case loses several causes."""
