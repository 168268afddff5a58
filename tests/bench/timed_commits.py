"""Runs the job unchanged, and adds a line per micro-batch to a file: what its commits took in the driver.

    spark-submit tests/bench/timed_commits.py jobs/audit.py --config conf/kquota.yaml

A micro-batch has two parts in the driver: it waits for its tasks, and then commits what they wrote. The second part
begins when it takes the reports of the tasks. Times are those of the wall and of the CPU of the whole process, which
has the threads of delta-rs in it.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

FILE = "KQUOTA_TEST_COMMITS"
"""Variable with the path of the file."""


class Commit(msgspec.Struct):
    """One micro-batch.

    Attributes:
        number: of the micro-batch.
        whole_ms: its tasks and its commits.
        commit_ms: the commits.
        commit_cpu_ms: their CPU.
    """

    number: int
    whole_ms: float
    commit_ms: float
    commit_cpu_ms: float


class _Moment(NamedTuple):
    wall_s: float
    cpu_s: float


def install(target: Path) -> None:
    """Put clocks around the sink of the queries and the reports of their tasks."""
    from kquota_spark.audit.commit import Sink
    from kquota_spark.audit.task_reports import TaskReports

    taken: dict[int, _Moment] = {}
    commit, take = Sink.commit, TaskReports.take

    @functools.wraps(take)
    def timed_take(reports: TaskReports) -> list[Any]:
        found = take(reports)
        taken[id(reports)] = _now()
        return found

    @functools.wraps(commit)
    def timed_commit(sink: Sink, rows: Any, number: int) -> None:
        begun = _now()
        commit(sink, rows, number)
        ended, executed = _now(), taken[id(sink.reports)]
        commit_s, cpu_s = ended.wall_s - executed.wall_s, ended.cpu_s - executed.cpu_s
        found = Commit(number, (ended.wall_s - begun.wall_s) * 1_000, commit_s * 1_000, cpu_s * 1_000)
        with target.open("ab") as file:
            file.write(msgspec.json.encode(found) + b"\n")

    setattr(TaskReports, "take", timed_take)  # noqa: B010 - mypy refuses to assign to a method
    setattr(Sink, "commit", timed_commit)  # noqa: B010


def commits_of(target: Path) -> Iterator[Commit]:
    """What is in the file, oldest first; nothing before the first micro-batch."""
    if target.exists():
        for line in target.read_bytes().splitlines():
            yield msgspec.json.decode(line, type=Commit)


def _now() -> _Moment:
    return _Moment(time.monotonic(), time.process_time())


if __name__ == "__main__":
    install(Path(os.environ[FILE]))
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
