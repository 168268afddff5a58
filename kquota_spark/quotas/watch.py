"""Keep `quota_changes` and `quota_rules` up to date with the source of the quotas, in a thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.formats.quota_files.quota_file import read_quotas
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS, is_ahead
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.leaders import LeaderWatcher
from kquota_spark.quotas.ledger import NAME_LIMIT, Edits, Ledger, mended, timed_alike_ahead
from kquota_spark.quotas.watched_sources import FOLLOWED, Answer, WatchedSource
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.rules_tables import RulesTables
from kquota_spark.store.storage import storage_options

_log = logging.getLogger(__name__)

_COALESCE_S = 0.05
_STOP_S = 30.0
_PAUSE_MS = 60_000
"""Maximum time between two checks that belong to one period, ms."""
_MOST_CHECKS = 100
"""Maximum number of kept periods of checks."""


class Watcher:
    """Watches the quotas of one cluster until stopped; its clock should agree with that of ZooKeeper or the brokers."""

    def __init__(self, settings: Settings, *, clock_ms: Callable[[], int] = now_ms) -> None:
        self._settings = settings
        self._clock_ms = clock_ms
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._source: WatchedSource | None = None
        self._doubted: frozenset[str] = frozenset()
        self._checks_ms: list[int] = []
        self._leaders = LeaderWatcher(settings, clock_ms)
        self.is_stale = False
        """Whether the source did not answer at the start: then only the quotas in the tables are known."""

    @property
    def is_following(self) -> bool:
        """Whether it follows a source that can change; a quota file is read only once."""
        return self._thread is not None or self._leaders.is_running

    def start(self) -> None:
        """Write the first snapshot, then continue in a thread.

        It waits for a source that does not answer. If there is still no answer, it continues with the quotas of an
        earlier run in the tables, marked as known up to that run.

        Raises:
            UserError: the source or the tables cannot be read; one line.
        """
        quotas = self._settings.quotas
        if quotas.source == "file" and not quotas.file:
            raise UserError(
                "quotas.file: missing, expected the path of a quota file because quotas.source is file"
            )
        self._leaders.start()
        self._tables = RulesTables(
            self._settings.tables, self._settings.cluster_id, source=quotas.source, apply_lag_ms=0,
            storage=storage_options(self._settings), now_ms=END_MS if quotas.source == "file" else self._clock_ms(),
        )  # fmt: skip
        if quotas.source == "file":
            found = read_quotas(Path(quotas.file))
            with self._writing():
                self._tables.write_file([*found.changes, *found.ip_changes], self._clock_ms())
            return
        try:
            self._source = source = FOLLOWED[quotas.source](self._settings, self._clock_ms)
            first = self._first_answer(source)
            # Written even without an edit: this repairs the tables after a crash between the writes of the two.
            self._record(source, first, is_first=True)
        except BaseException:
            if self._source is not None:
                self._source.stop()
            self._leaders.stop()
            raise
        self._thread = threading.Thread(target=self._run, args=(source,), name="quota-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the connection, if there are any."""
        self._leaders.stop()
        self._stopping.set()
        if self._source is not None and self._thread is not None:
            self._source.wake()
            self._thread.join(_STOP_S)
            self._source.stop()
            self._thread = None

    def check(self) -> None:
        """Raise the error that ended a thread, if there is one."""
        self._leaders.check()
        if self._error is not None:
            raise self._error

    def poll(self) -> None:
        """Read the source once and record new edits; only after `start`, and not in two threads at once."""
        source = self._source
        if source is None:
            return
        if self._mend():
            with self._writing():
                self._tables.write_rules(None)
        answer = source.changes(self._ledger)
        if answer is not None:
            self._record(source, answer, is_first=False)

    def _open(self, known_through_ms: int | None) -> None:
        """Continue from the edits in the tables."""
        tables, accepts_removal = self._tables, self._settings.quotas.accept_mass_removal
        self._ledger = Ledger(
            tables.changes,
            tables.problems,
            accepts_removal=accepts_removal,
            complete_through_ms=known_through_ms,
        )

    def _mend(self) -> bool:
        """Correct the times of edits that a clock that was ahead recorded; whether there were any."""
        tables, now = self._tables, self._clock_ms()
        if not is_ahead(tables.newest_edit_ms, now):
            return False
        if not self._settings.quotas.accept_mass_removal:
            _require_own_clock(tables, now)
        check_ms = max((each for each in self._checks_ms if each <= now), default=BEGINNING_MS)
        changes = mended(tables.changes, tables.observed_ms, now, check_ms)
        if changes == tables.changes:
            return False
        with self._writing():
            count = tables.mend(changes)
        _log.warning(
            "%d edits are recorded with times ahead of this clock: it was ahead when they were seen, or is behind "
            "now. They are taken to have come between the looks before and now: verdicts there are uncertain", count
        )  # fmt: skip
        self._open(check_ms)
        return True

    def _first_answer(self, source: WatchedSource) -> Answer:
        tables = self._tables
        if not self._mend():
            self._open(tables.known_through_ms)
        found = None
        try:
            source.start()
            found = source.changes(self._ledger)
        except UnreachableError as error:
            if tables.known_through_ms is None:
                raise
            through = _utc(tables.known_through_ms)
            _log.warning("%s; continuing with the quotas known through %s, marked as stale", error, through)
        self.is_stale = found is None
        return found or Answer()

    def _run(self, source: WatchedSource) -> None:
        try:
            while not self._stopping.is_set():
                source.wait()
                # Edits arrive in bursts, and each write of the tables takes all that have arrived.
                if self._stopping.wait(_COALESCE_S):
                    break
                self.poll()
        except BaseException as error:  # handed to the thread that calls check()
            _log.error("the quota watch has ended: %s", type(error).__name__)
            self._error = error

    def _record(self, source: WatchedSource, answer: Answer, *, is_first: bool) -> None:
        """Write the new edits, and the time up to which all edits are known."""
        edits, known_through_ms = answer.edits, answer.known_through_ms
        if known_through_ms is not None:
            self._checks_ms = with_check(self._checks_ms, known_through_ms)
        self._warn(edits, is_complete=known_through_ms is not None)
        self._tables.apply_lag_ms = source.apply_lag_ms
        with self._writing():
            if edits.changes or edits.problems or is_first:
                self._tables.append(edits.changes, edits.problems, self._clock_ms())
                self._tables.write_rules(known_through_ms)
            elif known_through_ms is not None:
                self._tables.write_known_through(known_through_ms)

    def _warn(self, edits: Edits, *, is_complete: bool) -> None:
        doubted = frozenset((*edits.refused, *edits.vanished))
        if new := sorted(doubted - self._doubted):
            what, doubt = "are older than recorded", "Was ZooKeeper's data lost? If what it shows is right"
            if edits.vanished:
                what, doubt = "have lost their quotas at once", "If they were removed on purpose"
            _log.error(
                "%d quota nodes %s (first: %r): the recorded ones are kept, and nothing after them is known. "
                "%s, start again with quotas.accept_mass_removal: true, or kquota watch --accept-removal",
                len(new), what, new[0][:NAME_LIMIT], doubt
            )  # fmt: skip
        if is_complete or doubted:
            self._doubted = doubted
        known_through_ms = self._tables.known_through_ms or 0
        times_ms = [change.latest_ms for change in edits.changes]
        late_ms = known_through_ms - min(times_ms, default=known_through_ms)
        if late_ms > 0 and known_through_ms:
            _log.warning(
                "an edit came %d ms after its time was said to be known: the clocks of this machine and of "
                "ZooKeeper differ, or it could not be read before", late_ms
            )  # fmt: skip

    def _writing(self) -> AbstractContextManager[None]:
        return delta_errors(f"{self._settings.tables}: the quota tables cannot be written")


def with_check(checks_ms: Sequence[int], check_ms: int) -> list[int]:
    """The ends of the periods in which the source was checked without a pause, with one more check, epoch ms.

    A clock that jumps begins another period. So the last check of the right clock is still kept after the correction.
    """
    *before, last = checks_ms or (check_ms,)
    if last <= check_ms <= last + _PAUSE_MS:
        return [*before, check_ms]
    return [*checks_ms, check_ms][-_MOST_CHECKS:]


def _require_own_clock(tables: RulesTables, now_ms: int) -> None:
    """Check that no edit has a future time on which two clocks agreed: such a time is right and must not be replaced.

    Raises:
        UserError: there is such an edit.
    """
    edit = timed_alike_ahead(tables.changes, tables.observed_ms, now_ms)
    if edit is not None:
        entity = str(edit.entity)[:NAME_LIMIT]
        raise UserError(
            f"the clock of this machine is behind: it and ZooKeeper timed an edit of {entity} alike, "
            f"{_utc(edit.changed_at_ms)}, which has not come yet: set it (NTP) and start again. If it is right, both "
            "were ahead: start again with quotas.accept_mass_removal: true, or kquota watch --accept-removal"
        )


def _utc(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_ms / 1_000))
