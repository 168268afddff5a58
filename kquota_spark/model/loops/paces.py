"""How a recorded connection behaves: whether throttles delay it, whether it sends by the clock, or had more to send.

A broker from 2.0 on mutes a throttled connection. Its next request is then recorded after the throttle, whatever the
client does. So two signs show that throttles do not delay a client:

* Requests of the connection were recorded during its throttles, as with brokers before 2.0.
* The client leaves throttled connections, and continues on new ones before the throttle ends.

A client without throttles in the record shows neither. It is taken for one that waits, as Kafka's own clients do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from statistics import median_low

from kquota_spark.model.loops.clocks import Clock
from kquota_spark.model.loops.closed_loop import Connection, Sent

SHORTEST_THROTTLE_MS = 200
"""Shortest throttle (ms) that counts: shorter ones leave no time to see what a client does."""
BEFORE_END_MS = 100
"""A request this long (ms) before the end of a throttle did not wait for it; later ones may be errors of the replay."""
LEAST_SIGNS, LEAST_SHARE = 3, 0.5
"""Fewest requests that did not wait, and their smallest share of all throttles that are long enough."""
SATURATED_PACE_MS, SATURATED_SHARE, LEAST_GAPS = 5, 0.9, 5
"""A connection is saturated if its own pace is below 5 ms in 90 % of its gaps, and it has 5 gaps or more."""


_THROTTLE_MS = itemgetter(2)
"""The recorded throttle of a `Sent`; quicker than its name."""
LEAST_OF_KIND = 3
"""Fewest gaps with throttles, and without, that show whether a client sends by the clock."""


def clock_of(connections: Iterable[Sequence[Sent]]) -> Clock | None:
    """The clock of a client; None if it pauses after throttles as it does without, or too few gaps show it.

    Throttles count that are longer than the usual gap: a client by the clock has its next request ready by their end.

    Args:
        connections: the requests of each of its connections, in order.
    """
    gaps = [
        (after.time_ms - before.time_ms, before.throttle_ms)
        for sent in connections
        for before, after in pairwise(sent)
    ]
    usual = [gap_ms for gap_ms, throttle_ms in gaps if not throttle_ms]
    if len(usual) < LEAST_OF_KIND:
        return None
    usual_ms = median_low(usual)
    after = [max(gap_ms - throttle_ms, 0) for gap_ms, throttle_ms in gaps if throttle_ms >= max(usual_ms, 1)]
    if len(after) < LEAST_OF_KIND:
        return None
    after_ms = median_low(after)
    return Clock(usual_ms, after_ms) if after_ms < usual_ms / 2 else None


def own_paces(sent: Sequence[Sent]) -> list[int]:
    """The own pace (ms) of each gap of a connection: the gap without the throttle before it, at least 0."""
    return [max(after[0] - before[0] - before[2], 0) for before, after in pairwise(sent)]


def was_active(sent: Sequence[Sent], until_ms: int) -> bool:
    """Whether a connection was silent before the end of the period for no longer than it was at times before.

    A throttle that still ran explains the silence too.
    """
    if len(sent) <= LEAST_GAPS:
        return False
    silent_ms = until_ms - sent[-1].time_ms
    longest_ms = max(after[0] - before[0] for before, after in pairwise(sent))
    return silent_ms <= max(longest_ms, sent[-1].throttle_ms + max(own_paces(sent)))


def is_saturated(sent: Sequence[Sent]) -> bool:
    """Whether a connection always had the next request ready: its demand may be larger than what it sent."""
    paces_ms = [after.time_ms - before.time_ms - before.throttle_ms for before, after in pairwise(sent)]
    short = sum(pace_ms < SATURATED_PACE_MS for pace_ms in paces_ms)
    return len(paces_ms) >= LEAST_GAPS and short >= SATURATED_SHARE * len(paces_ms)


def is_unmuted(sent: Sequence[Sent]) -> bool:
    """Whether most throttles of a connection did not delay its next request."""
    throttled = [
        after.time_ms < before.time_ms + before.throttle_ms - BEFORE_END_MS
        for before, after in pairwise(sent)
        if before.throttle_ms >= SHORTEST_THROTTLE_MS
    ]
    return _are_signs(sum(throttled), len(throttled))


def does_reconnect(connections: Sequence[Sequence[Sent]]) -> bool:
    """Whether a client leaves throttled connections and continues on new ones.

    Args:
        connections: the requests of each of its connections, in order.
    """
    begins_ms = sorted(sent[0].time_ms for sent in connections)
    throttles = escapes = 0
    for requests in connections:
        for place, sent in enumerate(requests):
            if sent.throttle_ms >= SHORTEST_THROTTLE_MS:
                throttles += 1
                escapes += place + 1 == len(requests) and _begins_in(begins_ms, sent)
    return _are_signs(escapes, throttles)


def _begins_in(begins_ms: Sequence[int], sent: Sent) -> bool:
    """Whether a new connection begins during the throttle of a request."""
    place = bisect_left(begins_ms, sent.time_ms + 1)
    return place < len(begins_ms) and begins_ms[place] < sent.time_ms + sent.throttle_ms - BEFORE_END_MS


def _are_signs(signs: int, throttles: int) -> bool:
    return signs >= LEAST_SIGNS and signs >= LEAST_SHARE * throttles


def _clocks(
    hit: Mapping[tuple[str, str], Sequence[int]],
    sent: Mapping[int, Sequence[Sent]],
    earlier: Callable[[], Mapping[int, Sequence[Sent]]],
) -> dict[tuple[str, str], Clock | None]:
    """The clock of each throttled client, by the period, else with what came before it too.

    Args:
        hit: the connections of each throttled client.
        sent: the requests of the period by connection, in order.
        earlier: gives those before it.
    """
    clocks = {client: clock_of([sent[name] for name in names]) for client, names in hit.items()}
    unknown = [client for client, clock in clocks.items() if clock is None]
    before = earlier() if unknown else {}
    for client in unknown:
        clocks[client] = clock_of([[*before.get(name, ()), *sent[name]] for name in hit[client]])
    return clocks


def connections_of(
    sent: Mapping[int, Sequence[Sent]],
    clients: Mapping[int, tuple[str, str]],
    until_ms: int,
    earlier: Callable[[], Mapping[int, Sequence[Sent]]] = dict,
) -> list[Connection]:
    """The connections with what the record shows of them, and of the clients that they belong to.

    Args:
        sent: the requests by connection, in order.
        clients: user and client id of each connection.
        until_ms: end of the period, epoch ms.
        earlier: gives the requests before the period by connection. It is called if a client was throttled, and the
            period does not show whether it sends by the clock: under a long throttle all requests of a period wait.
    """
    own: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name, client in clients.items():
        own[client].append(name)
    # Without a throttle nothing shows what a client does with one.
    throttled = {name for name, of_one in sent.items() if any(map(_THROTTLE_MS, of_one))}
    hit = {clients[name]: own[clients[name]] for name in throttled}
    reconnecting = {client for client, names in hit.items() if does_reconnect([sent[name] for name in names])}
    clocks = _clocks(hit, sent, earlier)
    return [
        Connection(
            of_one,
            does_wait=clients[name] not in reconnecting and not (name in throttled and is_unmuted(of_one)),
            clock=clocks.get(clients[name]),
            continues=was_active(of_one, until_ms),
            pace_ms=median_low(own_paces(of_one) or (0,)),
        )
        for name, of_one in sent.items()
    ]
