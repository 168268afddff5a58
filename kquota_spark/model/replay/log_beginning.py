"""How a broker's log begins: with the broker's own start, when its rings were empty, or in mid-stream.

Each network processor numbers its connections from 0 when the broker starts (`Processor.nextConnectionIndex`), and
the number ends the connection's id: `127.0.0.1:9092-127.0.0.1:5000-0`, in Kafka 4.x with the processor's before it.
Each client numbers its requests, so that a small correlation id is one of a client that came just now. A log that
begins with new clients alone, and soon with a connection 0 of theirs, begins with the broker.

The sign errs on one side: clients that come back to a broker with large correlation ids hide its start, and 12 s more
are uncertain.

The same sign in mid-log, after a pause, is a restart of the broker: its rings are empty, the replay's are not. What
follows is uncertain until no ring holds what came before. A connection 0 alone may be one that was quiet for long, or
that of a processor which nobody had used. So it counts only on a listener that had a later connection before, which its
processors get only after each had its first; and not a line of anybody else may stand between the pause and it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

MOST_LINES = 100
WITHIN_MS = 12_000
NEW_CORRELATION_ID = 4
"""A client's request for its topic is often its fourth or fifth, counted from 0; brokers begin with 0 and 1."""


PAUSE_MS = 1_000
"""A broker takes longer to start."""
CUT_MS, CUT_BEFORE_MS = 10_000, 1_000
"""Longest gap of lines that were cut, and how long before its line a request may have been recorded."""


def cut_gap(log_time_ms: int) -> tuple[int, int]:
    """The gap (epoch ms, the end exclusive) that a line leaves that was cut, so that nobody knows whose request it was.

    It begins shortly before the line: what came earlier may be judged already. It ends with the ten seconds of the
    line, so that many such lines in order leave one gap in ten seconds, however they are cut into micro-batches.
    """
    from_ms = log_time_ms // 1_000 * 1_000 - CUT_BEFORE_MS
    return from_ms, (log_time_ms // CUT_MS + 1) * CUT_MS


class FirstLine(NamedTuple):
    """A line of the log, in the order in which the rule takes them."""

    record_time_ms: int
    correlation_id: int
    connection: str


class LogBeginning:
    """The first lines of one broker's log, in whatever order they are added.

    A controller's copies of forwarded requests have the correlation id of another connection: they say nothing.
    """

    __slots__ = ("_lines", "complete_from_ms")

    def __init__(self) -> None:
        self._lines: list[FirstLine] = []
        self.complete_from_ms: int | None = None
        """From when on the log has all lines: its earliest log time; what was answered before is not in it."""

    def complete_from(self, log_time_ms: int) -> None:
        """Take note of a line of this time, or a shipper's word for it."""
        if self.complete_from_ms is None or log_time_ms < self.complete_from_ms:
            self.complete_from_ms = log_time_ms

    def add(self, record_time_ms: int, correlation_id: int, connection: str) -> None:
        """Take a line that the broker did not get forwarded."""
        lines = self._lines
        if len(lines) == MOST_LINES and record_time_ms > lines[-1][0]:
            return
        insort(lines, FirstLine(record_time_ms, correlation_id, connection))
        del lines[MOST_LINES:]

    @property
    def is_broker_start(self) -> bool:
        """Whether the broker started with it."""
        return first_connection(self._lines) is not None


def first_connection(lines: Sequence[FirstLine]) -> str | None:
    """The connection 0 among new clients alone with which the lines begin, in order of time; None if there is none."""
    for line in lines:
        is_new = line.correlation_id <= NEW_CORRELATION_ID
        if not is_new or line.record_time_ms - lines[0].record_time_ms >= WITHIN_MS:
            return None
        if is_first(line.connection):
            return line.connection
    return None


def is_first(connection: str) -> bool:
    """Whether it is the first one of its processor."""
    return connection.endswith("-0")


def listener_of(connection: str) -> str:
    """The broker's end of a connection: the address and port of a listener."""
    return connection.partition("-")[0]


class StartSign(NamedTuple):
    """Lines of one broker that look like its start.

    Attributes:
        first_ms: time of the first of them.
        before_ms: time of the last line before them; None if they are the first ones known.
        listener: of the connection 0.
        is_later: whether the lines before them had a later connection on it.
    """

    first_ms: int
    before_ms: int | None
    listener: str
    is_later: bool


class BrokerLines(NamedTuple):
    """What some lines of one broker tell of restarts; `later` are listeners with later connections than the first."""

    broker_id: int
    newest_ms: int
    later: Sequence[str]
    signs: Sequence[StartSign]


class Restarts:
    """Finds restarts of brokers in their lines, told part by part in order of time."""

    def __init__(self) -> None:
        self._newest_ms: dict[int, int] = {}
        self._later: set[tuple[int, str]] = set()

    def add(self, lines: BrokerLines) -> list[tuple[int, int]]:
        """Of each restart the time after the last line before it, and that of the first line after it."""
        broker_id, newest_ms, later, signs = lines
        found = []
        for sign in signs:
            # Lines that come a second time, or late, follow newer ones: there was no pause before them.
            known_ms = [ms for ms in (sign.before_ms, self._newest_ms.get(broker_id)) if ms is not None]
            is_later = sign.is_later or (broker_id, sign.listener) in self._later
            if known_ms and is_later and sign.first_ms - max(known_ms) >= PAUSE_MS:
                found.append((max(known_ms) + 1, sign.first_ms))
        self._newest_ms[broker_id] = max(newest_ms, self._newest_ms.get(broker_id, newest_ms))
        self._later.update((broker_id, listener) for listener in later)
        return found
