"""`make bench`: lines per second of the whole audit, beside the floor and a plain process in the same run.

Before it the pure model is measured on one core (`tests.bench.model`).

`jobs/audit.py` runs as in production. It first works through `WARM_UP` lines, in
which the JVM compiles what it runs. Then it is held (SIGSTOP) while `LINES` more are loaded into its topic, and
let go: the clock runs from there to the commit of the last decision. A figure counts only when `decisions`
reconciles with the input, line for line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from confluent_kafka import Producer

from kquota_spark.config.loader import load_settings
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.spark_home import linked_spark_home
from kquota_spark.embedded.topics import create_topics
from tests.bench.floor import floor_s
from tests.bench.job import MASTER, TOPIC, configured, environment, running, spark_submit
from tests.bench.lines import BROKERS, Line, closing_heartbeats, lines
from tests.bench.model import model_figures
from tests.bench.plain import plain_lines_per_s
from tests.bench.reconcile import expected_decided, last_commit_s, problems, requests_decided

LINES = int(os.environ.get("BENCH_LINES", "2000000"))
WARM_UP = int(os.environ.get("BENCH_WARM_UP", "3000000"))
_STREAM = "trigger: 1 s, allowed_lateness: 10 s"
_GAP_MS = 60_000
"""Quiet time in the log after the warm-up, so that all of it is decided when the clock starts."""
_WITHIN_S = 600


def main() -> int:
    _say("the pure model on one core")
    of_model = model_figures()
    with tempfile.TemporaryDirectory(prefix="kquota-bench-") as name:
        root = Path(name)
        os.environ["SPARK_HOME"] = str(linked_spark_home(root / "spark"))
        with embedded_cluster(root / "cluster") as cluster:
            config = configured(root, cluster, _STREAM)
            create_topics(cluster, {TOPIC: BROKERS})
            _load(cluster, chain(lines(range(WARM_UP)), closing_heartbeats(WARM_UP)))
            floor = floor_s(spark_submit("tests/bench/floor.py", config), environment())
            _say(f"reading and parsing {WARM_UP:,} lines: {floor:.1f} s; now the job warms up on them")
            with running(spark_submit("jobs/audit.py", config), root / "job.log") as job:
                _wait(job, root, expected_decided(WARM_UP))
                os.killpg(job.pid, signal.SIGSTOP)
                measured = lines(range(WARM_UP, WARM_UP + LINES), _GAP_MS)
                _load(cluster, chain(measured, closing_heartbeats(WARM_UP + LINES, _GAP_MS)))
                _say(f"{LINES:,} more lines loaded; the job goes on")
                started_s = time.time()
                os.killpg(job.pid, signal.SIGCONT)
                _wait(job, root, expected_decided(WARM_UP + LINES))
            found = problems(root / "tables", WARM_UP + LINES)
            audit_s = last_commit_s(root / "tables" / "decisions") - started_s
            _say("now one plain process, without Spark")
            client = cluster.client_settings()
            plain = plain_lines_per_s(load_settings(config), client, root / "plain", min(LINES, WARM_UP))
    result = {
        "master": MASTER or "local[*]",
        "lines": LINES,
        "parse_floor_lines_per_s": round(WARM_UP / floor),
        "audit_lines_per_s": round(LINES / audit_s),
        "plain_process_lines_per_s": round(plain),
        "audit_to_floor": round(LINES / audit_s * floor / WARM_UP, 2),
        "audit_to_plain_process": round(LINES / audit_s / plain, 2),
        "audit_to_json_loads": round(LINES / audit_s / of_model["json_loads_lines_per_s"], 2),
        "reconciled": not found,
        "problems": found,
        "model": of_model,
    }
    print(json.dumps(result, indent=2))
    return 1 if found else 0


def _load(cluster: Cluster, messages: Iterable[Line]) -> None:
    producer = Producer(
        {
            **cluster.client_settings(),
            "linger.ms": 50,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
        }
    )
    for line in messages:
        while True:
            try:
                producer.produce(TOPIC, line.text, str(line.broker_id).encode(), partition=line.broker_id - 1)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def _wait(job: subprocess.Popen[bytes], root: Path, requests: int) -> None:
    """Until so many requests are in `decisions`."""
    give_up_s = time.monotonic() + _WITHIN_S
    while requests_decided(root / "tables") < requests:
        if job.poll() is not None or time.monotonic() > give_up_s:
            sys.stderr.write((root / "job.log").read_text(encoding="utf-8", errors="replace")[-4_000:])
            raise SystemExit(f"the job has ended, or has not come to {requests:,} requests in {_WITHIN_S} s")
        time.sleep(2)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
