"""Memory is bounded by the settings, not by what clients send: a million client ids, 100,000 rules, lines of 5 MB."""

from __future__ import annotations

from pathlib import Path

import duckdb
from confluent_kafka import Producer
from deltalake import DeltaTable

from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from tests.bench.lines import START_MS, Population, lines
from tests.bench.processes import PeakMemory
from tests.support.clusters.audited_topic import started

TOPIC = "kquota.flooded"
LINES, RULES, HUGE = 1_000_000, 100_000, 20
LINES_PER_S = 10_000  # 100 s of log time
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


def test_peaks_stay_below_what_the_settings_allow(cluster: Cluster, tmp_path: Path) -> None:
    _fill(cluster)
    rules = (
        f"- {{user: owner-{number}, client_id: null, type: producer_byte_rate, value: 1000}}\n"
        for number in range(RULES)
    )
    default = "- {user: null, client_id: <default>, type: producer_byte_rate, value: 1000}\n"
    (tmp_path / "quotas.yaml").write_text("".join([default, *rules]), encoding="utf-8")
    config = tmp_path / "kquota.yaml"
    text = _CONFIG.format(root=tmp_path, bootstrap=cluster.bootstrap_servers, topic=TOPIC)
    config.write_text(text, encoding="utf-8")
    with started(config, "--driver-memory", HEAP, *AS_IN_PRODUCTION) as job, PeakMemory(job.pid) as peak:
        assert job.wait(RUN_S) == 0, (tmp_path / "audit.log").read_text(encoding="utf-8")[-3_000:]
    print({kind: f"{size >> 20:,} MiB" for kind, size in peak.bytes_by_kind.items()})
    assert {kind: size for kind, size in peak.bytes_by_kind.items() if size > MOST_BYTES[kind]} == {}
    counts = duckdb.connect()
    for name in ("requests", "usage", "decisions"):
        counts.register(name, DeltaTable(str(tmp_path / "tables" / name)).to_pyarrow_dataset())
    kinds = counts.execute("select kind, count(*) from requests group by all order by all").fetchall()
    assert kinds == [("request", LINES), ("unreadable", HUGE)]
    [(ids,)] = counts.execute("select count(distinct client_id) from usage").fetchall()
    # 90 % of the lines count for a bandwidth quota, and each is of a client of its own.
    assert ids > LINES // 2
    assert counts.execute("select sum(requests) from usage where quota_type = 'produce'").fetchall() == [
        (LINES // 2,)
    ]


def _fill(cluster: Cluster) -> None:
    create_topics(cluster, {TOPIC: 2}, config={"max.message.bytes": str(2 * HUGE_BYTES)})
    producer = Producer({**cluster.client_settings(), "message.max.bytes": 2 * HUGE_BYTES, "linger.ms": 50})
    population = Population(LINES, LINES)
    huge = b'[2026-11-21 05:40:00,000] DEBUG Completed request:{"requestHeader":' + b"x" * HUGE_BYTES
    for index, line in enumerate(lines(range(LINES), lines_per_s=LINES_PER_S, population=population)):
        if index % (LINES // HUGE) == 0:
            _send(producer, huge, line.broker_id)
        _send(producer, line.text, line.broker_id)
    producer.flush()


def _send(producer: Producer, text: bytes, broker_id: int) -> None:
    while True:
        try:
            producer.produce(
                TOPIC, text, str(broker_id).encode(), partition=broker_id % 2, timestamp=START_MS + 600_000
            )
        except BufferError:
            producer.poll(0.1)
        else:
            return
