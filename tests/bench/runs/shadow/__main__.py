"""`python -m tests.bench.runs.shadow`: what a shadow adds to the CPU of the whole job. 25 minutes.

Two jobs read one topic, one of them with `quotas.shadow`. They work in turns: while one works through a round of lines,
the other is held (SIGSTOP), and the next round begins with the other one. The figure is the ratio of their CPU in the
same round, user and system time of all processes of a job. Other work on the machine changes the seconds more than the
CPU. SHADOW_LINES and SHADOW_WARM_UP set the size, BENCH_ROUNDS the rounds.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any, NamedTuple

from deltalake import DeltaTable

from kquota_spark.checkpoints.noted_pins import shadow_in_force
from kquota_spark.config.loader import load_settings
from kquota_spark.formats.exchange import declared
from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from tests.bench.job import Place, bench_place, running, spark_submit
from tests.bench.lines import Population, closing_heartbeats, lines
from tests.bench.preloaded import GAP_MS, Case, Size, load, preload, wait_for
from tests.bench.processes import Watch
from tests.bench.reconcile import DecidedRequests, last_commit_s, problems
from tests.bench.report import Report, say, spread
from tests.bench.rounds import Round
from tests.bench.runs.growth import quota_rules
from tests.bench.runs.stages import Changed, proposed

SIZE = Size(int(os.environ.get("SHADOW_WARM_UP", "600000")), int(os.environ.get("SHADOW_LINES", "300000")))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "4"))
CASES = tuple(
    (client_ids, changed)
    for client_ids in (1_000, 100_000)
    for changed in (Changed.ONE, Changed.ALL, Changed.BUCKETS)
)
"""Client ids, and the limits that the shadow changes."""
_RULES = 10
_SETTLE_S = 2.0
"""Time for the commits after the last decision, seconds."""
_COLUMNS = {
    "client_ids": "client ids",
    "changed": "limits that the shadow changes",
    "without_us": "CPU per line without, us (range)",
    "with_us": "with a shadow",
    "ratio": "times, in the same round (range)",
    "rate_ratio": "times the lines per second (range)",
    "rows": "rows of shadow_decisions",
    "load": "load of the machine",
    "reconciled": "reconciled",
}


class _Job(NamedTuple):
    """A job that runs, and is held between its rounds."""

    place: Place
    process: subprocess.Popen[bytes]
    watch: Watch
    decided: DecidedRequests

    def work(self, requests: int, count: int) -> Round:
        """Let it work until so many requests are decided.

        Args:
            requests: decided requests to wait for.
            count: lines of the round.
        """
        before, started_s = self.watch.cpu_s(), time.time()
        os.killpg(self.process.pid, signal.SIGCONT)
        wait_for(self.process, self.place, self.decided, requests)
        seconds = last_commit_s(self.place.tables / "decisions") - started_s
        time.sleep(_SETTLE_S)
        after = self.watch.cpu_s()
        os.killpg(self.process.pid, signal.SIGSTOP)
        return Round(count, seconds, {kind: after[kind] - before[kind] for kind in after})


class _Pair(NamedTuple):
    """Rounds without and with a shadow, one after the other."""

    without: list[Round]
    beside: list[Round]
    rows: int
    problems: list[str]


def main() -> int:
    """Print the figures; 1 if a table does not add up, or a job had no shadow."""
    is_sound = True
    with Report("shadow", _COLUMNS) as report, bench_place() as at:
        for client_ids, changed in CASES:
            found = _measured(at, client_ids, changed)
            pairs = list(zip(found.without, found.beside, strict=True))
            report.add({
                "client_ids": client_ids, "changed": changed.value,
                "without_us": spread([each.cpu_us() for each in found.without]),
                "with_us": spread([each.cpu_us() for each in found.beside]),
                "ratio": spread([one.cpu_us() / base.cpu_us() for base, one in pairs]),
                "rate_ratio": spread([one.lines_per_s / base.lines_per_s for base, one in pairs]),
                "rows": found.rows, "load": os.getloadavg()[0], "reconciled": "no" if found.problems else "yes",
            })  # fmt: skip
            for problem in found.problems:
                say(problem)
                is_sound = False
    return 0 if is_sound else 1


def _measured(at: Place, client_ids: int, changed: Changed) -> _Pair:
    population = Population(client_ids, client_ids)
    name = f"shadow-{client_ids}-{changed.name.lower()}"
    case = Case(name, population, quota_rules(_RULES, population))
    place = preload(case, at, SIZE.warm_up)
    other = _shadowed(place, at, changed)
    with ExitStack() as stack:
        jobs = [_started(each, stack, population) for each in (place, other)]
        rounds = [_round(jobs, place, population, number) for number in range(1, ROUNDS + 1)]
    loaded = SIZE.warm_up + ROUNDS * SIZE.lines
    found = [
        problem
        for each in (place, other)
        for problem in problems(each.tables, loaded, population.expected(loaded))
    ]
    if shadow_in_force(load_settings(other.config)) is None:
        found.append(f"{other.root.name}: no shadow was judged")
    rows = DeltaTable(str(other.tables / "shadow_decisions"))
    count = int(rows.to_pyarrow_dataset().count_rows())
    for each in (place, other):
        shutil.rmtree(each.root)
    return _Pair([one for one, _ in rounds], [one for _, one in rounds], count, found)


def _shadowed(place: Place, at: Place, changed: Changed) -> Place:
    """A place for a job on the same topic and quotas, with a shadow."""
    other = at.case(f"{place.root.name}-beside")
    quotas, proposal = other.root / "quotas.yaml", other.root / "proposal.yaml"
    shutil.copy(place.root / "quotas.yaml", quotas)
    values = proposed(RuleBook(rule_periods(read_quota_file(quotas))), changed)
    proposal.write_text(declared.write(dict[Any, Any](values)), encoding="utf-8")
    text = place.config.read_text(encoding="utf-8").replace(f"{place.root}/", f"{other.root}/")
    text = text.replace("quotas: {", f"quotas: {{shadow: {proposal}, ")
    other.config.write_text(text, encoding="utf-8")
    return other


def _started(place: Place, stack: ExitStack, population: Population) -> _Job:
    """A job after its warm-up."""
    process = stack.enter_context(running(spark_submit("jobs/audit.py", place), place))
    job = _Job(place, process, stack.enter_context(Watch(process.pid)), DecidedRequests(place.tables))
    say(f"{place.root.name}: the job warms up on {SIZE.warm_up:,} lines")
    job.work(sum(population.expected(SIZE.warm_up).values()), SIZE.warm_up)
    return job


def _round(jobs: Sequence[_Job], place: Place, population: Population, number: int) -> tuple[Round, Round]:
    """Both jobs work through the same lines; the one that begins changes from round to round."""
    first = SIZE.warm_up + (number - 1) * SIZE.lines
    loaded = first + SIZE.lines
    more = lines(range(first, loaded), number * GAP_MS, population=population)
    load(place, chain(more, closing_heartbeats(loaded, number * GAP_MS)))
    requests = sum(population.expected(loaded).values())
    found: dict[int, Round] = {}
    for index in (0, 1) if number % 2 else (1, 0):
        found[index] = jobs[index].work(requests, SIZE.lines)
    say(
        f"{place.root.name}: round {number} of {ROUNDS}, {found[1].cpu_us() / found[0].cpu_us():.3f} times the CPU"
    )
    return found[0], found[1]


if __name__ == "__main__":
    sys.exit(main())
