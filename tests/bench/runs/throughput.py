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
from tests.bench.preloaded import ROUNDS, Case, Size, measure, preload
from tests.bench.report import Cell, Report, Spread, say, spread
from tests.bench.runs.floor import floor_s
from tests.bench.runs.plain import plain_lines_per_s

SIZE = Size(int(os.environ.get("BENCH_WARM_UP", "8000000")), int(os.environ.get("BENCH_LINES", "2000000")))
_TABLES = {"all": ALL_REQUESTS, "throttled": THROTTLED_REQUESTS}
_WANTED = os.environ.get("BENCH_TABLES", "all").split(",")
_COLUMNS = {
    "case": "",
    "lines_per_s": "lines per second (range)",
    "to_json_loads": "times `json.loads`",
    "reconciled": "reconciled",
}


class _Rate(NamedTuple):
    name: str
    lines_per_s: Spread
    problems: list[str] | None = None
    """None where nothing is to be reconciled."""


def main() -> int:
    """Print the figures; 1 if a table does not add up."""
    is_sound = True
    with Report("throughput", _COLUMNS) as report, bench_place() as at:
        for rate in _rates(at):
            times = round(rate.lines_per_s.median / report.json_loads_per_s, 2)
            row: dict[str, Cell] = {
                "case": rate.name,
                "lines_per_s": rate.lines_per_s,
                "to_json_loads": times,
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
            seconds = floor_s(spark_submit("tests/bench/runs/floor.py", place.config), environment())
            yield _Rate("floor: read and parse only", spread([SIZE.warm_up / each for each in seconds]))
        found = measure(case, place, SIZE)
        yield _Rate(
            f"whole audit, {name} requests, {MASTER or 'local[*]'}", found.lines_per_s, found.problems
        )
        if name == _WANTED[-1]:
            yield _Rate("one plain process, without Spark", _plain(place))


def _plain(place: Place) -> Spread:
    settings, client, rates = load_settings(place.config), place.cluster.client_settings(), list[float]()
    for number in range(1, ROUNDS + 1):
        say(f"one plain process, round {number} of {ROUNDS}")
        tables = place.root / f"plain-{number}"
        rates.append(plain_lines_per_s(settings, client, tables, min(SIZE)))
    return spread(rates)


if __name__ == "__main__":
    sys.exit(main())
