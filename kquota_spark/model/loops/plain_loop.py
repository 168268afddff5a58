"""The closed loop of one bucket of bytes with plain requests only, as nearly all are: the same steps in half the time.

A request here is a place of some lists of numbers, and the ring's running sums are local variables. Requests before the
first one with another verdict keep their times, so they are recorded at once. The last request of a connection, and
those that it adds, take the steps of `ClosedLoop`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapify, heapreplace
from itertools import pairwise
from math import inf
from typing import NamedTuple

from kquota_spark.model.loops.clocks import Ticks
from kquota_spark.model.loops.closed_loop import (
    ClosedLoop,
    Connection,
    Kind,
    Reading,
    Sent,
)
from kquota_spark.model.loops.meters import SURELY_BELOW_PER_MS, Meter


class Lane(NamedTuple):
    """The requests of one connection as lists, one place per request; `own_ms` has one less.

    Times are in epoch ms, throttles and paces in ms, amounts in bytes, limits in bytes per second.
    """

    times_ms: list[int]
    orders: list[int]
    was_ms: list[int]
    own_ms: list[int]
    amounts: list[int]
    limits: list[float]
    """Infinite for no limit."""


class PlainLoop:
    """The runs of some connections on one bucket of bytes, for each reading from the same start.

    Args:
        connections: with at least one request each, all of one broker.
        lanes: the same as lists.
        meter: the bucket, which must contain what came before.
        calm: the number of requests, in their order, before the first one with another verdict.
    """

    def __init__(
        self, connections: Sequence[Connection], lanes: Sequence[Lane], meter: Meter, calm: int
    ) -> None:
        self._connections, self._lanes, self._meter = connections, lanes, meter
        self._places = self._calm(calm) if calm else [0] * len(lanes)

    def _calm(self, calm: int) -> list[int]:
        """Record the first requests, with the throttles that they had; the place of the next one per connection."""
        places = [bisect_left(lane.orders, calm) for lane in self._lanes]
        of_calm = sorted(
            (lane.orders[place], lane.times_ms[place], lane.amounts[place], lane.was_ms[place])
            for lane, end in zip(self._lanes, places, strict=True)
            for place in range(end)
        )
        amounts = [each[2] for each in of_calm]
        self._meter.ring.record_all(amounts, [each[1] for each in of_calm])
        for _, time_ms, amount, throttle_ms in of_calm:
            self._meter.count(throttle_ms, time_ms, amount, is_added=False)
        return places

    def run(self, reading: Reading, until_ms: int) -> tuple[Meter, bool]:
        """Send all requests that can be sent before `until_ms` (epoch ms) by a reading.

        Returns:
            The bucket after it, and whether some connection continued beyond its record.
        """
        meter = self._meter.copy()
        loop = ClosedLoop(self._connections, [meter], reading, times_ms=None, until_ms=until_ms)
        heap = []
        for index, (lane, place) in enumerate(zip(self._lanes, self._places, strict=True)):
            if place < len(lane.orders):
                heap.append((lane.times_ms[place], lane.orders[place], index, place))
        heapify(heap)
        self._send_all(loop, heap)
        return meter, loop.has_added

    def _send_all(self, loop: ClosedLoop, heap: list[tuple[int, int, int, int]]) -> None:
        meter, ring, until_ms, lanes = loop.meters[0], loop.meters[0].ring, loop.until_ms, self._lanes
        _, _, size_ms, _, padded_ms = ring.config.lengths
        ways = [_way(loop, connection) for connection in self._connections]
        turns_at_ms, oldest_ms, total = ring.steady
        added = served = requests = 0
        last_ms: int | None = None
        while heap and (first := heap[0])[0] < until_ms:
            time_ms, _, index, place = first
            times_ms, orders, was_ms, paces_ms, amounts, limits = lanes[index]
            if time_ms >= turns_at_ms or place >= len(paces_ms):
                if last_ms is not None:
                    ring.add(added, last_ms)
                    added, last_ms = 0, None
                if place >= len(paces_ms):
                    loop.follow(heap)
                    turns_at_ms, oldest_ms, total = ring.steady
                    continue
                turns_at_ms, oldest_ms, total = ring.turn(time_ms)
            amount, limit, own_ms = amounts[place], limits[place], paces_ms[place]
            added += amount
            total += amount
            served += amount
            requests += 1
            last_ms, throttle_ms, window_ms = time_ms, 0, time_ms - oldest_ms
            if window_ms < padded_ms:
                window_ms = padded_ms + window_ms % size_ms
            if total * SURELY_BELOW_PER_MS >= limit * window_ms:
                throttle_ms = meter.throttle(total, window_ms or 1, limit, time_ms)
            is_paced, waits, ticks = ways[index]
            if is_paced:
                own_ms += throttle_ms
                if own_ms > 0:
                    time_ms += own_ms
            elif ticks is None:
                time_ms = max(times_ms[place + 1], time_ms + waits * (throttle_ms + min(own_ms, 0)))
            else:
                is_moved = time_ms != times_ms[place]
                time_ms += max(ticks.gap_ms(own_ms, was_ms[place], throttle_ms, is_moved=is_moved), 0)
            place += 1
            heapreplace(heap, (time_ms, orders[place], index, place))
        if last_ms is not None:
            ring.add(added, last_ms)
        meter.served += served
        meter.requests += requests


def _way(loop: ClosedLoop, connection: Connection) -> tuple[bool, bool, Ticks | None]:
    """Whether a connection is paced, and waits for throttles at all; and what it may have ready when one ends."""
    if not connection.does_wait:
        return False, False, None
    reading = loop.reading_of(connection)
    has_ticks = reading not in {Reading.PACED, Reading.CATCHES_UP}
    return reading is Reading.PACED, True, loop.ticks_of(connection) if has_ticks else None


def lanes_of(connections: Sequence[Connection]) -> list[Lane] | None:
    """The lists of each connection; None unless each request is plain and charges one bucket."""
    found = []
    for connection in connections:
        sent = connection.sent
        if not all(map(_is_plain, sent)):
            return None
        charges = [each[4][0] for each in sent]
        found.append(
            Lane(
                [each[0] for each in sent],
                [each[1] for each in sent],
                [each[2] for each in sent],
                [after[0] - before[0] - before[2] for before, after in pairwise(sent)],
                [charge[1] for charge in charges],
                [inf if charge[3] is None else charge[3] for charge in charges],
            )
        )
    return found


def _is_plain(sent: Sent) -> bool:
    charges = sent[4]
    return sent[5] is Kind.PLAIN and len(charges) == 1 and charges[0][5] is None
