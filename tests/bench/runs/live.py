"""`python -m tests.bench.runs.live`: latency, cores and first decision of a job beside a load as it comes. 26 minutes.

Each case is a fresh job. It is measured in three windows, `LIVE_SETTLED_S` seconds after its first decision. Idle jobs
get one line per second and are measured five minutes (`LIVE_IDLE_S`) after their first decision.

One other case: `python -m tests.bench.runs.live 1000 "trigger: 1 s, allowed_lateness: 2 s"`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple, get_args

from tests.bench.job import Place, bench_place, configure, end_of_log, running, spark_submit
from tests.bench.load import Load, follow, latencies_s
from tests.bench.processes import Kind, session_cpu_s
from tests.bench.report import Cell, Report, Spread, percentile, say, spread

SETTLED_S = float(os.environ.get("LIVE_SETTLED_S", "40"))
"""After the first decision, until the JVM has compiled the code that runs."""
IDLE_S = float(os.environ.get("LIVE_IDLE_S", "300"))
WINDOW_S = float(os.environ.get("LIVE_WINDOW_S", "20"))
_WINDOWS = 3
_FIRST_WITHIN_S = 300
_QUICK, _DEFAULTS = "trigger: 1 s, allowed_lateness: 2 s", ""
_COLUMNS = {
    "stream": "`stream`",
    "lines_per_s": "lines per second",
    "first_decision_s": "first decision, s after the start",
    "p50_s": "latency p50, s (range)",
    "p95_s": "p95, s",
    "p99_s": "p99, s",
    "cores": "cores (range)",
    "jvm_cores": "of them JVM",
    "driver_cores": "Python driver",
    "workers_cores": "Python workers",
}


class Case(NamedTuple):
    """A load, a configuration, and how long the job runs before it is measured."""

    lines_per_s: int
    stream: str
    settled_s: float


CASES = [
    *(Case(rate, stream, SETTLED_S) for stream in (_QUICK, _DEFAULTS) for rate in (1_000, 5_000, 10_000)),
    *(Case(1, stream, IDLE_S) for stream in (_QUICK, _DEFAULTS)),
]


class Window(NamedTuple):
    """Latencies and cores of one part of the measured time."""

    late_s: list[float]
    cores: dict[Kind, float]


def main() -> int:
    """Print the figures."""
    arguments = sys.argv[1:]
    cases = [Case(int(arguments[0]), arguments[1], SETTLED_S)] if arguments else CASES
    with Report("live", _COLUMNS) as report, bench_place() as at:
        for number, case in enumerate(cases, start=1):
            say(f"{number} of {len(cases)}: {case.lines_per_s:,} lines/s, {case.stream or 'defaults'}")
            report.add(_figures(case, at.case(f"live-{number}")))
    return 0


def _figures(case: Case, place: Place) -> dict[str, Cell]:
    configure(place, case.stream)
    with Load(place, case.lines_per_s):
        time.sleep(2)
        started_s = time.time()
        command = spark_submit("jobs/audit.py", place)
        with running(command, place) as job:
            first = next(follow(place.tables, started_s + _FIRST_WITHIN_S), None)
            if first is None:
                raise SystemExit(end_of_log(place))
            time.sleep(case.settled_s)
            windows = [_window(place, job.pid) for _ in range(_WINDOWS)]
    return {
        "stream": f"`{case.stream}`" if case.stream else "defaults",
        "lines_per_s": case.lines_per_s,
        "first_decision_s": round(first.at_ms / 1_000 - started_s, 1),
        **{f"p{percent}_s": _late(windows, percent) for percent in (50, 95, 99)},
        "cores": spread([sum(window.cores.values()) for window in windows]),
        **{
            f"{kind}_cores": round(spread([window.cores[kind] for window in windows]).median, 3)
            for kind in get_args(Kind)
        },
    }


def _window(place: Place, session: int) -> Window:
    began_s, before = time.monotonic(), session_cpu_s(session)
    late_s = latencies_s(list(follow(place.tables, time.time() + WINDOW_S)))
    after, elapsed_s = session_cpu_s(session), time.monotonic() - began_s
    if not late_s:
        say(end_of_log(place))
        raise SystemExit(f"no new decisions in {WINDOW_S} s")
    return Window(late_s, {kind: (after[kind] - before[kind]) / elapsed_s for kind in after})


def _late(windows: Sequence[Window], percent: int) -> Spread:
    return spread([percentile(window.late_s, percent) for window in windows])


if __name__ == "__main__":
    sys.exit(main())
