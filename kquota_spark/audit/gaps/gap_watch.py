"""Decides when the driver checks for gaps: at its start, and when a micro-batch may have written one.

If a crash prevents the check after a micro-batch, the next start finds its gaps. A check in a micro-batch opens only
files that this run has written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from kquota_spark.audit.gaps.gap_rows import LogGap
from kquota_spark.audit.gaps.log_gaps import NewFiles, record_gaps
from kquota_spark.checkpoints.checkpoints import KEPT_BATCHES
from kquota_spark.config.settings import Settings
from kquota_spark.model.replay.log_beginning import BrokerLines, Restarts
from kquota_spark.schema.gap_tables import BROKER_RESTART

_NOTED_EVERY = KEPT_BATCHES - 2
"""Maximum micro-batches between two checks: the checkpoint still has all of them, and a start has few to check."""
_newest_ms = attrgetter("newest_ms")


class WrittenLines(Protocol):
    """The report of a task about the lines that it has written."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers by name: `gaps`, messages of shippers that lines are lost, and `cut`, lines that were cut."""

    @property
    def brokers(self) -> Iterable[int]:
        """Brokers with a request, not counting requests out of time."""

    @property
    def beating(self) -> Iterable[int]:
        """Brokers with a heartbeat, not counting heartbeats out of time."""

    @property
    def lines(self) -> Iterable[BrokerLines]:
        """Signs of restarts in the lines."""

    @property
    def spans(self) -> Iterable[tuple[str, int, int, int, int]]:
        """Topic, partition, first and last offset, and number of lines."""


class GapWatch:
    """Checks for gaps at the driver's start, and when a micro-batch gives a reason."""

    def __init__(self, settings: Settings, notice: Callable[[str], None]) -> None:
        self._settings, self._notice = settings, notice
        self._restarts = Restarts()
        self.on_restart: Callable[[], None] = lambda: None
        """Called when a broker has restarted, perhaps with other settings."""
        self._seen: set[tuple[int, bool]] = set()
        """Brokers with known lines, each with True for requests and False for heartbeats."""
        self._since_noted: list[str] = []
        self._not_noted = 0
        self._next: dict[tuple[str, int], int] = {}
        self._recording = threading.Lock()

    def record(self, new_files: NewFiles | None = None) -> None:
        """Write the new gaps, and print a line for each cause."""
        with self._recording:
            for note in record_gaps(self._settings, new_files):
                self._notice(note)
        if new_files is not None and new_files.restarts:
            self.on_restart()

    def follow(
        self,
        reports: Iterable[WrittenLines],
        number: int,
        paths: Sequence[str] | None,
        version: Callable[[], int],
    ) -> None:
        """Call `record` after lines of a new broker, lost or cut lines, offsets without a line, or a restart.

        Args:
            reports: reports of the tasks of a micro-batch.
            number: number of the micro-batch.
            paths: its files in `requests`; None if the log of the table no longer names them.
            version: returns the version of the table with these files.
        """
        seen = {(broker_id, False) for each in reports for broker_id in each.beating}
        seen |= {(broker_id, True) for each in reports for broker_id in each.brokers}
        has_gaps = any(each.counts.get("gaps") or each.counts.get("cut") for each in reports)
        is_short = self._is_short([span for each in reports for span in each.spans])
        restarts = [
            LogGap(lines.broker_id, *around, BROKER_RESTART)
            for lines in sorted((lines for each in reports for lines in each.lines), key=_newest_ms)
            for around in self._restarts.add(lines)
        ]
        self._since_noted += paths or ()
        self._not_noted += 1
        has_rows = has_gaps or not seen <= self._seen
        # The fewer micro-batches are unchecked, the faster the next start is.
        if has_rows or is_short or restarts or self._not_noted >= _NOTED_EVERY:
            self._seen |= seen
            # The start of this run has checked the rows that were committed before it.
            rows = (paths or ()) if has_rows else ()
            offsets = () if not is_short else None if paths is None else self._since_noted
            self.record(NewFiles(number, rows, offsets, version(), restarts))
            self._since_noted, self._not_noted = [], 0

    def _is_short(self, spans: Iterable[tuple[str, int, int, int, int]]) -> bool:
        """Whether a partition lacks offsets, or may lack some between this micro-batch and the one before."""
        is_short = False
        by_place = groupby(sorted(spans), key=lambda span: span[:2])
        for (topic, partition), found in by_place:
            for _, _, first, last, count in found:
                is_short |= first != self._next.get((topic, partition)) or last - first + 1 != count
                self._next[topic, partition] = last + 1
        return is_short
