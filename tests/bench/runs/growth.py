"""`python -m tests.bench.runs.growth`: how throughput and memory change with client ids, rules and skew. 15 minutes.

Each case is a fresh job with a warm-up. Every identity has a client id and a bucket of its own on each broker, from two
default rules; the other rules name one identity each. GROWTH_LINES and GROWTH_WARM_UP set the size.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

from tests.bench.job import Place, bench_place
from tests.bench.lines import Population
from tests.bench.preloaded import Case, Measured, Size, measure, preload
from tests.bench.report import Cell, Report, say
from tests.bench.rounds import CPU_COLUMNS, cpu_cells

SIZE = Size(int(os.environ.get("GROWTH_WARM_UP", "600000")), int(os.environ.get("GROWTH_LINES", "600000")))
BASE = (1_000, 10)
"""Client ids and rules of the case that the others are compared with."""
CLIENT_IDS = (100, 10_000, 100_000)
RULES = (1_000, 50_000)
_COLUMNS = {
    "client_ids": "client ids",
    "rules": "quota rules",
    "requests": "requests",
    "lines_per_s": "lines per second (range)",
    "to_base": "times the first row",
    "cpu_us": CPU_COLUMNS["cpu_us"],
    "driver_gb": "driver at most, GB (JVM and Python)",
    "workers_gb": "Python workers at most, GB",
    "reconciled": "reconciled",
}
_STEPS = 7
"""Different limits: some clients are over theirs."""


def main() -> int:
    """Print the figures; 1 if a table does not add up."""
    base, is_sound = 0.0, True
    with Report("growth", _COLUMNS) as report, bench_place() as at:
        for client_ids, rules, is_skewed in cases():
            found = _measured(at, client_ids, rules, is_skewed=is_skewed)
            base = base or found.lines_per_s.median
            requests = "99 % in one bucket" if is_skewed else "even"
            row: dict[str, Cell] = {"client_ids": client_ids, "rules": rules, "requests": requests}
            report.add({**row, **_figures(found, base)})
            for problem in found.problems:
                say(problem)
                is_sound = False
    return 0 if is_sound else 1


def cases() -> Iterator[tuple[int, int, bool]]:
    """Client ids, rules, and whether one bucket has nearly all requests; the base comes first."""
    client_ids, rules = BASE
    yield client_ids, rules, False
    yield from ((count, rules, False) for count in CLIENT_IDS)
    yield from ((client_ids, count, False) for count in RULES)
    yield client_ids, rules, True


def quota_rules(count: int, population: Population) -> str:
    """The text of a quotas file.

    Args:
        count: of the rules: two defaults of users and client ids, the others name one identity each.
        population: whose names. Identities beyond it are named too if there are more rules.
    """
    rules = [
        _rule("<default>", "<default>", "producer_byte_rate", 120_000),
        _rule("<default>", "<default>", "consumer_byte_rate", 90_000),
    ]
    named = population._replace(client_ids=max(population.client_ids, count))
    for identity in range(count - len(rules)):
        key = "producer_byte_rate" if identity < population.producers else "consumer_byte_rate"
        rules.append(_rule(*named.names(identity), key, 20_000 * (identity % _STEPS + 1)))
    return "".join(rules)


def _rule(user: str, client: str, key: str, value: int) -> str:
    return f"- {{user: {user}, client_id: {client}, type: {key}, value: {value}}}\n"


def _measured(at: Place, client_ids: int, rules: int, *, is_skewed: bool) -> Measured:
    population = Population(client_ids, client_ids, is_skewed)
    name = f"ids-{client_ids}-rules-{rules}{'-skewed' if is_skewed else ''}"
    case = Case(name, population, quota_rules(rules, population))
    place = preload(case, at, SIZE.warm_up)
    found = measure(case, place, SIZE)
    shutil.rmtree(place.root)
    return found


def _figures(found: Measured, base: float) -> dict[str, Cell]:
    peak = found.peak_bytes
    return {
        "lines_per_s": found.lines_per_s,
        "to_base": round(found.lines_per_s.median / base, 2),
        "cpu_us": cpu_cells(found.rounds)["cpu_us"],
        "driver_gb": round((peak["jvm"] + peak["driver"]) / 1e9, 2),
        "workers_gb": round(peak["workers"] / 1e9, 2),
        "reconciled": "no" if found.problems else "yes",
    }


if __name__ == "__main__":
    sys.exit(main())
