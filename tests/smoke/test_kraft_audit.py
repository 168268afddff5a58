"""A KRaft cluster audited from end to end: quotas by polling, windows by asking, the request log by shipping."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kquota_spark.cli.check.replay_results import summary_of
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Kafka, Quotas, Settings
from kquota_spark.embedded.admin import alter_quota, create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.demo.load import ClientPlan, run_load
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.kafka.broker_configs import BrokerConfigs, stored_configs
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.sources import from_tables
from kquota_spark.quotas.watch import Watcher
from kquota_spark.replay.files import replay_files
from tests.support.clusters.few_wrong import few_are_wrong
from tests.support.clusters.quota_nodes import until_known

LOG_TOPIC = "kquota.request-log"
SECONDS = 16.0
WINDOWS = 5


@contextmanager
def kraft(root: Path) -> Iterator[Cluster]:
    settings = BrokerSettings(
        kraft=True,
        users={"alice": "a", "bob": "b", "kquota": "k"},
        properties={f"{owner}.window.num": str(WINDOWS) for owner in ("quota", "controller.quota")},
    )
    with embedded_cluster(root, settings=settings) as running:
        create_topics(running, {"orders": 2, LOG_TOPIC: 1})
        yield running


def produce(user: str, client_id: str, rate: float) -> ClientPlan:
    return ClientPlan(
        "produce", client_id, "orders", rate, user=user, partitions=(0, 1), batch_bytes=8_000, stop_s=SECONDS
    )


def shipped_lines(cluster: Cluster, root: Path) -> list[bytes]:
    """Ship the whole request log, and read the topic back."""
    config = root / "kquota.yaml"
    login = {name: v for name, v in cluster.client_settings("kquota").items() if name != "bootstrap.servers"}
    config.write_text(f"ship: {{state_dir: {root / 'ship'}, options: {login}}}\n", encoding="utf-8")
    log = cluster.brokers[0].request_log
    shipped = [sys.executable, "-m", "kquota_spark.cli.main", "ship", "--config", str(config), "--once"]
    where = ["--file", f"1={log}", "--bootstrap-server", cluster.bootstrap_servers, "--topic", LOG_TOPIC]
    subprocess.run([*shipped, *where], check=True, timeout=180)
    reader: dict[str, Any] = {"group.id": "read", "enable.partition.eof": True}
    consumer = Consumer({**cluster.client_settings("kquota"), **reader})
    consumer.assign([TopicPartition(LOG_TOPIC, 0, 0)])
    lines: list[bytes] = []
    try:
        while True:
            for message in consumer.consume(500, timeout=1):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return lines
                if ("kind", b"heartbeat") not in (message.headers() or ()):
                    lines.append(message.value() or b"")
    finally:
        consumer.close()


def test_at_most_one_percent_of_the_throttled_are_judged_wrong(tmp_path: Path) -> None:
    def judged(run: str) -> dict[str, Any]:
        with kraft(tmp_path / run / "cluster") as cluster:
            return judged_load(cluster, tmp_path / run)

    few_are_wrong(judged)


def judged_load(cluster: Cluster, tmp_path: Path) -> dict[str, Any]:
    """How the produces of one load were judged; what else has to hold is claimed here."""
    login = cluster.client_settings("kquota")
    kafka = Kafka(bootstrap_servers=login.pop("bootstrap.servers"), options=login)
    quotas = Quotas(source="admin", poll_interval=Duration(250))
    settings = Settings(cluster_id="kraft", tables=str(tmp_path / "tables"), kafka=kafka, quotas=quotas)
    alter_quota(cluster, {"producer_byte_rate": 100_000}, user="alice", client_id="etl")
    alter_quota(cluster, {"producer_byte_rate": 80_000}, user="bob")
    alter_quota(cluster, {"producer_byte_rate": 60_000}, client_id=DEFAULT)
    assert BrokerConfigs(settings, now_ms).ask() == []
    [told] = stored_configs(settings)
    assert (told.metadata, told.quota_window_num, told.version) == ("kraft", WINDOWS, "3.9")
    watcher = Watcher(settings)
    watcher.start()
    try:
        plans = [
            produce("alice", "etl", 300_000),
            produce("alice", "adhoc", 58_000),
            produce("bob", "ingest", 200_000),
        ]
        load = threading.Thread(target=run_load, args=(cluster, plans))
        load.start()
        load.join(SECONDS / 2)
        edited_ms = alter_quota(cluster, {"producer_byte_rate": 150_000}, user="bob")
        load.join()
        until_known(settings, now_ms())
    finally:
        watcher.stop()
    watcher.check()
    log = tmp_path / "broker-1.log"
    log.write_bytes(b"".join(line + b"\n" for line in shipped_lines(cluster, tmp_path)))

    history = from_tables(settings)
    config = RateConfig(
        told.quota_window_num or 0, (told.quota_window_size_seconds or 0) * 1_000, told.sample_ring
    )
    found = replay_files([(1, log)], RuleGovernor(history.book), config)
    summary = summary_of(found)
    print(summary)
    tally: dict[str, Any] = summary["by_type"]["produce"]
    # Two clients of three times their limit, throttled to some requests a second, for 16 s.
    assert tally["throttled_by_broker"] >= 50
    limits = {
        verdict.governing.limit_per_s
        for key, verdicts in found.verdicts.items()
        for verdict in verdicts
        if key.bucket.user == "bob" and abs(verdict.point.record_time_ms - edited_ms) > 1_000
    }
    assert limits == {80_000.0, 150_000.0}
    # With the windows of the settings instead of the broker's the verdicts would not be the broker's.
    other = summary_of(replay_files([(1, log)], RuleGovernor(history.book), RateConfig()))["by_type"][
        "produce"
    ]
    # Most of them are uncertain, because the broker's throttles tell another window.
    wrong = ("false_positive", "false_negative", "window_off_false_positive", "window_off_false_negative")
    assert sum(other[name] for name in wrong) > 0.05 * tally["throttled_by_broker"]
    return tally
