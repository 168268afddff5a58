"""What expires in Kafka between two runs of the audit: the second ends well, and says what it lacks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.schema.gap_tables import EXPIRED_UNREAD
from tests.bench.lines import QUOTAS, START_MS, Line, lines
from tests.support.clusters.audited_topic import finish
from tests.support.logs.jmx_messages import telegraf

TOPIC, JMX_TOPIC = "kquota.expiring", "kquota.expiring-jmx"
LINES_PER_S = 50
SHIPPED_MS = START_MS + 3_600_000
_CONFIG = """\
cluster_id: expiring
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka: {{bootstrap_servers: "{bootstrap}", topic: {topic}, jmx_topic: {jmx_topic}}}
quotas: {{source: file, file: {root}/quotas.yaml}}
stream: {{allowed_lateness: 5 s}}
"""


@pytest.fixture(scope="module")
def cluster(zookeeper_cluster: Cluster) -> Cluster:
    create_topics(zookeeper_cluster, {TOPIC: 2, JMX_TOPIC: 1})
    return zookeeper_cluster


def fill(cluster: Cluster, written: Iterator[Line], count: int) -> None:
    """Send the next lines; brokers 2 and 4 to partition 0, the others to 1."""
    producer = Producer(cluster.client_settings())
    for line in islice(written, count):
        key = str(line.broker_id).encode()
        producer.produce(TOPIC, line.text, key, partition=line.broker_id % 2, timestamp=SHIPPED_MS)
    producer.flush()


def rows(root: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(root / "tables" / name)).to_pyarrow_table().to_pylist()
    return found


def sample(cluster: Cluster, seconds: range) -> None:
    """Send a sample of a broker without a log for each second."""
    producer = Producer(cluster.client_settings())
    for second in seconds:
        rate = {"byte-rate": 500.0, "throttle-time": 0.0}
        time_s = START_MS // 1_000 + second
        message = telegraf("kafka_quota_produce", rate, time=time_s, broker="11", user="meter")
        producer.produce(JMX_TOPIC, message, timestamp=SHIPPED_MS)
    producer.flush()


def expire(cluster: Cluster, topic: str) -> int:
    """Delete what the first partition of a topic holds; its first offset."""
    admin = AdminClient({**cluster.client_settings()})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, -1)]).values()
    return int(deleted.result().low_watermark)


class Audited(NamedTuple):
    """Two runs, between which lines and samples expired."""

    root: Path
    read: int
    """Lines of partition 0 that the first run has read."""
    first: int
    """The first line of partition 0 that was left for the second."""


@pytest.fixture(scope="module")
def audited(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    root = tmp_path_factory.mktemp("expired")
    (root / "quotas.yaml").write_text(QUOTAS, encoding="utf-8")
    config = root / "kquota.yaml"
    text = _CONFIG.format(root=root, bootstrap=cluster.bootstrap_servers, topic=TOPIC, jmx_topic=JMX_TOPIC)
    config.write_text(text, encoding="utf-8")
    written = lines(range(3_000), lines_per_s=LINES_PER_S)
    fill(cluster, written, 800)  # 16 s
    sample(cluster, range(16))
    finish(config, job=("audit.py", "--once"))
    read = [row for row in rows(root, "requests") if row["partition"] == 0]
    fill(cluster, written, 400)  # 8 s, of which partition 0 loses its part
    sample(cluster, range(16, 24))
    first = expire(cluster, TOPIC)
    assert expire(cluster, JMX_TOPIC) == 24
    fill(cluster, written, 1_800)  # 36 s
    sample(cluster, range(24, 60))
    finish(config)
    return Audited(root, len(read), first)


def test_the_run_after_samples_expired_ends_well_and_prints_how_many(audited: Audited) -> None:
    said = (audited.root / "audit.log").read_text(encoding="utf-8")
    assert f"{JMX_TOPIC} partition 0: 8 JMX messages from offset 16 on expired before they were read" in said
    offsets = sorted(row["kafka_offset"] for row in rows(audited.root, "jmx_samples"))
    assert offsets == [*range(16), *range(24, 60)]


def test_the_run_after_the_hole_ends_well_and_its_verdicts_are_uncertain_for_the_horizon(
    audited: Audited,
) -> None:
    root, read, first = audited
    lost = first - read
    assert lost > 100
    said = (root / "audit.log").read_text(encoding="utf-8")
    assert f"{TOPIC} partition 0: {lost} offsets from {read} on expired before they were read" in said
    requests = [row for row in rows(root, "requests") if row["partition"] == 0]
    expected = {}
    for broker_id in (2, 4):
        times_ms = {
            row["kafka_offset"]: row["record_time_ms"] for row in requests if row["broker_id"] == broker_id
        }
        before_ms = max(time_ms for offset, time_ms in times_ms.items() if offset < read)
        expected[broker_id] = before_ms, min(t for offset, t in times_ms.items() if offset >= first)
    gaps = {
        row["broker_id"]: tuple(round(row[name].timestamp() * 1_000) for name in ("from_time", "to_time"))
        for row in rows(root, "log_gaps")
        if row["reason"] == EXPIRED_UNREAD
    }
    assert gaps == expected
    certain: dict[tuple[int, str], int] = {}
    for row in rows(root, "decisions"):
        if row["broker_id"] in (2, 4):
            from_ms, to_ms = gaps[row["broker_id"]]
            place = _place(row["second"], from_ms, to_ms + 12_000)
            certain[row["broker_id"], place] = certain.get((row["broker_id"], place), 0) + row["is_certain"]
    for broker_id in (2, 4):
        assert certain[broker_id, "inside"] == 0
        assert certain[broker_id, "after"] > 50
    assert certain[2, "before"] > 50  # broker 4's log does not begin with its start


def _place(second: dt.datetime, from_ms: int, until_ms: int) -> str:
    """Seconds that reach into both are left to other tests."""
    second_ms = round(second.timestamp() * 1_000)
    if second_ms + 1_000 <= from_ms:
        return "before"
    if second_ms >= until_ms:
        return "after"
    return "inside" if from_ms <= second_ms and second_ms + 1_000 <= until_ms else "edge"
