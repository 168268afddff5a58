"""Messages with times of their producer's choice: their topics are refused unless asked for.

Then there is no date of the far future, and a message that stops Spark can be removed.
"""

from __future__ import annotations

import time
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
kafka: {{bootstrap_servers: "{bootstrap}", topic: {topic}, allow_create_time: {allowed}}}
quotas: {{source: file, file: {root}/quotas.yaml}}
"""


BY_HOSTS = {"message.timestamp.type": "CreateTime"}


def configured(cluster: Cluster, root: Path, topic: str, *, is_allowed: bool) -> Path:
    (root / "quotas.yaml").write_text(QUOTAS, encoding="utf-8")
    allowed = str(is_allowed).lower()
    text = _CONFIG.format(root=root, bootstrap=cluster.bootstrap_servers, topic=topic, allowed=allowed)
    config = root / "kquota.yaml"
    config.write_text(text, encoding="utf-8")
    return config


def test_a_topic_of_times_of_the_producers_choice_is_refused_before_anything_is_read(
    zookeeper_cluster: Cluster, tmp_path: Path
) -> None:
    create_topics(zookeeper_cluster, {"kquota.by-hosts": 1}, config=BY_HOSTS)
    config = configured(zookeeper_cluster, tmp_path, "kquota.by-hosts", is_allowed=False)
    with started(config) as refused:
        assert refused.wait(RUN_S) == 1
    *_, said = (tmp_path / "audit.log").read_text(encoding="utf-8").splitlines()
    assert "topic kquota.by-hosts: message.timestamp.type is CreateTime" in said
    assert not (tmp_path / "tables").exists()
    create_topics(zookeeper_cluster, {"kquota.by-kafka": 1})
    producer = Producer(zookeeper_cluster.client_settings())
    for line in lines(range(10), lines_per_s=10):
        # Kafka puts its own time in the place of this one, which would stop Spark.
        producer.produce("kquota.by-kafka", line.text, str(line.broker_id).encode(), timestamp=2**62)
    producer.flush()
    finish(configured(zookeeper_cluster, tmp_path, "kquota.by-kafka", is_allowed=False))
    assert DeltaTable(str(tmp_path / "tables" / "requests")).to_pyarrow_table().num_rows == 10


def test_a_time_beyond_all_calendars_is_clamped_or_told(zookeeper_cluster: Cluster, tmp_path: Path) -> None:
    cluster = zookeeper_cluster
    create_topics(cluster, {TOPIC: 1}, config=BY_HOSTS)
    config = configured(cluster, tmp_path, TOPIC, is_allowed=True)
    producer = Producer(cluster.client_settings())
    for stamp_ms in (2**62, 1, 10**15):
        producer.produce(TOPIC, b"no line", b"1", timestamp=stamp_ms)
    for line in lines(range(10), lines_per_s=10):
        producer.produce(TOPIC, line.text, str(line.broker_id).encode(), timestamp=START_MS + 60_000)
    producer.flush()
    with started(config) as failing:
        assert failing.wait(RUN_S) == 1
    *_, said = (tmp_path / "audit.log").read_text(encoding="utf-8").splitlines()
    assert said.endswith(
        f"topic {TOPIC} partition 0 offset 0 has a time that Spark cannot hold. Set message.timestamp.type="
        "LogAppendTime on the topic, and remove the message with kafka-delete-records.sh (offset 1); lines before it "
        "that were not read are then gaps"
    )
    admin = AdminClient({**cluster.client_settings()})
    admin.delete_records([TopicPartition(TOPIC, 0, 1)])[TopicPartition(TOPIC, 0)].result()
    finish(config)
    rows: list[dict[str, Any]] = (
        DeltaTable(str(tmp_path / "tables" / "requests")).to_pyarrow_table().to_pylist()
    )
    stamps = sorted(row["kafka_timestamp_ms"] for row in rows if row["kind"] == "unreadable")
    assert stamps == [1, END_MS]
    assert len([row for row in rows if row["kind"] == "request"]) == 10


def test_a_job_whose_clock_is_behind_that_of_the_brokers_ends_with_one_line(
    zookeeper_cluster: Cluster, tmp_path: Path
) -> None:
    topic = "kquota.clock-behind"
    create_topics(zookeeper_cluster, {topic: 1}, config=BY_HOSTS)
    config = configured(zookeeper_cluster, tmp_path, topic, is_allowed=True)
    # All brokers are ten minutes ahead of this machine, as they are when it is ten minutes behind.
    ahead_ms = time.time_ns() // 1_000_000 + 600_000
    producer = Producer(zookeeper_cluster.client_settings())
    for each in lines(range(10), ahead_ms - START_MS, lines_per_s=10):
        producer.produce(topic, each.text, str(each.broker_id).encode(), timestamp=ahead_ms)
    producer.flush()
    with started(config, job=("audit.py", "--once")) as ended:
        assert ended.wait(RUN_S) == 1
    *_, said = (tmp_path / "audit.log").read_text(encoding="utf-8").splitlines()
    assert (
        "brokers are ahead of the clock of this machine, so it is behind: set it (NTP) and start again"
        in said
    )
    table = DeltaTable(str(tmp_path / "tables" / "requests")).to_pyarrow_table(columns=["is_out_of_time"])
    assert table["is_out_of_time"].to_pylist() == [True] * 10
