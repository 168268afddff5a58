"""A cluster without a request log: a real broker's Jolokia agent, `kquota collect jmx`, the job, its tables."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from kquota_spark.collect.agents import PATTERNS
from kquota_spark.config.loader import load_settings
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.demo.load import ClientPlan
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.store.reading import query
from tests.support.clusters.pressing import sending
from tests.support.clusters.waiting import until
from tests.support.clusters.zookeeper_edits import set_quota
from tests.support.places import ROOT
from tests.support.spark.quick import QUICK

LIMIT = 100_000
# A quoted client id, and one whose limit is of another level.
OVER, UNDER = 'over;the "limit"', "under"
_CONFIG = """\
cluster_id: test
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka: {{bootstrap_servers: "{bootstrap}", topic: "", jmx_topic: jmx}}
quotas: {{zookeeper_connect: "{zookeeper}"}}
collect: {{jmx: {{brokers: {brokers}, interval: 1 s}}}}
"""
_THROTTLED = re.compile(rb'"throttleTimeMs":[1-9]')
_SUBMIT = str(Path(sys.executable).with_name("spark-submit"))


def _config(root: Path, cluster: Cluster, away: str) -> Path:
    brokers = {str(broker.id): broker.jolokia_url for broker in cluster.brokers} | {"7": away}
    path = root / "kquota.yaml"
    text = _CONFIG.format(
        root=root,
        bootstrap=cluster.bootstrap_servers,
        zookeeper=cluster.zookeeper_connect,
        brokers=json.dumps(brokers),
    )
    path.write_text(text, encoding="utf-8")
    return path


def _run(*command: str) -> str:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(ROOT / "conf")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3_000:]
    return done.stdout


def _kquota(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kquota_spark.cli.main", *arguments]


def _plans() -> list[ClientPlan]:
    return [
        ClientPlan("produce", OVER, "orders", 3 * LIMIT, stop_s=300.0, batch_bytes=8_000),
        ClientPlan("produce", UNDER, "orders", 0.2 * LIMIT, stop_s=300.0, batch_bytes=8_000),
    ]


def _messages(cluster: Cluster) -> int:
    """How many the collector has sent."""
    consumer = Consumer({**cluster.client_settings(), "group.id": "count"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition("jmx", 0), timeout=60)[1])
    finally:
        consumer.close()


def _load_until_it_shows(cluster: Cluster) -> None:
    """Until the broker has throttled somebody, and was polled some times after that."""
    with sending(cluster, _plans()) as results:
        log = cluster.brokers[0].request_log
        until(lambda: bool(_THROTTLED.search(log.read_bytes())))
        enough = _messages(cluster) + 5 * len(PATTERNS)
        until(lambda: _messages(cluster) >= enough)
    results.result()


def test_a_cluster_without_a_request_log_is_audited_from_jmx(tmp_path: Path) -> None:
    with embedded_cluster(tmp_path / "cluster", settings=BrokerSettings(jolokia=True)) as cluster:
        create_topics(cluster, {"orders": 1, "jmx": 1})
        set_quota(cluster.zookeeper_connect, client_id=OVER, producer_byte_rate=LIMIT)
        set_quota(cluster.zookeeper_connect, client_id=UNDER, producer_byte_rate=LIMIT)
        config = _config(tmp_path, cluster, "http://127.0.0.1:1/jolokia")
        before = _run(*_kquota("doctor", "--before", "--all", "--config", str(config)))
        collector = subprocess.Popen(
            _kquota("collect", "jmx", "--config", str(config)), stderr=subprocess.PIPE, text=True
        )
        try:
            _load_until_it_shows(cluster)
            collector.send_signal(signal.SIGTERM)
            _, said = collector.communicate(timeout=120)
        finally:
            collector.kill()
        assert collector.returncode == 0, said
        # A broker that is away is said once, and does not keep the other from being collected.
        assert said.count("broker 7 at http://127.0.0.1:1/jolokia gives no metrics") == 1
        _run(_SUBMIT, *QUICK, "--driver-memory", "2g", "jobs/audit.py", "--config", str(config), "--once")
        doctor = _run(*_kquota("doctor", "--all", "--config", str(config)))

    settings = load_settings(config)
    kinds = query(settings, ["jmx_samples"], "select kind, count(*) > 20 from jmx_samples group by all")
    assert kinds.rows == [("sample", True)]
    decisions = query(
        settings,
        ["decisions"],
        "select bucket_client_id, any_value(rule), any_value(level), max(limit_per_s), max(quota_used_percent) > 100,"
        " max(observed_throttle_ms) > 0, bool_or(is_certain), any_value(source) from decisions"
        " where quota_type = 'produce' and limit_per_s is not null group by all order by 1",
    )
    assert decisions.rows == [
        (OVER, "clients/over%3Bthe%20%22limit%22", 7, LIMIT, True, True, False, "jmx"),
        (UNDER, f"clients/{UNDER}", 7, LIMIT, False, None, False, "jmx"),
    ]
    violations = query(
        settings, ["violations"], "select bucket_client_id, source, throttled_ms from violations"
    )
    assert violations.rows == [(OVER, "jmx", None)]
    rates = query(settings, ["usage"], "select distinct source, amount from usage")
    assert rates.rows == [("jmx", None)]
    assert "JMX topic" in before
    assert "JMX judged" in doctor
