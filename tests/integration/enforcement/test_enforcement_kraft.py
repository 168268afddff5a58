"""Quotas of a KRaft cluster, changed by its Admin API under a lease in a topic."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Enforcement, Settings
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Change, Frozen, Lease, Outcome
from kquota_spark.enforcement.assembly import Edges, enforcement_edges
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.enforcement.edges.kafka_lease import KafkaLease
from kquota_spark.enforcement.job import Checks
from kquota_spark.errors import UserError
from kquota_spark.kafka.lease_topic import LeaseTopic
from kquota_spark.kafka.quota_admin import QuotaAdmin, Refusal
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.process.clock import now_ms
from kquota_spark.process.processes import wait_for
from kquota_spark.quotas.admin_cluster import AdminCluster
from tests.support.clusters.outages import pause, resume
from tests.support.clusters.paused_enforcer import LATE, NEXT, VALUE, taken_over_while_stopped
from tests.support.enforcement.enforcement_ports_contract import LEASE_CLAIMS, fencing_of

LEASE_S = 30
"""No pause of a busy machine ends it."""
SHORT_LEASE_S = 5
"""It ends while its holder is stopped."""


@pytest.fixture(scope="module")
def cluster(kraft_cluster: Cluster) -> Cluster:
    return kraft_cluster


def configured(cluster: Cluster, root: Path, lease_s: int) -> Path:
    path = root / "kquota.yaml"
    path.write_text(
        f"cluster_id: prod/eu\ntables: {root}/tables\nquotas: {{source: admin}}\n"
        f"kafka: {{bootstrap_servers: '{cluster.bootstrap_servers}'}}\n"
        f"enforcement: {{lease_time: {lease_s} s, policy_file: {root}/policy.yaml}}\n",
        encoding="utf-8",
    )
    return path


@pytest.fixture
def settings(
    cluster: Cluster, tmp_path: Path
) -> Settings:  # a cluster of its own, not the package's ZooKeeper
    return load_settings(configured(cluster, tmp_path, LEASE_S))


@pytest.fixture
def edges(settings: Settings) -> Iterator[Edges]:
    with enforcement_edges(settings) as opened:
        yield opened


@pytest.mark.parametrize("claim", LEASE_CLAIMS)
def test_the_contract_of_leases(
    claim: Callable[[Lease, Lease], None], edges: Edges, settings: Settings
) -> None:
    with enforcement_edges(settings) as others:
        claim(edges.lease, others.lease)
        fencing = fencing_of(edges.lease)
        held_by, before_ms = others.lease.holder(), now_ms() - 60_000
        assert held_by is not None
        assert held_by.name.startswith(f"{socket.gethostname()}:{os.getpid()}:")
        assert before_ms < held_by.since_ms <= now_ms()
        assert held_by.is_holding and edges.lease.is_held(fencing)
        edges.lease.release()
        assert others.lease.holder() == held_by._replace(is_holding=False)
        assert edges.lease.acquire("kquota override set") is not None
        by_command = others.lease.holder()
        assert by_command is not None
        assert (by_command.name, by_command.command) == (held_by.name, "kquota override set")
        assert held_by.command == ""


def test_an_enforcer_confirms_the_switch_when_it_has_the_lease(settings: Settings, edges: Edges) -> None:
    Path(settings.tables).mkdir()
    checks, switch = Checks(settings, edges, None, lambda _: None, now_ms), FreezeSwitch(settings)
    switch.freeze(Frozen(7, "ann", "incident"))
    with enforcement_edges(settings) as others:
        fencing_of(others.lease)
        with pytest.raises(UserError, match=r"policy\.yaml"):  # which keeps it from nothing else
            checks.check()
        assert switch.reading() is None
    with pytest.raises(UserError, match=r"policy\.yaml"):
        checks.check()
    reading = switch.reading()
    assert reading is not None
    assert (reading.reader, reading.switch, reading.frozen_since_ms) == (
        f"{socket.gethostname()}:{os.getpid()}",
        switch.where,
        7,
    )
    assert edges.lease.acquire() is not None  # given back, and free for anybody


def test_a_holder_that_was_stopped_writes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    config = configured(cluster, tmp_path, SHORT_LEASE_S)
    with enforcement_edges(load_settings(config)) as edges:
        first, second, outcome = taken_over_while_stopped(config, edges)
        assert second > first
        assert outcome == "FENCED"
        found = edges.cluster.read([NEXT, LATE])
        assert (found[NEXT].value, found[LATE].value) == (VALUE, None)
        assert edges.lease.is_held(second)


def test_a_broker_says_beforehand_what_it_would_refuse(edges: Edges) -> None:
    quota = Quota(Entity(DEFAULT, DEFAULT), QuotaKey.PRODUCER_BYTE_RATE)
    refusals = [edges.cluster.refusal(Change.of(quota, value)) for value in (5.0, None, 0.0, -1.0, 1.5)]
    assert refusals == [
        None,
        None,
        "Quota producer_byte_rate must be greater than 0",
        "Quota producer_byte_rate must be greater than 0",
        "producer_byte_rate cannot be a fractional value.",
    ]
    held, fencing = edges.cluster.read([quota])[quota], fencing_of(edges.lease)
    written = edges.cluster.write(Change.of(quota, 1.5), held, fencing)
    assert written == (Outcome.REFUSED, "producer_byte_rate cannot be a fractional value.")
    assert held.value is None and edges.cluster.read([quota])[quota] == held


class CutAdmin(QuotaAdmin):
    """The broker is paused as soon as a change is on its way: it answers too late."""

    cluster: Cluster

    def alter(
        self, entity: AnyEntity, values: Mapping[str, float | None], *, validate_only: bool = False
    ) -> Refusal | None:
        # Of all that is asked, this alone has little time: a busy machine may be slow with the rest.
        with closing(QuotaAdmin(self.cluster.bootstrap_servers, {}, timeout_ms=1_000)) as hurried:
            assert wait_for(lambda: _answers(hurried), within_s=60)
            pause(self.cluster, 1)
            return hurried.alter(entity, values, validate_only=validate_only)


def _answers(admin: QuotaAdmin) -> bool:
    try:
        admin.describe()
    except UserError:
        return False
    return True


def test_a_lost_answer_is_unknown_and_the_cluster_tells_what_became_of_it(
    edges: Edges, settings: Settings, cluster: Cluster
) -> None:
    quota = Quota(Entity("unsure"), QuotaKey.PRODUCER_BYTE_RATE)
    lease = KafkaLease(settings)
    with closing(CutAdmin(cluster.bootstrap_servers, {}, timeout_ms=60_000)) as admin:
        admin.cluster = cluster
        reached = AdminCluster(admin, lease)
        held, fencing = reached.read([quota])[quota], fencing_of(lease)
        try:
            written = reached.write(Change.of(quota, 5e6), held, fencing)
        finally:
            resume(cluster, 1)
        assert written.outcome is Outcome.UNKNOWN
        assert written.detail.startswith(f"Kafka {cluster.bootstrap_servers} did not answer within 1 s")
        assert wait_for(lambda: edges.cluster.read([quota])[quota].value == 5e6, within_s=60)
        assert reached.write(Change.of(quota, 6e6), held, fencing).outcome in (
            Outcome.CHANGED,
            Outcome.FENCED,
        )
        lease.release()


def test_a_topic_that_cannot_hold_a_lease_is_one_line(cluster: Cluster, tmp_path: Path) -> None:
    create_topics(cluster, {"wide": 2})
    for topic, problem in (("wide", "has 2 partitions, expected 1"), ('""', "expected a name")):
        path = tmp_path / "other.yaml"
        path.write_text(
            f"kafka: {{bootstrap_servers: '{cluster.bootstrap_servers}'}}\nquotas: {{source: admin}}\n"
            f"enforcement: {{lease_topic: {topic}}}\n",
            encoding="utf-8",
        )
        with pytest.raises(UserError, match=problem), enforcement_edges(load_settings(path)) as edges:
            edges.lease.acquire()


def test_nobody_holds_what_was_never_made(settings: Settings) -> None:
    other = dataclasses.replace(settings, enforcement=Enforcement(lease_topic="never"))
    with enforcement_edges(other) as edges:
        assert edges.lease.holder() is None
    assert not LeaseTopic(other).exists(), "asking makes no topic"
