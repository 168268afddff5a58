"""`python -m tests.bench.runs.soak`: 5,000 micro-batches of the job: what grows with their number. 30 minutes or more.

The job has a short trigger and a small steady load, some of which is over its quotas. Each row of the table is a
quantity with its slope per 1,000 micro-batches; `tests.bench.slopes` has the rule for the last column. The picture is
written to SOAK_PICTURE. SOAK_BATCHES and SOAK_MINUTES end it, whichever comes first. It exits with 1 if a row grows.

Rows of tables, their files and the entries of their logs are kept for the time of their retention. So what counts is
what a micro-batch adds. Everything else must not depend on what is kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.bench import timed_commits
from tests.bench.job import Place, bench_place, configure, end_of_log, running, spark_submit
from tests.bench.lines import Population
from tests.bench.load import Load
from tests.bench.processes import Held, Kind, session_cpu_s, session_held
from tests.bench.report import Report, Spread, say
from tests.bench.slopes import Point, slope_of
from tests.bench.small_charts import Chart, svg
from tests.bench.timed_commits import Commit, commits_of

BATCHES = int(os.environ.get("SOAK_BATCHES", "5000"))
MINUTES = float(os.environ.get("SOAK_MINUTES", "600"))
PICTURE = Path(os.environ.get("SOAK_PICTURE", ".kquota/soak.svg"))
EVERY_S = 5.0
"""Between two samples."""
_STREAM = "trigger: 100 ms, allowed_lateness: 2 s"
_LINES_PER_S = 20
_POPULATION = Population(identities=40, client_ids=20)
_QUOTAS = """\
- {user: user-0, client_id: <default>, type: producer_byte_rate, value: 500}
- {user: <default>, client_id: null, type: producer_byte_rate, value: 4000}
- {user: null, client_id: <default>, type: consumer_byte_rate, value: 4000}
"""
"""One line of a client of `user-0` is some 400 bytes per second of the window: its episodes open and close."""
_FIRST_WITHIN_S = 300
_COLUMNS = {
    "what": "quantity",
    "level": "level",
    "slope": "slope per 1,000 micro-batches (range)",
    "percent": "% of the level",
    "verdict": "verdict",
}
_NAMES: Mapping[Kind, str] = {"jvm": "JVM", "driver": "Python driver", "workers": "Python workers"}


class Disk(NamedTuple):
    """Files under a folder."""

    files: int
    bytes: int


class Sample(NamedTuple):
    """What was seen at a time.

    Attributes:
        batch: micro-batches so far.
        cpu_s: CPU seconds so far, by kind of process.
        held: what the processes hold.
        checkpoints: on disk.
        tables: on disk.
    """

    batch: int
    cpu_s: Mapping[Kind, float]
    held: Mapping[Kind, Held]
    checkpoints: Disk
    tables: Disk


def main() -> int:
    """Print the figures and draw the picture; 1 if something grows."""
    with Report("soak", _COLUMNS) as report, bench_place() as at:
        samples, commits = _soaked(at.case("soak"))
        charts = [Chart(name, points, slope_of(points)) for name, points in series(samples, commits).items()]
        for chart in charts:
            _, slope, low, high, _ = chart.slope
            level = chart.slope.level
            report.add(
                {
                    "what": chart.name,
                    "level": level,
                    "slope": Spread(slope, low, high),
                    "percent": slope / level * 100 if level else 0.0,
                    "verdict": "grows" if chart.slope.grows else "flat",
                }
            )
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        title = f"{samples[-1].batch:,} micro-batches of the job, each quantity from zero"
        PICTURE.write_text(svg(title, charts), encoding="utf-8")
        say(f"the picture is in {PICTURE}")
    return 1 if any(chart.slope.grows for chart in charts) else 0


def series(samples: Sequence[Sample], commits: Sequence[Commit]) -> dict[str, list[Point]]:
    """Each quantity by its name, as points of micro-batch and value."""
    found = {
        "commit, ms": [(float(each.number), each.commit_ms) for each in commits],
        "commit, CPU ms of the driver": [(float(each.number), each.commit_cpu_ms) for each in commits],
        "micro-batch, ms": [(float(each.number), each.whole_ms) for each in commits],
    }
    for kind, name in _NAMES.items():
        found[f"CPU per micro-batch, ms: {name}"] = _added(
            [(each.batch, each.cpu_s[kind] * 1_000) for each in samples]
        )
    for kind, name in _NAMES.items():
        found[f"memory, MB: {name}"] = [(each.batch, each.held[kind].bytes / 1e6) for each in samples]
    for kind, name in _NAMES.items():
        found[f"open files: {name}"] = [(each.batch, each.held[kind].files) for each in samples]
    for kind, name in _NAMES.items():
        found[f"threads: {name}"] = [(each.batch, each.held[kind].threads) for each in samples]
    return {
        **found,
        "checkpoints, files": [(each.batch, each.checkpoints.files) for each in samples],
        "checkpoints, MB": [(each.batch, each.checkpoints.bytes / 1e6) for each in samples],
        "tables, files per micro-batch": _added([(each.batch, each.tables.files) for each in samples]),
        "tables, kB per micro-batch": _added([(each.batch, each.tables.bytes / 1e3) for each in samples]),
    }


def _added(sums: Sequence[Point]) -> list[Point]:
    """What a micro-batch adds to a sum, between two samples."""
    return [
        ((before[0] + after[0]) / 2, (after[1] - before[1]) / (after[0] - before[0]))
        for before, after in pairwise(sums)
    ]


def _soaked(place: Place) -> tuple[list[Sample], list[Commit]]:
    configure(place, _STREAM, _QUOTAS)
    target, samples = place.root / "commits.jsonl", list[Sample]()
    os.environ[timed_commits.FILE] = str(target)
    script, *options = spark_submit("jobs/audit.py", place)
    at = options.index("jobs/audit.py")
    command = [script, *options[:at], timed_commits.__file__, *options[at:]]
    with Load(place, _LINES_PER_S, _POPULATION), running(command, place) as job:
        _await_first(job, place, target)
        ends_s = time.monotonic() + MINUTES * 60
        while (not samples or samples[-1].batch < BATCHES) and time.monotonic() < ends_s:
            time.sleep(EVERY_S)
            if job.poll() is not None:
                raise SystemExit(end_of_log(place))
            batch = sum(1 for _ in commits_of(target))
            if not samples or batch > samples[-1].batch:
                samples.append(_sample(batch, job.pid, place))
                say(f"{batch:,} of {BATCHES:,} micro-batches")
    return samples, list(commits_of(target))


def _await_first(job: subprocess.Popen[bytes], place: Place, target: Path) -> None:
    give_up_s = time.monotonic() + _FIRST_WITHIN_S
    while not any(commits_of(target)):
        if job.poll() is not None or time.monotonic() > give_up_s:
            raise SystemExit(end_of_log(place))
        time.sleep(0.5)


def _sample(batch: int, session: int, place: Place) -> Sample:
    return Sample(
        batch,
        session_cpu_s(session),
        session_held(session),
        _disk(place.root / "checkpoints"),
        _disk(place.tables),
    )


def _disk(folder: Path) -> Disk:
    files, size, folders = 0, 0, [str(folder)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir():
                        folders.append(entry.path)
                    else:
                        files, size = files + 1, size + entry.stat().st_size
        except FileNotFoundError:  # Spark has cleaned up meanwhile
            continue
    return Disk(files, size)


if __name__ == "__main__":
    sys.exit(main())
