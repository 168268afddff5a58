"""Brokers that run a real quota callback, audited end to end with the same rule in Python.

The callback is the one of Kafka's own tests: users and topics of a group share the part of their names before
`_`, and a group's limit is scaled by the partitions that a broker leads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from kquota_spark.config.loader import load_settings
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.demo.load import ClientPlan, run_load
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.embedded.setup.jars import ensure_jars
from kquota_spark.kafka.questions import admin_client, asked_topics
from kquota_spark.process.processes import wait_for
from kquota_spark.quotas.leaders import leaders_of
from tests.support.clusters.zookeeper_edits import set_quota
from tests.support.places import DATA, ROOT
from tests.support.spark.quick import QUICK

pytestmark = pytest.mark.alone  # the times that a broker logs are judged

_IVY = DATA / "ivy-callback.xml"
TOPIC, LOG_TOPIC = "pay_orders", "kquota.request-log"
PARTITIONS = 5
PAY_BYTES_PER_S, DEFAULT_BYTES_PER_S = 500_000, 60_000
SECONDS = 25.0
WARM_UP_S = 10.0
_RUN_S = 600
CALLBACK = "kafka.api.GroupedUserQuotaCallback"
BROKERS = BrokerSettings(
    users={"pay_a": "pw-1", "pay_b": "pw-2", "ops_a": "pw-3", "auditor": "pw-4"},
    properties={
        "client.quota.callback.class": CALLBACK,
        "listener.name.sasl_plaintext.principal.builder.class": "kafka.api.GroupedUserPrincipalBuilder",
    },
)
_CONFIG = """\
cluster_id: grouped
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka: {{bootstrap_servers: "{bootstrap}", topic: {topic}, options: {login}}}
quotas:
  zookeeper_connect: "{zookeeper}"
  callback: {callback}
  leaders_interval: 1 s
stream: {{allowed_lateness: 5 s}}
ship: {{files: [{files}], state_dir: {root}/ship, options: {login}}}
"""
PARTITION_BASED = "kquota_spark.model.quotas.group_callbacks:PartitionBasedCallback"


def _config(root: Path, cluster: Cluster, callback: str) -> Path:
    login = {k: v for k, v in cluster.client_settings("auditor").items() if k != "bootstrap.servers"}
    path = root / "kquota.yaml"
    path.write_text(
        _CONFIG.format(
            root=root,
            bootstrap=cluster.bootstrap_servers,
            topic=LOG_TOPIC,
            login=json.dumps(login),
            zookeeper=cluster.zookeeper_connect,
            callback=json.dumps(callback),
            files=", ".join(json.dumps(f"{broker.id}={broker.request_log}") for broker in cluster.brokers),
        ),
        encoding="utf-8",
    )
    return path


def _run(*command: str) -> str:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(ROOT / "conf")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_RUN_S, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-3_000:]
    return said


def _kquota(command: str, config: Path, *more: str) -> str:
    return _run(sys.executable, "-m", "kquota_spark.cli.main", command, "--config", str(config), *more)


def _audit(config: Path) -> str:
    spark_submit = str(Path(sys.executable).with_name("spark-submit"))
    return _run(
        spark_submit, *QUICK, "--driver-memory", "2g", "jobs/audit.py", "--config", str(config), "--drain"
    )


def _led_by(config: Path) -> dict[int, int]:
    """How many partitions of the topic each broker leads."""
    settings = load_settings(config)
    topics = {TOPIC: asked_topics(admin_client(settings), settings)[TOPIC]}
    leaders = list(leaders_of(topics).values())
    return {broker_id: leaders.count(broker_id) for broker_id in (1, 2)}


def _plan(user: str, client_id: str, bytes_per_s: float, seconds: float = SECONDS) -> ClientPlan:
    partitions = tuple(range(PARTITIONS))
    return ClientPlan(
        "produce",
        client_id,
        TOPIC,
        bytes_per_s,
        user=user,
        partitions=partitions,
        stop_s=seconds,
        batch_bytes=8_000,
    )


def _tally(root: Path) -> dict[tuple[Any, ...], Any]:
    connection = duckdb.connect()
    connection.register("decisions", DeltaTable(str(root / "tables/decisions")).to_pyarrow_dataset())
    rows = connection.execute(
        "SELECT broker_id, bucket_tags, min(limit_per_s), max(limit_per_s), sum(requests_judged), "
        "sum(judged_throttled), sum(false_positive) + sum(false_negative) FROM decisions "
        "WHERE quota_type = 'produce' AND limit_per_s IS NOT NULL GROUP BY ALL"
    ).fetchall()
    return {(broker_id, tags): found for broker_id, tags, *found in rows}


def test_a_partition_based_callback_is_audited_as_the_brokers_run_it(tmp_path: Path) -> None:
    settings = BrokerSettings(
        users=BROKERS.users, properties=BROKERS.properties, class_path=ensure_jars(_IVY).broker
    )
    # This callback knows three of the four quota types: a broker that runs it cannot create topics.
    with embedded_cluster(tmp_path / "cluster", 2, settings=BrokerSettings(users=BROKERS.users)) as cluster:
        create_topics(cluster, {TOPIC: PARTITIONS, LOG_TOPIC: 1})
    with embedded_cluster(tmp_path / "cluster", 2, settings=settings) as cluster:
        config = _config(tmp_path, cluster, PARTITION_BASED)
        set_quota(cluster.zookeeper_connect, user="pay_", producer_byte_rate=PAY_BYTES_PER_S)
        set_quota(cluster.zookeeper_connect, user="_", producer_byte_rate=DEFAULT_BYTES_PER_S)
        # A broker that comes back tells of its topics some time before their partitions have leaders again.
        assert wait_for(lambda: sum(_led_by(config).values()) == PARTITIONS, within_s=60)
        assert "exit" not in _kquota("watch", config, "--once")
        led = _led_by(config)
        # A cold JVM takes milliseconds between the quota and the log: in the first sample they shift all that follow.
        # The auditor is in no group, so in no bucket with a limit.
        run_load(cluster, [_plan("auditor", "warm-up", 900_000.0, WARM_UP_S)])
        run_load(
            cluster,
            [
                _plan("pay_a", "one", 450_000.0),
                _plan("pay_b", "two", 450_000.0),  # with pay_a in one bucket
                _plan("ops_a", "three", 40_000.0),  # of the default group: under its quota, requests and all
            ],
        )
        _kquota("ship", config, "--once", "--end")
        said = _audit(config)
        without = _without_callback(tmp_path, cluster)
    assert "warning" not in said
    found = _tally(tmp_path)
    for broker_id, count in led.items():
        lowest, highest, judged, throttled, wrong = found[broker_id, '{"group": "pay"}']
        # The limit on a broker: the group's quota times the share of its partitions that it leads.
        assert lowest == highest == PAY_BYTES_PER_S * count / PARTITIONS
        print(f"broker {broker_id}: {judged} judged, {throttled} throttled, {wrong} wrong")
        assert throttled >= 20
        # Without the callback, or without its scaling, all of them would be wrong. One sample that opened a
        # request later than the log tells makes some ten wrong.
        assert wrong <= 0.1 * throttled
        assert found[broker_id, '{"group": "ops"}'][3] == 0
    assert (
        f"warning: broker 1: client.quota.callback.class = {BROKERS.properties['client.quota.callback.class']}"
        in without
    )


def _without_callback(root: Path, cluster: Cluster) -> str:
    """What the job says where the settings name no callback; a run through what is there is enough to hear it."""
    other = root / "other"
    other.mkdir()
    config = _config(other, cluster, "")
    spark_submit = str(Path(sys.executable).with_name("spark-submit"))
    return _run(spark_submit, *QUICK, "jobs/audit.py", "--config", str(config), "--once")
