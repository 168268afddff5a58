"""How a broker's log begins: with the broker's own start, when its rings were empty, or in mid-stream.

Each network processor numbers its connections from 0 when the broker starts (`Processor.nextConnectionIndex`), and
the number ends the connection's id: `127.0.0.1:9092-127.0.0.1:5000-0`, in Kafka 4.x with the processor's before it.
Each client numbers its requests, so that a small correlation id is one of a client that came just now. A log that
begins with new clients alone, and soon with a connection 0 of theirs, begins with the broker.

The sign errs on one side: clients that come back to a broker with large correlation ids hide its start, and 12 s more
are uncertain.
"""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

MOST_LINES = 100
WITHIN_MS = 12_000
NEW_CORRELATION_ID = 4
"""A client's request for its topic is often its fourth or fifth, counted from 0; brokers begin with 0 and 1."""


_CUT_MS = 10_000


def cut_gap(log_time_ms: int) -> tuple[int, int]:
    """The gap (epoch ms, the end exclusive) that a line leaves that was cut, so that nobody knows whose request it was.

    Many such lines leave few gaps: one in ten seconds.
    """
    from_ms = log_time_ms // _CUT_MS * _CUT_MS
    return from_ms, from_ms + _CUT_MS


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
        for line in self._lines:
            is_new = line.correlation_id <= NEW_CORRELATION_ID
            if not is_new or line.record_time_ms - self._lines[0].record_time_ms >= WITHIN_MS:
                return False
            if line.connection.endswith("-0"):
                return True
        return False
