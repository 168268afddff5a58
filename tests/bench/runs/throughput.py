"""`python -m tests.bench.runs.throughput`: lines per second of the whole audit, a floor and a plain process. 17 min.

All three work on the same topic in the same run, three times each. The floor reads and parses the topic and does
nothing else. The plain process is the same audit without Spark. A figure counts only when `decisions` adds up to the
input, line for line and byte for byte.

BENCH_LINES and BENCH_WARM_UP set the size, BENCH_ROUNDS the repetitions, BENCH_MASTER the master of Spark. BENCH_TABLES
names what the table `requests` of the audit keeps: `all`, `throttled` or both, `all,throttled`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from kquota_spark.config.loader import load_settings
from tests.bench.job import (
    ALL_REQUESTS,
    MASTER,
    THROTTLED_REQUESTS,
    Place,
    bench_place,
    environment,
    spark_submit,
)
from tests.bench.plain import plain_round
from tests.bench.preloaded import ROUNDS, Case, Size, measure, preload
from tests.bench.report import Cell, Report, say
from tests.bench.rounds import CPU_COLUMNS, Round, cpu_cells, lines_per_s
from tests.bench.runs.floor import floor_rounds

SIZE = Size(int(os.environ.get("BENCH_WARM_UP", "8000000")), int(os.environ.get("BENCH_LINES", "2000000")))
_TABLES = {"all": ALL_REQUESTS, "throttled": THROTTLED_REQUESTS}
_WANTED = os.environ.get("BENCH_TABLES", "all").split(",")
_COLUMNS = {
    "case": "",
    "lines_per_s": "lines per second (range)",
    "to_json_loads": "times `json.loads`",
    **CPU_COLUMNS,
    "reconciled": "reconciled",
}


class _Rate(NamedTuple):
    name: str
    rounds: list[Round]
    problems: list[str] | None = None
    """None where nothing is to be reconciled."""


def main() -> int:
    """Print the figures; 1 if a table does not add up."""
    is_sound = True
    with Report("throughput", _COLUMNS) as report, bench_place() as at:
        for rate in _rates(at):
            found = lines_per_s(rate.rounds)
            row: dict[str, Cell] = {
                "case": rate.name,
                "lines_per_s": found,
                "to_json_loads": round(found.median / report.json_loads_per_s, 2),
                **cpu_cells(rate.rounds),
            }
            if rate.problems is not None:
                row["reconciled"] = "no" if rate.problems else "yes"
            report.add(row)
            for problem in rate.problems or ():
                say(problem)
                is_sound = False
    return 0 if is_sound else 1


def _rates(at: Place) -> Iterator[_Rate]:
    for name in _WANTED:
        case = Case(name, tables=_TABLES[name])
        say(f"{name}: loading {SIZE.warm_up:,} lines")
        place = preload(case, at, SIZE.warm_up)
        if name == _WANTED[0]:
            say("reading and parsing them")
            command = spark_submit("tests/bench/runs/floor.py", place)
            floor = floor_rounds(command, environment(place), place.cluster.brokers[0].pid, SIZE.warm_up)
            yield _Rate("floor: read and parse only", floor)
        found = measure(case, place, SIZE)
        yield _Rate(f"whole audit, {name} requests, {MASTER or 'local[*]'}", found.rounds, found.problems)
        if name == _WANTED[-1]:
            yield _Rate("one plain process, without Spark", _plain(place))


def _plain(place: Place) -> list[Round]:
    settings, rounds = load_settings(place.config), list[Round]()
    for number in range(1, ROUNDS + 1):
        say(f"one plain process, round {number} of {ROUNDS}")
        tables = place.root / f"plain-{number}"
        rounds.append(plain_round(settings, place.cluster, tables, min(SIZE)))
    return rounds


if __name__ == "__main__":
    sys.exit(main())
