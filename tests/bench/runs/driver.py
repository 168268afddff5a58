"""`python -m tests.bench.runs.driver`: what a micro-batch costs the driver by tasks and brokers. 2 minutes.

Each task of a stage writes one file per table. The driver gets their names and figures as reports, as Spark's
accumulator has them, commits the files of three tables, folds the seconds of the brokers and watches for gaps.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from kquota_spark.audit.gaps.gap_watch import GapWatch
from kquota_spark.audit.task_reports import Span, TaskReport, decoded, encoded
from kquota_spark.audit.violations.episodes import pieces_of
from kquota_spark.audit.violations.fold import EpisodeFold
from kquota_spark.audit.violations.judged import Judged, Seconds
from kquota_spark.config.settings import Settings
from kquota_spark.schema.columns import Table
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.creation import create_tables
from kquota_spark.store.parts import Part
from tests.bench.report import Report, say, spread
from tests.support.tables.old_tables import parts_of
from tests.support.tables.table_rows import T0_MS, decision, request, usage

CASES = ((2, 3), (16, 10), (160, 100), (640, 400))
"""Tasks of a stage, and brokers."""
ROUNDS = int(os.environ.get("BENCH_BATCHES", "15"))
_ROWS = {REQUESTS: request(0), USAGE: usage(), DECISIONS: decision()}
_COLUMNS = {
    "tasks": "tasks of a stage",
    "brokers": "brokers",
    "reports_kb": "reports, kB",
    "log_kb": "entries of the logs, kB",
    "cpu_ms": "CPU of the driver, ms (range)",
    "wall_ms": "a micro-batch, ms (range)",
}


def main() -> int:
    """Print the figures of each case."""
    with Report("driver", _COLUMNS) as report:
        for tasks, brokers in CASES:
            say(f"{tasks} tasks, {brokers} brokers")
            with tempfile.TemporaryDirectory(prefix="kquota-bench-") as name:
                driver = _Driver(Path(name), tasks, brokers)
                driver.run(0)  # opens the tables
                driver.cpu_ms.clear()
                driver.wall_ms.clear()
                for number in range(1, ROUNDS + 1):
                    driver.run(number)
                report.add(
                    {
                        "tasks": str(tasks),
                        "brokers": str(brokers),
                        "reports_kb": driver.reports_bytes / 1_000,
                        "log_kb": driver.log_bytes / 1_000,
                        "cpu_ms": spread(driver.cpu_ms),
                        "wall_ms": spread(driver.wall_ms),
                    }
                )
    return 0


class _Driver:
    """The driver's part of micro-batches in which every task has written a file of each table."""

    def __init__(self, root: Path, tasks: int, brokers: int) -> None:
        self._settings = Settings(
            cluster_id="demo", tables=str(root / "tables"), checkpoints=str(root / "checkpoints")
        )
        create_tables(self._settings)
        self._tasks, self._brokers = tasks, brokers
        self._commits = {table: BatchCommits(self._settings, table) for table in _ROWS}
        self._fold, self._gaps = EpisodeFold(self._settings), GapWatch(self._settings, say)
        self.cpu_ms, self.wall_ms = list[float](), list[float]()
        self.reports_bytes = self.log_bytes = 0

    def run(self, number: int) -> None:
        """Write the files of a micro-batch, then do and time what the driver does."""
        files = {table: [*parts_of(self._settings, table, row, self._tasks)] for table, row in _ROWS.items()}
        reported = [encoded(report) for report in self._reports(files, number)]
        self.reports_bytes = sum(map(len, reported))
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        self._committed([decoded(text) for text in reported], number)
        self.cpu_ms.append(1_000 * (time.process_time() - cpu_s))
        self.wall_ms.append(1_000 * (time.perf_counter() - wall_s))
        self.log_bytes = sum(
            (Path(self._settings.tables) / table.name / "_delta_log" / f"{commits.version():020}.json")
            .stat()
            .st_size
            for table, commits in self._commits.items()
        )

    def _committed(self, reports: list[TaskReport], number: int) -> None:
        batch = MicroBatch("query", number)
        for table, commits in self._commits.items():
            parts = [part for each in reports if each.table == table.name for part in each.parts]
            commits.add(parts, batch)
            if table is REQUESTS:
                self._gaps.follow(reports, number, [part.path for part in parts], commits.version)
        seconds = [each for report in reports for each in report.seconds]
        none = pieces_of(DECISIONS.arrow_schema().empty_table(), 0)
        self._fold.fold(Judged(pa.concat_tables([none]), seconds), batch, T0_MS + 5_000 * number)

    def _reports(self, files: dict[Table, list[Part]], number: int) -> Iterator[TaskReport]:
        for task in range(self._tasks):
            # The topic has a partition per task, and each partition has the lines of some brokers.
            brokers = [*range(task % self._brokers, self._brokers, self._tasks)] or [task % self._brokers]
            spans = [Span("log", task, 1_000 * number, 1_000 * number + 999, 1_000)]
            counts = {"rows": 1_000, "unreadable": 0, "gaps": 0, "cut": 0, "out_of_time": 0}
            yield TaskReport(
                REQUESTS.name, [files[REQUESTS][task]], counts, brokers=brokers, heard=brokers, spans=spans
            )
            yield TaskReport(USAGE.name, [files[USAGE][task]], {"rows": 100})
            yield TaskReport(
                DECISIONS.name, [files[DECISIONS][task]], {"rows": 100}, seconds=self._seconds(task, number)
            )

    def _seconds(self, task: int, number: int) -> list[Seconds]:
        """Those of the shards of a task: every broker has two managers, and each of them some shards."""
        first_ms = T0_MS + 5_000 * number
        shards = self._settings.stream.state_shards
        places = {
            (broker, quota_type)
            for broker in range(self._brokers)
            for place, quota_type in enumerate(("produce", "fetch"))
            for shard in range(shards)
            if ((2 * broker + place) * shards + shard) % self._tasks == task
        }
        return [Seconds("demo", broker, kind, "log", first_ms, first_ms + 4_000) for broker, kind in places]


if __name__ == "__main__":
    sys.exit(main())
