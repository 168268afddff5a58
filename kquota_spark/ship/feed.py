"""One broker's log on its way to the topic, and its heartbeat."""

from __future__ import annotations

import json
from dataclasses import dataclass

from kquota_spark.ship.selection import LogFile
from kquota_spark.ship.state import ShipState
from kquota_spark.ship.tail import Tail
from kquota_spark.ship.topic import Headers


@dataclass(slots=True)
class Feed:
    """One log on its way.

    Attributes:
        file: which log.
        tail: reads it.
        start: where this run began.
        stored: up to where the brokers have acknowledged every line.
        sent: up to where lines were handed over.
        end_read_at_ms: a time before which every line was sent; None while there is more to read.
        heartbeat_ms: the time that the last heartbeat told.
        half_line_bytes: at the end of the log, waiting for their line feed.
    """

    file: LogFile
    tail: Tail
    start: ShipState
    stored: ShipState
    sent: ShipState
    end_read_at_ms: int | None = None
    heartbeat_ms: int | None = None
    half_line_bytes: int = 0

    @property
    def key(self) -> bytes:
        """The broker id as text."""
        return str(self.file.broker_id).encode("ascii")

    @property
    def headers(self) -> Headers:
        """Of every message of this broker."""
        return [("broker_id", self.key)]

    @property
    def is_missing(self) -> bool:
        """Whether there is no log to read at the moment."""
        return self.tail.is_waiting_for_file

    def is_heartbeat_due(self, interval_ms: int) -> bool:
        """Whether there is something new to tell; never while there is more to read."""
        if self.end_read_at_ms is None or self.heartbeat_ms is None:
            return self.end_read_at_ms is not None
        # A clock that was set back must not silence us until it has caught up.
        return not 0 <= self.end_read_at_ms - self.heartbeat_ms < interval_ms

    def gap(self, lost: tuple[int, int]) -> bytes:
        """The message that lines which this broker wrote between two times (epoch ms) are lost."""
        # A rotated file that vanished while it was read had lines before its last change.
        from_ms = lost[0] if self.heartbeat_ms is None else min(lost[0], self.heartbeat_ms)
        told = {"broker_id": self.file.broker_id, "from_ms": from_ms, "to_ms": lost[1]}
        return json.dumps({"kquota_gap": told}, separators=(",", ":")).encode("ascii")

    def heartbeat(self, *, is_end: bool) -> bytes:
        """The message that every line this broker wrote before a time has been shipped.

        Args:
            is_end: and nothing more will come.
        """
        self.heartbeat_ms = self.end_read_at_ms
        told = {
            "broker_id": self.file.broker_id,
            "time_ms": self.end_read_at_ms,
            "lines": self.stored.lines,
            "excluded": self.stored.excluded,
            "is_end": is_end,
        }
        return json.dumps({"kquota_heartbeat": told}, separators=(",", ":")).encode("ascii")
