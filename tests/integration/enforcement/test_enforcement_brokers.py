"""Quotas written into ZooKeeper: a real broker enforces them, and logins of the same nodes go on working."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Enforcement, Kafka, Quotas, Settings
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.readiness import connected
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Change, Held, Outcome
from kquota_spark.enforcement.assembly import enforcement_edges
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.process.processes import wait_for
from tests.support.clusters.config_tree import config_tree
from tests.support.clusters.scram_users import broker_client, set_credential
from tests.support.clusters.zookeeper_edits import set_quota

PRODUCER, PERCENT = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
PASSWORD = "scram-canary"
CHANGES: list[tuple[Quota, float | None]] = [
    (Quota(Entity("scrammed"), PRODUCER), 5_000_000.0),
    (Quota(Entity("scrammed"), PERCENT), None),
    (Quota(Entity("scrammed", "a b/c"), PRODUCER), 4_000_000.0),
    (Quota(Entity("new CN=x,O=ü"), PERCENT), 12.5),
    (Quota(Entity(DEFAULT, DEFAULT), PRODUCER), 3_000_000.0),
    (Quota(Entity(client_id="<default>"), PRODUCER), 2_000_000.0),
]


@pytest.fixture(scope="module")
def cluster(sasl_cluster: Cluster) -> Cluster:
    return sasl_cluster


def settings_of(cluster: Cluster, tables: Path) -> Settings:
    return Settings(
        cluster_id="prod.eu",
        tables=str(tables),
        kafka=Kafka(bootstrap_servers=cluster.bootstrap_servers, options=cluster.client_settings()),
        quotas=Quotas(zookeeper_connect=cluster.zookeeper_connect),
        enforcement=Enforcement(lease_time=Duration(30_000), allow_open_nodes=True),
    )


def can_log_in(cluster: Cluster) -> bool:
    login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "scrammed", "sasl.password": PASSWORD}
    client = broker_client(cluster, **login)
    try:
        client.list_topics(timeout=60)
    except KafkaException:
        return False
    return True


def test_a_broker_enforces_what_is_written_and_the_login_stays(cluster: Cluster, tmp_path: Path) -> None:
    set_credential(cluster, "scrammed", PASSWORD)
    set_quota(cluster.zookeeper_connect, user="scrammed", request_percentage=40)
    settings = settings_of(cluster, tmp_path)
    admin = QuotaAdmin(cluster.bootstrap_servers, cluster.client_settings(), timeout_ms=60_000)
    with connected(cluster.zookeeper_connect) as client, enforcement_edges(settings) as edges:
        before = config_tree(client)
        fencing = edges.lease.acquire()
        assert fencing is not None
        notes = []
        for quota, value in CHANGES:
            held = edges.cluster.read([quota])[quota]
            assert held.note is not None
            assert PASSWORD not in held.note and "stored_key" not in held.note
            notes.append(held.note)
            assert edges.cluster.write(Change.of(quota, value), held, fencing).outcome is Outcome.DONE

        def described() -> dict[Quota, float]:
            return {Quota(entity, key): value for entity, key, value in admin.describe()}  # type: ignore[arg-type]

        wanted = {quota: value for quota, value in CHANGES if value is not None}
        assert wait_for(lambda: described() == wanted, within_s=60)
        assert can_log_in(cluster)
        for (quota, value), note in zip(CHANGES, notes, strict=True):
            back = Change.of(quota, None, note)
            assert edges.cluster.write(back, Held(value, None), fencing).outcome is Outcome.DONE
        assert config_tree(client) == before
        assert wait_for(lambda: described() == {Quota(Entity("scrammed"), PERCENT): 40.0}, within_s=60)
    admin.close()
    assert can_log_in(cluster)
