"""How a broker's log begins: with the start of the broker, when its rings were empty, or while it was running.

Each network processor numbers its connections from 0 when the broker starts (`Processor.nextConnectionIndex`). The
connection's id ends with this number: `127.0.0.1:9092-127.0.0.1:5000-0`, in Kafka 4.x with the processor's number
before it. Each client numbers its requests, so a small correlation id belongs to a client that has just connected. If
a log begins only with new clients, and one of them soon has a connection 0, it begins with the broker.

This sign can be wrong in one direction only: clients that reconnect with large correlation ids hide a start. Then 12 s
more are uncertain.

The same sign in the middle of a log, after a pause, is a restart of the broker: its rings are empty, the replay's are
not. Verdicts are uncertain until no ring contains anything from before. A connection 0 alone may have been quiet for a
long time, or belong to a processor that was never used. So it counts only on a listener that had a later connection
before: processors get one only after each had its first. Also, only lines of new clients may be between the pause and
the connection 0.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

MOST_LINES = 100
WITHIN_MS = 12_000
NEW_CORRELATION_ID = 4
"""Largest correlation id of a new client, counted from 0.

A client's request for its topic is often its fourth or fifth; brokers begin with 0 and 1.
"""


PAUSE_MS = 1_000
"""Shortest pause (ms) before a restart: a broker takes longer to start."""
CUT_MS, CUT_BEFORE_MS = 10_000, 1_000
"""Longest gap (ms) that cut lines leave, and how long (ms) before its line a request may have been recorded."""


def cut_gap(log_time_ms: int) -> tuple[int, int]:
    """The gap (epoch ms, the end exclusive) that a cut line leaves: it is unknown which client sent the request.

    The gap begins shortly before the line, because earlier requests may be judged already. It ends when the ten seconds
    that contain the line end. So many such lines in order leave one gap per ten seconds, in whatever micro-batches.
    """
    from_ms = log_time_ms // 1_000 * 1_000 - CUT_BEFORE_MS
    return from_ms, (log_time_ms // CUT_MS + 1) * CUT_MS


class FirstLine(NamedTuple):
    """A line of the log; the field order is the order in which the rule reads lines."""

    record_time_ms: int
    correlation_id: int
    connection: str


class LogBeginning:
    """The first lines of one broker's log; they may be added in any order.

    A controller's copies of forwarded requests must not be added: they have the correlation id of another connection.
    """

    __slots__ = ("_lines", "complete_from_ms")

    def __init__(self) -> None:
        self._lines: list[FirstLine] = []
        self.complete_from_ms: int | None = None
        """Time (epoch ms) from which the log has all lines: its earliest log time. Earlier requests are not in it."""

    def complete_from(self, log_time_ms: int) -> None:
        """Record that the log has a line of this time (epoch ms), or that a shipper reports it complete from then."""
        if self.complete_from_ms is None or log_time_ms < self.complete_from_ms:
            self.complete_from_ms = log_time_ms

    def add(self, record_time_ms: int, correlation_id: int, connection: str) -> None:
        """Add a line of a request that was not forwarded to the broker."""
        lines = self._lines
        if len(lines) == MOST_LINES and record_time_ms > lines[-1][0]:
            return
        insort(lines, FirstLine(record_time_ms, correlation_id, connection))
        del lines[MOST_LINES:]

    @property
    def is_broker_start(self) -> bool:
        """Whether the log begins with the start of the broker."""
        return first_connection(self._lines) is not None


def first_connection(lines: Sequence[FirstLine]) -> str | None:
    """The connection 0 with which the lines begin, with only new clients before it; None if there is none.

    The lines are in order of time.
    """
    for line in lines:
        is_new = line.correlation_id <= NEW_CORRELATION_ID
        if not is_new or line.record_time_ms - lines[0].record_time_ms >= WITHIN_MS:
            return None
        if is_first(line.connection):
            return line.connection
    return None


def is_first(connection: str) -> bool:
    """Whether a connection is the first one of its processor."""
    return connection.endswith("-0")


def listener_of(connection: str) -> str:
    """The broker's end of a connection: the address and port of a listener."""
    return connection.partition("-")[0]


class StartSign(NamedTuple):
    """Lines of one broker that may be its start.

    Attributes:
        first_ms: time of the first of these lines, epoch ms.
        before_ms: time of the last line before them, epoch ms; None if they are the first known lines.
        listener: listener of the connection 0.
        is_later: whether the lines before them had a later connection on this listener.
    """

    first_ms: int
    before_ms: int | None
    listener: str
    is_later: bool


class BrokerLines(NamedTuple):
    """Signs of restarts in some lines of one broker; `later` are listeners with later connections than the first."""

    broker_id: int
    newest_ms: int
    later: Sequence[str]
    signs: Sequence[StartSign]


class Restarts:
    """Finds restarts of brokers in their lines, which are added part by part in order of time."""

    def __init__(self) -> None:
        self._newest_ms: dict[int, int] = {}
        self._later: set[tuple[int, str]] = set()

    def add(self, lines: BrokerLines) -> list[tuple[int, int]]:
        """The restarts that these lines show, each as a period (epoch ms).

        It begins after the last line before the restart, and ends with the first line after it.
        """
        broker_id, newest_ms, later, signs = lines
        found = []
        for sign in signs:
            # Lines that arrive again or late come after newer ones, so there was no pause before them.
            known_ms = [ms for ms in (sign.before_ms, self._newest_ms.get(broker_id)) if ms is not None]
            is_later = sign.is_later or (broker_id, sign.listener) in self._later
            if known_ms and is_later and sign.first_ms - max(known_ms) >= PAUSE_MS:
                found.append((max(known_ms) + 1, sign.first_ms))
        self._newest_ms[broker_id] = max(newest_ms, self._newest_ms.get(broker_id, newest_ms))
        self._later.update((broker_id, listener) for listener in later)
        return found
