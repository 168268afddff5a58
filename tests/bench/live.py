"""A job beside a load as it comes: how late decisions are seen, its share of the cores, how soon the first is there.

python -m tests.bench.live 1000 "trigger: 1 s, allowed_lateness: 2 s"
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from deltalake import DeltaTable

from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.spark_home import linked_spark_home
from kquota_spark.embedded.topics import create_topics
from tests.bench.job import TOPIC, configured, running, spark_submit
from tests.bench.lines import BROKERS, START_MS, lines

SETTLED_S = float(os.environ.get("LIVE_SETTLED_S", "40"))
"""After the first decision, until what is compiled is compiled."""
MEASURED_S = float(os.environ.get("LIVE_MEASURED_S", "60"))
_TICK_S = 0.05


class Load:
    """Lines of now, so many a second, and a heartbeat of each broker every second.

    Args:
        cluster: whose topic.
        lines_per_s: how many.
    """

    def __init__(self, cluster: Cluster, lines_per_s: int) -> None:
        self._producer = Producer({**cluster.client_settings(), "linger.ms": 20})
        self._lines_per_s = lines_per_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        began_ms, sent, beats = _now_ms(), 0, 0
        while not self._is_over.wait(_TICK_S):
            due = (_now_ms() - began_ms) * self._lines_per_s // 1_000
            for line in lines(range(sent, due), began_ms - START_MS, self._lines_per_s):
                key = str(line.broker_id).encode()
                self._producer.produce(TOPIC, line.text, key, partition=line.broker_id - 1)
            sent = due
            if _now_ms() - began_ms >= beats * 1_000:
                beats += 1
                self._beat(_now_ms())
            self._producer.poll(0)
        self._producer.flush()

    def _beat(self, time_ms: int) -> None:
        text = f'{{"kquota_heartbeat":{{"time_ms":{time_ms},"is_end":false}}}}'.encode()
        for broker_id in range(1, BROKERS + 1):
            self._producer.produce(TOPIC, text, str(broker_id).encode(), partition=broker_id - 1)


class Seen(NamedTuple):
    """The newest second of `decisions`, and when it was first there; epoch ms."""

    second_ms: int
    at_ms: int


def follow(tables: Path, until_s: float) -> Iterator[Seen]:
    """Each newer second, as soon as a reader sees it."""
    table, version, newest_ms = None, -1, 0
    while time.time() < until_s:
        time.sleep(_TICK_S)
        if table is None:
            if not DeltaTable.is_deltatable(str(tables / "decisions")):
                continue
            table = DeltaTable(str(tables / "decisions"))
        table.update_incremental()
        if table.version() == version:
            continue
        version = table.version()
        actions = table.get_add_actions(flatten=True)
        if "max.second" not in actions.schema.names:
            continue
        found = max(
            (round(each.timestamp() * 1_000) for each in actions.column("max.second").to_pylist()), default=0
        )
        if found > newest_ms:
            newest_ms = found
            yield Seen(found, _now_ms())


def live_figures(lines_per_s: int, stream: str) -> dict[str, object]:
    """Run a job beside a load.

    Args:
        lines_per_s: the load.
        stream: the section of the configuration; empty for the defaults.
    """
    with tempfile.TemporaryDirectory(prefix="kquota-live-") as name:
        root = Path(name)
        os.environ["SPARK_HOME"] = str(linked_spark_home(root / "spark"))
        with embedded_cluster(root / "cluster") as cluster:
            config = configured(root, cluster, stream)
            create_topics(cluster, {TOPIC: BROKERS})
            with Load(cluster, lines_per_s):
                time.sleep(2)
                started_s = time.time()
                with running(spark_submit("jobs/audit.py", config), root / "job.log") as job:
                    return _measured(root, job.pid, started_s)


def _measured(root: Path, session: int, started_s: float) -> dict[str, object]:
    first = next(follow(root / "tables", started_s + 300), None)
    if first is None:
        raise SystemExit((root / "job.log").read_text(encoding="utf-8", errors="replace")[-4_000:])
    time.sleep(SETTLED_S)
    began_s, cpu_s = time.time(), _cpu_s(session)
    seen = list(follow(root / "tables", began_s + MEASURED_S))
    cores = (_cpu_s(session) - cpu_s) / (time.time() - began_s)
    # The requests of a second are spread over it, ten of them stand for all.
    late_s = sorted(
        (after.at_ms - second_ms - part * 100) / 1_000
        for before, after in pairwise(seen)
        for second_ms in range(before.second_ms + 1_000, after.second_ms + 1_000, 1_000)
        for part in range(10)
    )
    return {
        "first_decision_s": round(first.at_ms / 1_000 - started_s, 1),
        "latency_s": {
            f"p{percent}": round(late_s[len(late_s) * percent // 100], 1) for percent in (50, 95, 99)
        },
        "cores": round(cores, 2),
    }


def _cpu_s(session: int) -> float:
    """CPU of all processes of a session so far, those included that have ended."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> int:
    """Print the figures."""
    lines_per_s, stream = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    print(
        json.dumps(
            {"lines_per_s": lines_per_s, "stream": stream or "defaults", **live_figures(lines_per_s, stream)}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
