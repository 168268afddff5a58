"""`python -m tests.bench.runs.age`: commits and readers on tables of a week and of a crowded date. 10 minutes.

Each case makes tables as an older release left them: so many commits in each log, so many small files of one date. Then
it does what the job does at its start and beside its queries, until nothing is left to do, and measures.
"""

from __future__ import annotations

import itertools
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from kquota_spark.audit.upkeep import Upkeep
from kquota_spark.audit.violations.fold import EpisodeFold
from kquota_spark.audit.violations.judged import judged_rows
from kquota_spark.checkpoints.checkpoints import LOG
from kquota_spark.config.settings import Settings
from kquota_spark.reports.exported.tables import ExportedTables
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE, VIOLATIONS
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.creation import create_tables
from kquota_spark.store.storage import delta_table
from tests.bench.report import Report, Spread, say, spread
from tests.support.tables.old_tables import age, crowd
from tests.support.tables.table_rows import T0_MS, decision, violation
from tests.support.tables.written_parts import written

CASES = ((100, 100), (20_000, 100), (120_000, 100), (100, 1_000), (100, 100_000))
"""Commits in each log, and files of `decisions` and of `violations`."""
ROUNDS = 15
COMMANDS = 3
_PERIOD_S, _STARTS = 14_400, 100
"""The episodes start in this period before the first second that is folded, at so many different times."""
_TABLES = (REQUESTS, USAGE, DECISIONS, VIOLATIONS)
MOST_MS, MOST_TIMES = 60.0, 2.0
_COLUMNS = {
    "entries": "commits in the log",
    "files": "files of the date",
    "kept": "of them left: commits",
    "packed": "files",
    "tidied_s": "CPU of that, s",
    "commit_ms": "CPU of a commit, ms (range)",
    "commit_wall_ms": "a commit, ms (range)",
    "merge_ms": "CPU of a merge of violations, ms",
    "late_ms": "CPU of a merge of late seconds, ms",
    "violations_s": "CPU of `kquota violations`, s",
    "scrape_ms": "CPU of a look of the exporter, ms",
}
JUDGED = ("commit_ms", "merge_ms", "late_ms", "violations_s", "scrape_ms")


def main() -> int:
    """Print the figures; 1 if a case costs more than twice what the first one does, or a commit more than 60 ms."""
    problems, first = list[str](), dict[str, float]()
    with Report("age", _COLUMNS) as report:
        for entries, files in CASES:
            say(f"{entries:,} commits, {files:,} files")
            with tempfile.TemporaryDirectory(prefix="kquota-bench-") as name:
                left, row = _measured(Path(name), entries, files)
            report.add({"entries": entries, "files": files, **left, **row})
            # The quickest of each: other work on the machine makes none quicker.
            found = {name: row[name].low for name in JUDGED}
            first = first or found
            problems += [
                f"{entries:,} commits, {files:,} files: {name} is {value / first[name]:.1f} times the first"
                for name, value in found.items()
                if value > MOST_TIMES * first[name]
            ]
            if (took_ms := row["commit_wall_ms"].low) > MOST_MS:
                problems.append(f"{entries:,} commits, {files:,} files: a commit takes {took_ms:.0f} ms")
    for problem in problems:
        say(problem)
    return 1 if problems else 0


def _measured(root: Path, entries: int, files: int) -> tuple[dict[str, float], dict[str, Spread]]:
    """What is left of a case after the upkeep, and what it then costs."""
    settings = Settings(tables=str(root / "tables"), checkpoints=str(root / "checkpoints"), cluster_id="demo")
    create_tables(settings)
    crowd(settings, DECISIONS, [decision()], files)
    starts = min(_STARTS, files)
    starts_s = [-_PERIOD_S * number // starts for number in range(starts, 0, -1)]
    crowd(settings, VIOLATIONS, [violation(start_s) for start_s in starts_s], files)
    for declared in _TABLES:
        age(settings, declared.name, to_version=entries)
    create_tables(settings)
    tidied_s = _tidied_s(settings)
    log = Path(settings.tables) / DECISIONS.name / "_delta_log"
    decisions = delta_table(settings, DECISIONS.name)
    (root / "kquota.yaml").write_text(
        f"cluster_id: demo\ntables: {settings.tables}\nquotas: {{source: file, file: {root}/none.yaml}}\n"
    )
    left = {
        "kept": len(list(log.glob("*.json"))),
        "packed": len(decisions.paths()),
        "tidied_s": tidied_s,
    }
    add, fold, scrape = _adds(settings), _folds(settings, 1), _scrapes(settings)
    fold_late = _folds(settings, -20)
    return left, {
        "commit_ms": spread([_cpu_ms(add) for _ in range(ROUNDS)]),
        "commit_wall_ms": spread([_wall_ms(add) for _ in range(ROUNDS)]),
        "merge_ms": spread([_cpu_ms(fold) for _ in range(ROUNDS)]),
        "late_ms": spread([_cpu_ms(fold_late) for _ in range(ROUNDS)]),
        "violations_s": spread([_command_s(root / "kquota.yaml") for _ in range(COMMANDS)]),
        "scrape_ms": spread([(add(), _cpu_ms(scrape))[1] for _ in range(ROUNDS)]),
    }


def _tidied_s(settings: Settings) -> float:
    """CPU seconds until the job has nothing left to do beside its queries."""
    before_s, now_s = time.process_time(), [0.0]
    upkeep = Upkeep(settings, [LOG], lambda: now_s[0])
    while upkeep.work():
        now_s[0] += 60.0  # it rests by this clock
    return time.process_time() - before_s


def _cpu_ms(work: Callable[[], object]) -> float:
    """CPU of this process with all its threads."""
    started_s = time.process_time()
    work()
    return 1_000 * (time.process_time() - started_s)


def _wall_ms(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return 1_000 * (time.perf_counter() - started_s)


class _Adds:
    """Each call commits a micro-batch of one decision."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._commits, self._number = settings, BatchCommits(settings, DECISIONS), 0

    def __call__(self) -> None:
        self._number += 1
        parts = written(self._settings, decision(self._number))
        self._commits.add(parts, MicroBatch("q", self._number))


def _adds(settings: Settings) -> Callable[[], None]:
    add = _Adds(settings)
    add()  # opens the table
    return add


def _folds(settings: Settings, step_s: int) -> Callable[[], None]:
    """Each call folds a violated second: into an episode that is open, or with steps back one that comes late."""
    episodes, numbers = EpisodeFold(settings), itertools.count(1)

    def fold() -> None:
        number = next(numbers)
        over = decision(number * step_s, quota_used_percent=150.0, throttled_requests=2, bucket_user="bob")
        row = {name: over.get(name) for name in DECISIONS.names}
        table = pa.Table.from_pylist([row], schema=DECISIONS.arrow_schema())
        episodes.fold(
            judged_rows(table, settings.stream.episode_gap), MicroBatch(f"q{step_s}", number), T0_MS
        )

    fold()
    return fold


def _scrapes(settings: Settings) -> Callable[[], None]:
    exported = ExportedTables(settings, 100)
    exported.refresh(T0_MS)
    return lambda: exported.refresh(T0_MS)


def _command_s(config: Path) -> float:
    command = [sys.executable, "-m", "kquota_spark.cli.main", "violations", "--config", str(config)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
