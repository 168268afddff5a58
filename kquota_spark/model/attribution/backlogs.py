"""Old records that consumers read again, or late: fetches far behind the end of a partition, after a jump.

A consumer that follows its partitions is near their ends. A backlog begins where the offset of a fetch goes back, or
where the consumer has paused and its lag is larger than before. It ends where the lag is as small as before. A consumer
that falls behind because it is throttled has no jump, and so no backlog.

The log has the offsets of fetches, and with each answer the end of the partition. The tables do not have them, so they
are read from the lines of one bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kquota_spark.model.attribution.counterfactuals import Client, Request


class Position(NamedTuple):
    """Where one fetch of a partition is."""

    topic: str
    """Its name or its id."""
    partition: int
    offset: int
    high_watermark: int | None = None
    """End of the partition; None in the empty answer to a throttled fetch."""


@dataclass(slots=True)
class Backlog:
    """One consumer that reads old records of one partition."""

    client: Client
    begin_ms: int
    back_records: int
    """How far the offset went back; 0 after a pause."""
    lag_records: int
    """The largest distance to the end of the partition."""
    orders: set[int] = field(default_factory=set)
    """Its fetches."""


@dataclass(slots=True)
class _Reading:
    """One connection that reads one partition."""

    connection: int
    offset: int
    until_ms: int
    """When its last fetch and the throttle of that ended, epoch ms."""
    usual_lag: int
    """The largest lag outside backlogs."""
    backlog: Backlog | None = None


_Key = tuple[Client, str, int]


def backlogs(
    requests: Sequence[Request],
    positions: Mapping[int, Sequence[Position]],
    throttles: Mapping[int, int],
    pause_ms: int,
) -> list[Backlog]:
    """The backlogs of consumers, in order of their beginnings.

    Args:
        requests: in order of time.
        positions: by the order of a request; a fetch in a session may have none.
        throttles: ms, by the order of a request.
        pause_ms: time without a fetch and without a throttle from which on a consumer has paused.
    """
    if not positions:
        return []
    found: list[Backlog] = []
    last_ms = {request.connection: request.time_ms for request in requests}
    readings: dict[_Key, dict[int, _Reading]] = {}
    marks: dict[tuple[str, int], int] = {}
    of_connection: dict[int, list[_Reading]] = {}
    for request in requests:
        until_ms = request.time_ms + throttles.get(request.order, 0)
        for position in positions.get(request.order, ()):
            place = position.topic, position.partition
            if position.high_watermark is not None:
                marks[place] = position.high_watermark
            lag = max(marks.get(place, position.offset) - position.offset, 0)
            of_partition = readings.setdefault((request.client, *place), {})
            reading = of_partition.get(request.connection)
            if reading is None:
                reading = _succeeding(of_partition, last_ms, request, position.offset, lag)
                of_partition[request.connection] = reading
                of_connection.setdefault(request.connection, []).append(reading)
            _follow(reading, request, position.offset, lag, pause_ms, found)
        for reading in of_connection.get(request.connection, ()):
            reading.until_ms = max(reading.until_ms, until_ms)
            if reading.backlog is not None:
                reading.backlog.orders.add(request.order)
    return found


def _succeeding(
    of_partition: dict[int, _Reading], last_ms: Mapping[int, int], request: Request, offset: int, lag: int
) -> _Reading:
    """The reading of a new connection, which continues that of the last one that has ended."""
    ended = [each for each in of_partition.values() if last_ms[each.connection] < request.time_ms]
    if not ended:
        return _Reading(request.connection, offset, request.time_ms, lag)
    before = max(ended, key=lambda each: each.until_ms)
    del of_partition[before.connection]
    return _Reading(request.connection, before.offset, before.until_ms, before.usual_lag, before.backlog)


def _follow(
    reading: _Reading, request: Request, offset: int, lag: int, pause_ms: int, found: list[Backlog]
) -> None:
    """Take one fetch into a reading, and begin or end its backlog."""
    back = reading.offset - offset
    has_paused = request.time_ms - reading.until_ms >= pause_ms
    if back > 0 or (has_paused and lag > reading.usual_lag and reading.backlog is None):
        reading.backlog = Backlog(request.client, request.time_ms, max(back, 0), lag)
        found.append(reading.backlog)
    if reading.backlog is None:
        reading.usual_lag = max(reading.usual_lag, lag)
    else:
        reading.backlog.lag_records = max(reading.backlog.lag_records, lag)
        if lag <= reading.usual_lag:
            reading.backlog = None
    reading.offset = offset
