"""The page on rights is complete and has nothing that is not needed: every program runs with exactly its grants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kquota_spark.config.own_clients import for_enforcer
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Enforcement, Kafka, Quotas, Settings, Ship
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Change, Held
from kquota_spark.enforcement.assembly import enforcement_edges
from kquota_spark.errors import UserError
from kquota_spark.gateway.publisher import DecisionPublisher
from kquota_spark.kafka.broker_checks import kafka_checks
from kquota_spark.kafka.questions import require_topics
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.watch import Watcher
from kquota_spark.ship.topic import DeliveryFailedError, KafkaTopic
from tests.support.clusters.documented_grants import GRANTS, granted
from tests.support.clusters.shared import PROGRAMS

LOG, LEASE, DECISIONS = "kquota.request-log", "kquota.lease", "kquota.decisions"
QUOTA = Quota(Entity("of-rights"), QuotaKey.PRODUCER_BYTE_RATE)
AUDIT, ENFORCE, SHIP = (
    "to the user of kafka.options",
    "to the user of enforcement.options",
    "to the user of ship.options",
)


@pytest.fixture(scope="module", params=["kraft", "zookeeper"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    names = {"kraft": "kraft_sasl_cluster", "zookeeper": "sasl_cluster"}
    running: Cluster = request.getfixturevalue(names[request.param])
    create_topics(running, {LOG: 1})
    return running


def login(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": user, "sasl.password": PROGRAMS[user],
    }  # fmt: skip


@pytest.fixture
def settings(cluster: Cluster, tmp_path: Path) -> Settings:
    return Settings(
        cluster_id="payments",
        tables=str(tmp_path / "tables"),
        kafka=Kafka(bootstrap_servers=cluster.bootstrap_servers, options=login("kquota-audit")),
        quotas=Quotas(source="admin", connect_timeout=Duration(30_000)),
        ship=Ship(options=login("kquota-ship")),
        enforcement=Enforcement(
            options=login("kquota-enforce"), decision_topic=DECISIONS, lease_time=Duration(30_000)
        ),
    )


def ship(settings: Settings) -> str:
    """The shipper: one message."""
    servers = settings.kafka.bootstrap_servers
    topic = KafkaTopic(servers, LOG, client_id="kquota-ship", options=settings.ship.options, timeout_s=60.0)
    topic.send([b"a line"], key=b"1", headers=[])
    left = topic.unacknowledged(60.0)
    topic.close()
    return "not acknowledged" if left else ""


def audit(settings: Settings) -> str:
    """What the job asks before it starts Spark, the watch, and what the doctor says about rights."""
    require_topics(settings)
    watcher = Watcher(settings)
    watcher.start()
    watcher.stop()
    watcher.check()
    checks = kafka_checks(settings, None, now_ms())
    return "; ".join(f"{each.evidence}: {each.advice}" for each in checks if "grant" in each.advice)


def enforce(settings: Settings) -> str:
    """The enforcer: its lease, a quota set and put back, and the decisions published."""
    with enforcement_edges(settings) as edges:
        fencing = edges.lease.acquire()
        if fencing is None:
            return "somebody else has the lease"
        held = edges.cluster.read([QUOTA])[QUOTA]
        written = edges.cluster.write(Change.of(QUOTA, 5e6), held, fencing)
        if written.detail:
            return written.detail
        assert held.note is not None
        back = Change.of(QUOTA, held.value, held.note)
        assert edges.cluster.write(back, Held(5e6, None), fencing).detail == ""
    with DecisionPublisher(for_enforcer(settings)) as publisher:
        publisher.publish([], now_ms())
    return ""


RUNS: dict[str, Callable[[Settings], str]] = {
    "kquota-ship": ship,
    "kquota-audit": audit,
    "kquota-enforce": enforce,
}
SAID = {
    ("kquota-ship", "Write", LOG): f"grant Write on the topic {LOG} {SHIP}",
    ("kquota-audit", "Read", LOG): f"grant Read on it {AUDIT}",
    ("kquota-audit", "DescribeConfigs", LOG): f"grant DescribeConfigs on it {AUDIT}",
    ("kquota-audit", "DescribeConfigs", "kafka-cluster"): f"grant DescribeConfigs on the cluster {AUDIT}",
    ("kquota-enforce", "AlterConfigs", "kafka-cluster"): f"on the cluster {ENFORCE}",
    ("kquota-enforce", "Create", LEASE): f"grant Create on the topic {LEASE} {ENFORCE}",
    ("kquota-enforce", "Read", LEASE): f"grant Read on the topic {LEASE} {ENFORCE}",
    ("kquota-enforce", "Write", LEASE): f"grant Write on the topic {LEASE} {ENFORCE}",
    ("kquota-enforce", "Write", "kquota-enforcer-payments"): (
        f"grant Write on the transactional id kquota-enforcer-payments {ENFORCE}"
    ),
    ("kquota-enforce", "Create", DECISIONS): f"grant Create on the topic {DECISIONS} {ENFORCE}",
    (
        "kquota-enforce",
        "DescribeConfigs",
        DECISIONS,
    ): f"grant DescribeConfigs on the topic {DECISIONS} {ENFORCE}",
    ("kquota-enforce", "Read", DECISIONS): f"grant Read on the topic {DECISIONS} {ENFORCE}",
    ("kquota-enforce", "Write", DECISIONS): f"grant Write on the topic {DECISIONS} {ENFORCE}",
}
"""What a program says without one of its rights."""


def run(settings: Settings, user: str) -> str:
    """What a program says is wrong; empty if nothing is."""
    try:
        return RUNS[user](settings)
    except (UserError, DeliveryFailedError) as error:
        return str(error)


def without_topics(cluster: Cluster) -> None:
    """As before the first start of the enforcer."""
    client: Any = AdminClient({**cluster.client_settings()})
    names = client.list_topics(timeout=60).topics.keys() & {LEASE, DECISIONS}
    for deleted in client.delete_topics(sorted(names)).values() if names else ():
        deleted.result(60)


def test_every_program_runs_with_exactly_the_grants_of_the_page(cluster: Cluster, settings: Settings) -> None:
    without_topics(cluster)
    with granted(cluster, GRANTS):
        assert {user: run(settings, user) for user in RUNS} == dict.fromkeys(RUNS, "")


def test_each_grant_is_needed_and_named_where_it_is_missing(cluster: Cluster, settings: Settings) -> None:
    assert {(grant.user, grant.operation, grant.name) for grant in GRANTS} == SAID.keys()
    with granted(cluster, GRANTS):
        # The enforcer's topics are there then, also if this test runs alone.
        assert {user: run(settings, user) for user in RUNS} == dict.fromkeys(RUNS, "")
    said = {}
    for grant in sorted(GRANTS, key=lambda each: each.operation == "Create"):
        if grant.operation == "Create":
            without_topics(cluster)
        with granted(cluster, [each for each in GRANTS if each != grant]):
            said[grant.user, grant.operation, grant.name] = run(settings, grant.user)
    assert {key: SAID[key] if SAID[key] in text else text for key, text in said.items()} == SAID
    assert all("\n" not in text for text in said.values())
