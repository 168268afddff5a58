"""The sink of a query: commits what its workers have written, and folds the episodes.

A micro-batch is executed once. The driver receives the names of files, the pieces of episodes and the newest second of
each broker. Each commit carries the query and the number of the micro-batch. So a micro-batch that runs again after a
crash adds only what is missing. If the crash was after `decisions`, the episodes are folded from the committed rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JJavaError

from kquota_spark.audit.gaps.gap_watch import GapWatch
from kquota_spark.audit.own_clock import OwnClock
from kquota_spark.audit.task_reports import TaskReport, TaskReports
from kquota_spark.audit.violations.episodes import pieces_of
from kquota_spark.audit.violations.fold import EpisodeFold
from kquota_spark.audit.violations.judged import Judged, judged_rows
from kquota_spark.checkpoints.checkpoints import LOG, targets_of
from kquota_spark.checkpoints.pinned import Pins
from kquota_spark.checkpoints.runs import Run
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.process.clock import now_ms
from kquota_spark.schema.tables import DECISIONS, REQUESTS, TABLES
from kquota_spark.store.commits import BatchCommits, MicroBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEWEST = "newest_ms"
_QUERY_ID = "sql.streaming.queryId"
"""Local property in which Spark keeps the id of a query, for the thread of that query."""
_DECLARED = {table.name: table for table in TABLES}


class Sink:
    """Commits the micro-batches of one query.

    `counted` has sums of what was written, by name; `newest_ms` is a maximum. Only the query of the log has `gaps`.
    With a `run`, a micro-batch fails if a later run has started.
    `clock` compares the clock of this machine with those of the brokers.
    """

    def __init__(
        self,
        settings: Settings,
        query: str,
        reports: TaskReports,
        notice: Callable[[str], None],
        run: Run | None = None,
    ) -> None:
        self.settings, self.query, self._run = settings, query, run
        self.counted: Counter[str] = Counter()
        self.reports, self._is_first = reports, True
        self._pins = Pins(settings, query, notice)
        self._commits = {
            name: BatchCommits(settings, _DECLARED[name]) for name in targets_of(settings, query)
        }
        self._episodes = EpisodeFold(settings)
        self.clock = OwnClock(notice)
        self.gaps = GapWatch(settings, notice) if query == LOG else None

    def commit(self, rows: DataFrame, number: int) -> None:
        """Run one micro-batch and commit it: the function for `foreachBatch`."""
        context = rows.sparkSession.sparkContext
        query_id = context.getLocalProperty(_QUERY_ID)
        if not query_id:
            # All queries would commit under one name, so the numbers of one would count as those of another.
            raise UserError(
                f"Spark gave no id of the query {self.query} to the thread that commits: unset PYSPARK_PIN_THREAD"
            )
        batch, begun_ms = MicroBatch(query_id, number), now_ms()
        self.require_newest()
        self._pins.pin(context, batch)
        reports = self._executed(rows)
        self.require_newest()  # the tasks may have taken long, or this process may have been suspended
        # Only the first micro-batch of a run can have been committed before.
        done = {name for name, commits in self._commits.items() if self._is_first and commits.has(batch)}
        self._is_first = False
        for name, commits in self._commits.items():
            parts = [part for each in reports if each.table == name for part in each.parts]
            if name in done:
                commits.discard(parts)
            elif parts:
                commits.require_there(parts)
                commits.add(parts, batch)
            if name == REQUESTS.name and self.gaps is not None:
                there = commits.paths_of(batch) if name in done else [part.path for part in parts]
                # The next micro-batch is the earliest that judges the seconds of these lines.
                self.gaps.follow(reports, number, there, commits.version)
        # The rules may have changed since then, so the committed decisions count.
        decided = self._commits[DECISIONS.name].rows_of(batch) if DECISIONS.name in done else None
        if decided is None:
            judged = _reported_judged(reports)
        else:
            judged = judged_rows(decided, self.settings.stream.episode_gap)
        self._episodes.fold(judged, batch, begun_ms)
        self.clock.add(reports, begun_ms)
        self._count(reports)

    def require_newest(self) -> None:
        """Check that no later run has started.

        Raises:
            UserError: a later run has started.
        """
        if self._run is not None:
            self._run.require_newest()

    def _executed(self, rows: DataFrame) -> list[TaskReport]:
        try:
            rows.collect()
        except Py4JJavaError as error:
            # Spark searches the text of the error for an interruption. Its regular expression overflows the stack on
            # Java's long traces.
            raise RuntimeError(str(error.java_exception.toString())) from None
        return self.reports.take()

    def _count(self, reports: Iterable[TaskReport]) -> None:
        for each in reports:
            for name, value in each.counts.items():
                self.counted[name] = (
                    max(value, self.counted[name]) if name == _NEWEST else value + self.counted[name]
                )


def _reported_judged(reports: Iterable[TaskReport]) -> Judged:
    of_decisions = [each for each in reports if each.table == DECISIONS.name]
    pieces = [pa.ipc.open_stream(each.pieces).read_all() for each in of_decisions]
    none = () if pieces else (pieces_of(DECISIONS.arrow_schema().empty_table(), 0),)
    return Judged(
        pa.concat_tables([*pieces, *none]), [seconds for each in of_decisions for seconds in each.seconds]
    )
