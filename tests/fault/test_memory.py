"""Memory is bounded by the settings, not by what clients send: client ids without end, 100,000 rules, lines of 5 MB.

By hand there are a million client ids, otherwise 200,000: the peaks are the same.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from tests.bench.lines import START_MS, Population, lines
from tests.bench.processes import Watch
from tests.support.clusters.audited_topic import started

TOPIC = "kquota.flooded-{lines}"
RULES, HUGE = 100_000, 20
LINES_PER_S = 10_000  # 20 s or 100 s of log time
HUGE_BYTES = 5_000_000
HEAP = "1500m"
AS_IN_PRODUCTION = (
    *("--conf", "spark.driver.defaultJavaOptions="),
    *("--conf", "spark.sql.codegen.wholeStage=true"),
    *("--conf", "spark.sql.codegen.factoryMode=FALLBACK"),
)
"""A run of minutes gains from what the JVM compiles."""
RUN_S = 1_500.0  # four times what a quiet machine takes: the claim is about memory
MOST_BYTES = {"jvm": 3_000 << 20, "driver": 1_500 << 20, "workers": 3_000 << 20}
"""Twice the heap for the JVM, with its code and buffers; the driver's watcher reads the rules; two workers of each
stage and the daemons, pages that they share counted for each."""
_CONFIG = """\
cluster_id: flooded
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka: {{bootstrap_servers: "{bootstrap}", topic: {topic}, max_lines_per_trigger: 200000}}
quotas: {{source: file, file: {root}/quotas.yaml}}
stream: {{allowed_lateness: 5 s}}
"""


@pytest.mark.parametrize("count", [200_000, pytest.param(1_000_000, marks=pytest.mark.by_hand)])
def test_peaks_stay_below_what_the_settings_allow(cluster: Cluster, tmp_path: Path, count: int) -> None:
    topic = TOPIC.format(lines=count)
    _fill(cluster, topic, count)
    rules = (
        f"- {{user: owner-{number}, client_id: null, type: producer_byte_rate, value: 1000}}\n"
        for number in range(RULES)
    )
    default = "- {user: null, client_id: <default>, type: producer_byte_rate, value: 1000}\n"
    (tmp_path / "quotas.yaml").write_text("".join([default, *rules]), encoding="utf-8")
    config = tmp_path / "kquota.yaml"
    text = _CONFIG.format(root=tmp_path, bootstrap=cluster.bootstrap_servers, topic=topic)
    config.write_text(text, encoding="utf-8")
    with started(config, "--driver-memory", HEAP, *AS_IN_PRODUCTION) as job, Watch(job.pid) as peak:
        assert job.wait(RUN_S) == 0, (tmp_path / "audit.log").read_text(encoding="utf-8")[-3_000:]
    print({kind: f"{size >> 20:,} MiB" for kind, size in peak.bytes_by_kind.items()})
    assert {kind: size for kind, size in peak.bytes_by_kind.items() if size > MOST_BYTES[kind]} == {}
    counts = duckdb.connect()
    for name in ("requests", "usage", "decisions"):
        counts.register(name, DeltaTable(str(tmp_path / "tables" / name)).to_pyarrow_dataset())
    kinds = counts.execute("select kind, count(*) from requests group by all order by all").fetchall()
    assert kinds == [("request", count), ("unreadable", HUGE)]
    [(ids,)] = counts.execute("select count(distinct client_id) from usage").fetchall()
    # 90 % of the lines count for a bandwidth quota, and each is of a client of its own.
    assert ids > count // 2
    assert counts.execute("select sum(requests) from usage where quota_type = 'produce'").fetchall() == [
        (count // 2,)
    ]


def _fill(cluster: Cluster, topic: str, count: int) -> None:
    create_topics(cluster, {topic: 2}, config={"max.message.bytes": str(2 * HUGE_BYTES)})
    producer = Producer({**cluster.client_settings(), "message.max.bytes": 2 * HUGE_BYTES, "linger.ms": 50})
    population = Population(count, count)
    huge = b'[2026-11-21 05:40:00,000] DEBUG Completed request:{"requestHeader":' + b"x" * HUGE_BYTES
    for index, line in enumerate(lines(range(count), lines_per_s=LINES_PER_S, population=population)):
        if index % (count // HUGE) == 0:
            _send(producer, topic, huge, line.broker_id)
        _send(producer, topic, line.text, line.broker_id)
    producer.flush()


def _send(producer: Producer, topic: str, text: bytes, broker_id: int) -> None:
    while True:
        try:
            producer.produce(
                topic, text, str(broker_id).encode(), partition=broker_id % 2, timestamp=START_MS + 600_000
            )
        except BufferError:
            producer.poll(0.1)
        else:
            return
