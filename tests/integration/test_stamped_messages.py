"""Messages with times of their producer's choice: no date of the far future; what stops Spark can be removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.model.quotas.rules import END_MS
from tests.bench.lines import QUOTAS, START_MS, lines
from tests.support.clusters.audited_topic import RUN_S, finish, started

TOPIC = "kquota.stamped"
_CONFIG = """\
cluster_id: stamped
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka: {{bootstrap_servers: "{bootstrap}", topic: {topic}}}
quotas: {{source: file, file: {root}/quotas.yaml}}
"""


def test_a_time_beyond_all_calendars_is_clamped_or_told(zookeeper_cluster: Cluster, tmp_path: Path) -> None:
    cluster = zookeeper_cluster
    create_topics(cluster, {TOPIC: 1})
    (tmp_path / "quotas.yaml").write_text(QUOTAS, encoding="utf-8")
    config = tmp_path / "kquota.yaml"
    text = _CONFIG.format(root=tmp_path, bootstrap=cluster.bootstrap_servers, topic=TOPIC)
    config.write_text(text, encoding="utf-8")
    producer = Producer(cluster.client_settings())
    for stamp_ms in (1, 10**15):
        producer.produce(TOPIC, b"no line", b"1", timestamp=stamp_ms)
    producer.flush()
    finish(config)
    producer.produce(TOPIC, b"no line", b"1", timestamp=2**62)
    for line in lines(range(10), lines_per_s=10):
        producer.produce(TOPIC, line.text, str(line.broker_id).encode(), timestamp=START_MS + 60_000)
    producer.flush()
    with started(config) as failing:
        assert failing.wait(RUN_S) == 1
    *_, said = (tmp_path / "audit.log").read_text(encoding="utf-8").splitlines()
    assert said.endswith(
        f"topic {TOPIC} partition 0 offset 2 has a time that Spark cannot hold. Set message.timestamp.type="
        "LogAppendTime on the topic, and remove the message with kafka-delete-records.sh (offset 3); lines before it "
        "that were not read are then gaps"
    )
    admin = AdminClient({**cluster.client_settings()})
    admin.delete_records([TopicPartition(TOPIC, 0, 3)])[TopicPartition(TOPIC, 0)].result()
    finish(config)
    rows: list[dict[str, Any]] = (
        DeltaTable(str(tmp_path / "tables" / "requests")).to_pyarrow_table().to_pylist()
    )
    stamps = sorted(row["kafka_timestamp_ms"] for row in rows if row["kind"] == "unreadable")
    assert stamps == [1, END_MS]
    assert len([row for row in rows if row["kind"] == "request"]) == 10
