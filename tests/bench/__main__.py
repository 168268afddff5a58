"""`make bench`: lines per second of the whole audit, against the parse-only floor of the same run.

A preloaded topic of generated lines on a real broker; every hop works through it in turn by spark-submit, as
`jobs/audit.py --drain` does. A figure counts only when `decisions` reconciles with the input, line for line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import duckdb
from confluent_kafka import Producer
from deltalake import DeltaTable

from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.topics import create_topics
from tests.bench.lines import BROKERS, COUNTED_OF_20, QUOTAS, lines

LINES = int(os.environ.get("BENCH_LINES", "2000000"))
TOPIC = "kquota.bench"
_ROOT = Path(__file__).parents[2]
_HOP = re.compile(r"^(\w+): ([\d,]+) rows read in ([\d.]+) s(?: \(([\d,]+) a second)?", re.MULTILINE)
_FLOOR = re.compile(r"^floor: ([\d.]+) s", re.MULTILINE)

_CONFIG = """\
cluster_id: bench
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka: {{bootstrap_servers: "{bootstrap}", topic: {topic}}}
quotas: {{source: file, file: {root}/quotas.yaml}}
# One commit of the hop before is one micro-batch, as in a job that keeps up.
stream: {{max_files_per_trigger: 2}}
"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kquota-bench-") as name:
        root = Path(name)
        with embedded_cluster(root / "cluster") as cluster:
            loaded_s = _load(cluster)
            config = root / "kquota.yaml"
            config.write_text(
                _CONFIG.format(root=root, bootstrap=cluster.bootstrap_servers, topic=TOPIC), encoding="utf-8"
            )
            (root / "quotas.yaml").write_text(QUOTAS, encoding="utf-8")
            print(f"loaded {LINES:,} lines in {loaded_s:.0f} s; floor, then the audit", file=sys.stderr)
            floor_s = float(_FLOOR.findall(_submit("tests/bench/floor.py", config))[-1])
            hops = _hops(_submit("jobs/audit.py", config, "--drain"))
            problems = _reconcile(root / "tables")
    steady_s = sum(hop.steady_s for hop in hops)
    result = {
        "lines": LINES,
        "parse_floor_lines_per_s": round(LINES / floor_s),
        "hops_lines_per_s": {hop.name: round(LINES / hop.steady_s) for hop in hops},
        "audit_lines_per_s": round(LINES / steady_s),
        "audit_to_floor": round(floor_s / steady_s, 3),
        "with_first_batches_lines_per_s": round(LINES / sum(hop.total_s for hop in hops)),
        "reconciled": not problems,
        "problems": problems,
    }
    print(json.dumps(result, indent=2))
    return 1 if problems else 0


class Hop(NamedTuple):
    """Seconds that all lines take one hop: as they went by, and at the rate after its first micro-batch."""

    name: str
    total_s: float
    steady_s: float


def _hops(printed: str) -> list[Hop]:
    """Rows of judge are rows of usage, of episodes decisions; as shares of a hop's input all are lines."""
    hops = []
    for name, rows, seconds, rate in _HOP.findall(printed):
        total_s = float(seconds)
        steady_s = int(rows.replace(",", "")) / int(rate.replace(",", "")) if rate else total_s
        hops.append(Hop(name, total_s, steady_s))
    return hops


def _load(cluster: Cluster) -> float:
    create_topics(cluster, {TOPIC: BROKERS})
    producer = Producer(
        {
            **cluster.client_settings(),
            "linger.ms": 50,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
        }
    )
    started_s = time.monotonic()
    for line in lines(LINES):
        while True:
            try:
                producer.produce(TOPIC, line.text, str(line.broker_id).encode(), partition=line.broker_id - 1)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    return time.monotonic() - started_s


def _submit(script: str, config: Path, *arguments: str) -> str:
    """Run a script by spark-submit and return what it printed (spark-submit joins its stderr to stdout)."""
    spark_submit = Path(sys.executable).with_name("spark-submit")
    command = [str(spark_submit), "--driver-memory", "6g", script, "--config", str(config), *arguments]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(_ROOT),
        "SPARK_CONF_DIR": str(_ROOT / "conf"),
    }
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write((done.stdout + done.stderr)[-4_000:])
        raise SystemExit(f"{script} ended with {done.returncode}")
    return done.stdout


def _reconcile(tables: Path) -> list[str]:
    """What does not add up between the generated lines and the tables."""
    decisions = DeltaTable(str(tables / "decisions")).to_pyarrow_dataset()
    requests = DeltaTable(str(tables / "requests")).to_pyarrow_dataset()
    assert decisions is not None and requests is not None
    query = duckdb.connect().execute
    judged = dict(query("SELECT quota_type, sum(requests)::BIGINT FROM decisions GROUP BY 1").fetchall())
    amounts = dict(query("SELECT quota_type, sum(amount)::BIGINT FROM decisions GROUP BY 1").fetchall())
    charged = dict(
        query("SELECT quota_type, sum(charged_bytes)::BIGINT FROM requests WHERE kind = 'request' "
              "AND quota_type IS NOT NULL GROUP BY 1").fetchall()
    )  # fmt: skip
    kinds = dict(query("SELECT kind, count(*) FROM requests GROUP BY 1").fetchall())
    problems = []
    if kinds.get("request") != LINES:
        problems.append(f"requests: {kinds}, expected {LINES} requests")
    for quota_type, of_20 in COUNTED_OF_20.items():
        expected = LINES // 20 * of_20
        if judged.get(quota_type) != expected:
            problems.append(f"decisions: {judged.get(quota_type)} {quota_type}, expected {expected}")
        if amounts.get(quota_type) != charged.get(quota_type):
            problems.append(
                f"bytes of {quota_type}: {amounts.get(quota_type)}, charged {charged.get(quota_type)}"
            )
    return problems


if __name__ == "__main__":
    sys.exit(main())
