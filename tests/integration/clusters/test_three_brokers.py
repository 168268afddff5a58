"""Three brokers of Kafka 3.7.2: a quota holds on each, so the audit judges each; what a client used is the sum."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from kquota_spark.config.loader import load_settings
from kquota_spark.embedded.admin import alter_quota, create_topics
from kquota_spark.embedded.cluster import Broker, Cluster, embedded_cluster, logged_lines
from kquota_spark.embedded.demo.load import ClientPlan, run_load
from kquota_spark.embedded.setup.jars import find_jars
from kquota_spark.store.reading import query
from tests.support.spark.quick import QUICK
from tests.tools import OLDEST_KAFKA

LIMIT = 100_000
RATES = {0: 300_000, 1: 60_000, 2: 30_000}
"""By partition: together far above the limit, and yet only the leader of the first one throttles."""
SECONDS = 12.0
_CONFIG = """\
cluster_id: three
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka: {{bootstrap_servers: "{bootstrap}", topic: log}}
quotas: {{zookeeper_connect: "{zookeeper}"}}
stream: {{shuffle_partitions: 2}}
ship: {{files: {files}, state_dir: {root}/ship}}
"""
_JUDGED = """
select broker_id, sum(observed_throttled_requests) as throttled, sum(observed_total_throttle_ms) as throttle_ms,
       sum(requests_judged) as judged, sum(false_positive + false_negative) as wrong
from decisions where bucket_client_id = 'etl' and quota_type = 'produce' group by broker_id order by broker_id
"""
_USED = """
select broker_id, sum(requests) as requests, sum(amount) as amount
from usage where client_id = 'etl' and quota_type = 'produce' group by broker_id order by broker_id
"""
_CHARGED = "select sum(charged_bytes) from requests where client_id = 'etl' and quota_type = 'produce'"


class Logged(NamedTuple):
    """What a broker's own log says of the client."""

    requests: int
    throttled: int
    throttle_ms: int


def logged(broker: Broker) -> Logged:
    found: Counter[str] = Counter()
    for line in logged_lines(broker.request_log):
        if b'"requestApiKeyName":"PRODUCE"' in line and b'"clientId":"etl"' in line:
            text = line.partition(b"Completed request:")[2].rpartition(b" (")[0]
            throttle_ms = json.loads(text)["response"]["throttleTimeMs"]
            found.update(requests=1, throttled=int(throttle_ms > 0), throttle_ms=throttle_ms)
    return Logged(found["requests"], found["throttled"], found["throttle_ms"])


def leaders(cluster: Cluster) -> dict[int, int]:
    """The broker that leads each partition."""
    topic = AdminClient({**cluster.client_settings()}).list_topics("orders", timeout=60).topics["orders"]
    return {number: partition.leader for number, partition in topic.partitions.items()}


def kquota(config: Path, *words: str) -> None:
    variables = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"{shlex.join(QUICK)} pyspark-shell"}
    command = [sys.executable, "-m", "kquota_spark.cli.main", *words, "--config", str(config)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3_000:]


@pytest.mark.alone
def test_each_broker_is_judged_by_itself_and_usage_is_the_sum(tmp_path: Path) -> None:
    with embedded_cluster(tmp_path / "cluster", 3, jars=find_jars(OLDEST_KAFKA)) as cluster:
        create_topics(cluster, {"orders": 3, "log": 1})
        alter_quota(cluster, {"producer_byte_rate": LIMIT}, client_id="etl")
        led = leaders(cluster)
        assert sorted(led.values()) == [1, 2, 3]
        plans = [
            ClientPlan(
                "produce", "etl", "orders", rate, partitions=(number,), batch_bytes=8_000, stop_s=SECONDS
            )
            for number, rate in RATES.items()
        ]
        sent = sum(result.bytes for result in run_load(cluster, plans))
        config = tmp_path / "kquota.yaml"
        files = json.dumps([f"{broker.id}={broker.request_log}" for broker in cluster.brokers])
        text = _CONFIG.format(
            root=tmp_path,
            bootstrap=cluster.bootstrap_servers,
            zookeeper=cluster.zookeeper_connect,
            files=files,
        )
        config.write_text(text, encoding="utf-8")
        kquota(config, "ship", "--once", "--end")
        kquota(config, "audit", "--drain")
        own = {broker.id: logged(broker) for broker in cluster.brokers}
    settings = load_settings(config)

    def rows(table: str, sql: str) -> list[dict[str, Any]]:
        return query(settings, [table], sql).dicts()

    judged = {row["broker_id"]: row for row in rows("decisions", _JUDGED)}
    print(own, judged)
    assert {broker: (row["throttled"], row["throttle_ms"]) for broker, row in judged.items()} == {
        broker: (log.throttled, log.throttle_ms) for broker, log in own.items()
    }
    assert {broker for broker, log in own.items() if log.throttled} == {led[0]}
    assert own[led[0]].throttled >= 5
    assert {broker: row["wrong"] for broker, row in judged.items() if row["wrong"]}.keys() <= {led[0]}
    assert judged[led[0]]["wrong"] <= judged[led[0]]["judged"] // 50
    violated = query(settings, ["violations"], "select distinct broker_id from violations").rows
    assert violated == [(led[0],)]
    used = rows("usage", _USED)
    assert {row["broker_id"]: row["requests"] for row in used} == {
        broker: log.requests for broker, log in own.items()
    }
    [(charged,)] = query(settings, ["requests"], _CHARGED).rows
    total = sum(row["amount"] for row in used)
    assert total == charged
    assert sent <= total <= 1.2 * sent
