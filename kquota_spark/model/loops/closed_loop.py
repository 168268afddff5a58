"""The closed loop: recorded requests under other quotas, each sent when its connection is free again.

A broker mutes a throttled connection (KIP-219, Kafka 2.0). So a throttle moves all later requests of its connection,
and these change what the broker measures for everyone in the bucket. The time between two requests of a connection is
the throttle of the first and the connection's own pace. The pace stays, the throttle is computed anew:

    own pace = recorded gap - throttle under the recorded quotas, by replay
    new gap  = own pace + throttle under the tried quotas, at least 0

With the same quotas each request keeps its recorded time exactly, also where clocks make a pace negative.

A client that sends by the clock has its next request ready when a long throttle ends. Then the gap hides its own pace.
A connection may show that (`paces`). Such a gap is then the usual gap without throttles, or the throttle and the usual
time after throttles. The longer one counts.

* All connections of the buckets run in one order of time. A request that charges two buckets, for example one of bytes
  and one of thread time, waits for the longer throttle, as at the broker.
* A pipelining client has requests in the socket when its connection is muted. They follow at once, so their pace is
  about 0, and the formula holds for them too. The same goes for acks=0, and for clients that ignore the throttle.
* A connection that does not wait (`paces`) keeps its recorded times; the throttles count.
* A throttled fetch came back empty. Under another limit it fetches what the next answered fetch of its connection got.
  If that is throttled, its bytes are un-recorded and the client fetches again after the throttle.

A connection's first request keeps its recorded time. A request keeps the limit of its recorded time.

Under a higher limit a connection has sent all that was recorded before the period ends. If it was active at the end of
the period, it continues with the second half of its requests at the same paces. The same quotas add nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from kquota_spark.model.loops.clocks import Clock, Ticks
from kquota_spark.model.loops.meters import Meter
from kquota_spark.model.measure.combining import fetch_max_bytes

_MOST_ADDED = 4
"""Maximum number of requests that a connection adds, for each recorded one."""
_RETRY_MS = 1
"""Own pace (ms) of a fetch that is sent again after a throttle, where no such fetch was recorded."""


class Reading(Enum):
    """What a client does with the time that a throttle takes."""

    USUAL = "what the connection's record shows, else PACED"
    PACED = "it is lost: every later request moves"
    CATCHES_UP = "it is made up for: requests keep their recorded times unless the connection is muted"
    EAGER = "it is used: the next request is ready when the throttle ends, and the client continues"


_CONTINUING = (Reading.USUAL, Reading.EAGER)


class Kind(IntEnum):
    """How the loop treats a request."""

    PLAIN = 0
    """Charged whatever the verdict is: a produce, any request without bytes, a fetch under its recorded limit."""
    FETCH = 1
    """An answered fetch under another limit."""
    THROTTLED_FETCH = 2
    """A throttled fetch under another limit."""


class Charge(NamedTuple):
    """What a request adds to one bucket (bytes, or microseconds of threads), and the tried limit on it.

    `inferred_ms` is the recorded throttle of a throttled fetch under its recorded limit; None for all others.
    """

    meter: int
    amount: int
    at_most: int
    """The upper bound of the amount; equal to it for bytes."""
    limit_per_s: float | None
    is_fetch: bool = False
    inferred_ms: int | None = None


class Sent(NamedTuple):
    """One recorded request of a connection.

    `throttle_ms` is its throttle under the recorded quotas by replay, the longest of its buckets. `at_most_ms` is the
    same by the upper bounds of the amounts.
    """

    time_ms: int
    order: int
    """Its place among all recorded requests: it decides between requests of the same millisecond."""
    throttle_ms: int
    at_most_ms: int
    charges: tuple[Charge, ...]
    kind: Kind = Kind.PLAIN


@dataclass(frozen=True, slots=True)
class Connection:
    """The recorded requests of one connection in order, and whether a throttle delays the next one.

    `clock` is None if the record does not show that the client sends by the clock. `continues` is true if it was active
    at the end of the period. `pace_ms` is its usual own pace, that of its last request too.
    """

    sent: Sequence[Sent]
    does_wait: bool = True
    clock: Clock | None = None
    continues: bool = False
    pace_ms: int = 0

    def recorded(self, place: int) -> int:
        """The place of the recorded request that is sent at a place beyond the record: of the second half."""
        count = len(self.sent)
        return place if place < count else count // 2 + (place - count) % (count - count // 2)

    def under(self, factor: float) -> Connection:
        """The same connection under tried limits that are so many times as high."""
        return replace(self, sent=[_under(sent, factor) for sent in self.sent])


def _under(sent: Sent, factor: float) -> Sent:
    return sent._replace(
        charges=tuple(
            charge if charge.limit_per_s is None else charge._replace(limit_per_s=factor * charge.limit_per_s)
            for charge in sent.charges
        )
    )


@dataclass(slots=True)
class ClosedLoop:
    """One run. `times_ms` has the new time of each request by its order; deferred requests are missing.

    It can be None where nobody reads it. `has_added` is true if some connection continued beyond its record.

    Args:
        connections: with at least one request each, all of one broker.
        meters: the buckets, by the number in `Charge`; they must contain what came before.
        reading: what clients do with lost time.
        is_at_most: use the upper bounds of the amounts.
    """

    connections: Sequence[Connection]
    meters: Sequence[Meter]
    reading: Reading = Reading.USUAL
    is_at_most: bool = False
    times_ms: dict[int, int] | None = field(default_factory=dict)
    has_added: bool = False
    until_ms: int = 0
    """End of the period, epoch ms."""
    _ticks: dict[int, Ticks] = field(default_factory=dict)

    def run(self, until_ms: int, counts_from_ms: int = 0) -> None:
        """Send all requests that can be sent before `until_ms` (epoch ms); the others are deferred.

        Args:
            until_ms: end of the period, epoch ms, exclusive.
            counts_from_ms: the meters count what is sent from this time on, epoch ms.
        """
        self.until_ms, before_ms = until_ms, min(counts_from_ms, until_ms)
        heap = self._begin()
        if counts_from_ms:
            self._send_before(heap, before_ms)
            for meter in self.meters:
                meter.forget_counts()
        self._send_before(heap, until_ms)

    def _begin(self) -> list[tuple[int, int, int, int]]:
        heap = [
            (each.sent[0].time_ms, each.sent[0].order, index, 0)
            for index, each in enumerate(self.connections)
        ]
        heapify(heap)
        return heap

    def _send_before(self, heap: list[tuple[int, int, int, int]], end_ms: int) -> None:
        times_ms, is_at_most = self.times_ms, self.is_at_most
        ways = [self._way(each) for each in self.connections]
        while heap and heap[0][0] < end_ms:
            time_ms, order, index, place = heap[0]
            connection = self.connections[index]
            if times_ms is not None and place < len(connection.sent):
                times_ms[order] = time_ms
            end, reading = ways[index]
            if place < end:  # most requests by far: the same steps with fewer calls
                sent, after = connection.sent[place], connection.sent[place + 1]
                throttle_ms = self._charge(sent, time_ms, is_added=False)
                was_ms = sent[3] if is_at_most else sent[2]
                own_ms = after[0] - sent[0] - was_ms
                if reading is Reading.PACED:
                    pace_ms = own_ms + throttle_ms
                    time_ms += pace_ms if pace_ms > 0 else 0
                elif reading is Reading.CATCHES_UP:
                    time_ms = max(after[0], time_ms + throttle_ms + (own_ms if own_ms < 0 else 0))
                else:
                    time_ms = self._next_ms(connection, sent, after[0], time_ms, throttle_ms)
                heapreplace(heap, (time_ms, after[1], index, place + 1))
                continue
            self.follow(heap)

    def follow(self, heap: list[tuple[int, int, int, int]]) -> None:
        """Send the first request of a heap, and put the next one of its connection there.

        Args:
            heap: time (epoch ms), order, connection and place of the next request of each connection.
        """
        time_ms, _, index, place = heap[0]
        connection = self.connections[index]
        following = self._send(connection, place, time_ms)
        if following is None:
            heappop(heap)
            return
        place, time_ms = following
        heapreplace(heap, (time_ms, connection.sent[connection.recorded(place)].order, index, place))

    def ticks_of(self, connection: Connection) -> Ticks:
        """What a connection may have ready when a throttle ends."""
        found = self._ticks.get(id(connection))
        if found is None:
            clock = connection.clock if self.reading is Reading.USUAL else None
            found = self._ticks[id(connection)] = Ticks(clock)
        return found

    def reading_of(self, connection: Connection) -> Reading:
        """How a connection takes a throttle: as `PACED` too if its record does not show anything else."""
        is_usual = self.reading is Reading.USUAL and connection.clock is None
        return Reading.PACED if is_usual else self.reading

    def _way(self, connection: Connection) -> tuple[int, Reading]:
        """How many requests of a connection are plain and followed by another, and how it takes a throttle."""
        is_plain = connection.does_wait and all(sent[5] is Kind.PLAIN for sent in connection.sent)
        return len(connection.sent) - 1 if is_plain else 0, self.reading_of(connection)

    def _send(self, connection: Connection, place: int, time_ms: int) -> tuple[int, int] | None:
        """Send one request; return the place of the next one of its connection, and its time.

        Places beyond the record are of requests that a connection adds.
        """
        sent, is_added = connection.sent[connection.recorded(place)], place >= len(connection.sent)
        self.has_added |= is_added
        if sent.kind is not Kind.PLAIN:
            return self._fetch(connection, place, time_ms)
        return self._next(connection, place, time_ms, self._charge(sent, time_ms, is_added=is_added))

    def _charge(self, sent: Sent, time_ms: int, *, is_added: bool) -> int:
        """Charge a request whatever the verdict is; return its longest throttle (ms)."""
        throttle_ms = 0
        for number, amount, at_most, limit, _, inferred_ms in sent[4]:
            meter = self.meters[number]
            found = meter.measure(at_most if self.is_at_most else amount, time_ms, limit)
            if inferred_ms is not None:
                found = inferred_ms
            if found or is_added:
                meter.count(found, time_ms, amount, is_added=is_added)
            else:
                meter.requests += 1
                meter.served += amount
            throttle_ms = max(throttle_ms, found)
        return throttle_ms

    def _fetch(self, connection: Connection, place: int, time_ms: int) -> tuple[int, int] | None:
        """Send a fetch under another limit than the recorded one: it is delivered, or throttled and un-recorded."""
        own = connection.recorded(place)
        sent, is_added = connection.sent[own], place >= len(connection.sent)
        delivery = own if sent.kind is Kind.FETCH else _delivery(connection.sent, own)
        size = 0 if delivery is None else _fetched(connection.sent[delivery])
        for charge in sent.charges:
            if charge.is_fetch:  # so that a fetch that is larger than an empty bucket can pass at all
                size = fetch_max_bytes(size, charge.limit_per_s, self.meters[charge.meter].ring.config)
        throttles = []
        for meter, amount, at_most, limit, is_fetch, _ in sent.charges:
            charged = size if is_fetch else (at_most if self.is_at_most else amount)
            throttles.append(self.meters[meter].measure(charged, time_ms, limit))
        throttle_ms = max(throttles)
        for charge, found in zip(sent.charges, throttles, strict=True):
            meter_of = self.meters[charge.meter]
            got = 0 if throttle_ms else size
            served = got if charge.is_fetch else charge.amount
            meter_of.count(found, time_ms, served, is_added=is_added)
            if charge.is_fetch and throttle_ms:
                meter_of.ring.record(-size, time_ms)
        if not throttle_ms:
            delivered = place if delivery is None else place - own + delivery
            return self._next(connection, delivered, time_ms, 0)
        if own != delivery or not connection.does_wait:
            return self._next(connection, place, time_ms, throttle_ms)
        return place, time_ms + throttle_ms + _RETRY_MS

    def _next(
        self, connection: Connection, place: int, time_ms: int, throttle_ms: int
    ) -> tuple[int, int] | None:
        following, count = place + 1, len(connection.sent)
        is_added = following >= count
        continues = connection.continues and connection.does_wait and self.reading in _CONTINUING
        if is_added and not (continues and following < (1 + _MOST_ADDED) * count):
            return None
        own, after = connection.recorded(place), connection.recorded(following)
        sent, next_ms = connection.sent[own], connection.sent[after].time_ms
        if is_added and after <= own:  # after the last recorded request, and after the period
            recorded_ms = sent.at_most_ms if self.is_at_most else sent.throttle_ms
            next_ms = max(self.until_ms, sent.time_ms + recorded_ms + connection.pace_ms)
        if not connection.does_wait:
            return following, max(next_ms, time_ms)
        is_again = place >= count
        found_ms = self._next_ms(connection, sent, next_ms, time_ms, throttle_ms, is_again=is_again)
        return following, max(found_ms, time_ms + is_added)

    def _next_ms(
        self,
        connection: Connection,
        sent: Sent,
        next_ms: int,
        time_ms: int,
        throttle_ms: int,
        *,
        is_again: bool = False,
    ) -> int:
        """The new time of a request that was recorded at `next_ms`, after one that is sent at `time_ms`."""
        recorded_ms = sent.at_most_ms if self.is_at_most else sent.throttle_ms
        own_ms = next_ms - sent.time_ms - recorded_ms
        reading = self.reading_of(connection)
        if reading is Reading.CATCHES_UP:
            return max(next_ms, time_ms + throttle_ms + min(own_ms, 0))
        if reading is Reading.PACED:
            return time_ms + max(own_ms + throttle_ms, 0)
        return time_ms + max(
            self.ticks_of(connection).gap_ms(
                own_ms, recorded_ms, throttle_ms, is_moved=is_again or time_ms != sent.time_ms
            ),
            0,
        )


def _fetched(sent: Sent) -> int:
    """The bytes of an answered fetch."""
    return sum(charge.amount for charge in sent.charges if charge.is_fetch)


def _delivery(sent: Sequence[Sent], place: int) -> int | None:
    """The place of the next answered fetch; None if there is none."""
    for index in range(place + 1, len(sent)):
        if sent[index].kind is Kind.FETCH:
            return index
    return None
