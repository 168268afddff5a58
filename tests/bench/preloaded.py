"""The job on a preloaded topic: how many lines per second it decides once it is warm.

`jobs/audit.py` runs as in production. It first works through a warm-up, in which the JVM compiles the code that runs.
Then, three times with the same job: it is held (SIGSTOP), more lines are loaded into its topic, and it continues. The
clock runs from there to the commit of the last decision.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from confluent_kafka import Producer

from kquota_spark.embedded.cluster import Cluster
from tests.bench.job import (
    ALL_REQUESTS,
    Place,
    configure,
    end_of_log,
    running,
    spark_submit,
)
from tests.bench.lines import EVEN, QUOTAS, Line, Population, closing_heartbeats, lines
from tests.bench.processes import Kind, Watch, process_cpu_s
from tests.bench.reconcile import DecidedRequests, last_commit_s, problems
from tests.bench.report import Spread, say
from tests.bench.rounds import Round, lines_per_s
from tests.support.spark.standalone import SparkCluster

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
STREAM = "trigger: 1 s, allowed_lateness: 10 s"
"""The section `stream` of the jobs."""
GAP_MS = 60_000
"""Quiet time in the log before each round, so that all earlier lines are decided when its clock starts."""
_WITHIN_S = 900
_POLL_S = 0.5
"""CPU of the job is counted until a poll sees the last decision, so this is short."""


class Case(NamedTuple):
    """What is measured.

    Attributes:
        name: of the folder and the topic.
        population: whose lines.
        quotas: text of the quotas file.
        tables: the section `tables` of the configuration.
        spark: the cluster that it runs on; None for the master of conf/spark-defaults.conf or of BENCH_MASTER.
    """

    name: str
    population: Population = EVEN
    quotas: str = QUOTAS
    tables: str = ALL_REQUESTS
    spark: SparkCluster | None = None


class Size(NamedTuple):
    """Lines of the warm-up and of each round."""

    warm_up: int
    lines: int


class Measured(NamedTuple):
    """What the rounds gave.

    Attributes:
        rounds: in their order.
        peak_bytes: memory of all processes of the job.
        problems: failures of the reconciliation.
    """

    rounds: list[Round]
    peak_bytes: dict[Kind, int]
    problems: list[str]

    @property
    def lines_per_s(self) -> Spread:
        """Median and range of the rounds."""
        return lines_per_s(self.rounds)


def preload(case: Case, at: Place, warm_up: int) -> Place:
    """Configure the job of a case, and load the warm-up into its topic."""
    place = at.case(case.name)
    configure(place, STREAM, case.quotas, case.tables)
    written = lines(range(warm_up), population=case.population)
    load(place, chain(written, closing_heartbeats(warm_up)))
    return place


def measure(case: Case, place: Place, size: Size) -> Measured:
    """Run the job on a topic with its warm-up, and measure the rounds."""
    rounds, loaded, expected = list[Round](), size.warm_up, case.population.expected
    broker_pid = place.cluster.brokers[0].pid
    options = case.spark.options() if case.spark else ()
    nodes = [each.pid for each in case.spark.processes] if case.spark else []
    command = spark_submit("jobs/audit.py", place, options)
    decided = DecidedRequests(place.tables)

    def cpu_s(watch: Watch) -> dict[str, float]:
        return dict([*watch.cpu_s().items(), ("broker", process_cpu_s(broker_pid))])

    with running(command, place) as job, Watch(job.pid, nodes) as watch:
        say(f"{case.name}: the job warms up on {size.warm_up:,} lines")
        wait_for(job, place, decided, sum(expected(loaded).values()))
        for number in range(1, ROUNDS + 1):
            os.killpg(job.pid, signal.SIGSTOP)
            more = lines(range(loaded, loaded + size.lines), number * GAP_MS, population=case.population)
            loaded += size.lines
            load(place, chain(more, closing_heartbeats(loaded, number * GAP_MS)))
            started_s, before = time.time(), cpu_s(watch)
            os.killpg(job.pid, signal.SIGCONT)
            wait_for(job, place, decided, sum(expected(loaded).values()))
            after, seconds = cpu_s(watch), last_commit_s(place.tables / "decisions") - started_s
            rounds.append(Round(size.lines, seconds, {kind: after[kind] - before[kind] for kind in after}))
            say(f"{case.name}: round {number} of {ROUNDS}, {rounds[-1].lines_per_s:,.0f} lines/s")
    found = problems(place.tables, loaded, expected(loaded), are_all_requests=case.tables == ALL_REQUESTS)
    return Measured(rounds, watch.bytes_by_kind, found)


def load(place: Place, messages: Iterable[Line]) -> None:
    """Write lines into the topic of a place."""
    producer = _producer(place.cluster)
    for line in messages:
        while True:
            try:
                producer.produce(
                    place.topic, line.text, str(line.broker_id).encode(), partition=line.broker_id - 1
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def _producer(cluster: Cluster) -> Producer:
    return Producer(
        {
            **cluster.client_settings(),
            "linger.ms": 50,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
        }
    )


def wait_for(job: subprocess.Popen[bytes], place: Place, decided: DecidedRequests, requests: int) -> None:
    """Until so many requests are in `decisions`."""
    give_up_s = time.monotonic() + _WITHIN_S
    while decided.count() < requests:
        if job.poll() is not None or time.monotonic() > give_up_s:
            say(end_of_log(place))
            raise SystemExit(f"the job has ended, or has not come to {requests:,} requests in {_WITHIN_S} s")
        time.sleep(_POLL_S)
