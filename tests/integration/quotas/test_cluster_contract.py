"""Each real `Cluster` keeps the contract, for people and for an enforcer: ZooKeeper and the Admin API of both modes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Enforcement, Kafka, Quotas, Settings
from kquota_spark.embedded import cluster as embedded
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Cluster
from kquota_spark.enforcement.assembly import Edges, enforcement_edges
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.process.clock import now_ms
from kquota_spark.process.processes import wait_for
from kquota_spark.quotas.watched_sources import FOLLOWED, WatchedSource
from tests.support.clusters.config_tree import config_tree
from tests.support.clusters.quota_nodes import payload, put
from tests.support.clusters.scram_users import credentials, set_credential
from tests.support.clusters.zookeeper_edits import remove_quota, set_quota
from tests.support.enforcement.enforcement_ports_contract import fencing_of
from tests.support.quotas.cluster_contract import CLUSTER_CLAIMS, ClusterUnderTest

SCRAM = "salt=c2FsdA==,stored_key=a/b+c==,server_key=d,iterations=4096"


class _Leased:
    """A cluster with the lease of an enforcer."""

    def __init__(self, settings: Settings, edges: Edges) -> None:
        self.cluster: Cluster = edges.cluster
        self._settings = settings
        self._lease = edges.lease
        self.fencing = fencing_of(edges.lease)

    def followed(self) -> WatchedSource:
        return FOLLOWED[self._settings.quotas.source](self._settings, now_ms)

    def lose_lease(self) -> None:
        self._lease.release()
        fencing_of(self._lease)


class ZooKeeperUnderTest(_Leased):
    """A chroot of the test's ZooKeeper; others edit it as administrators do."""

    def __init__(self, settings: Settings, edges: Edges, client: KazooClient) -> None:
        super().__init__(settings, edges)
        self._client, self._address = client, settings.quotas.zookeeper_connect

    def edit(self, quota: Quota, value: float | None) -> None:
        names = {"user": quota.entity.user, "client_id": quota.entity.client_id}
        if value is None:
            remove_quota(self._address, quota.key.value, **names)
        else:
            set_quota(self._address, **names, **{quota.key.value: int(value)})  # type: ignore[arg-type]

    def add_credential(self, user: str) -> None:
        put(self._client, str(Entity(user)), payload(**{"SCRAM-SHA-256": SCRAM}).replace(b" ", b""))

    def credentials_of(self, user: str) -> object:
        return SCRAM.encode() in self._client.get(f"/config/{Entity(user)}")[0]

    def all_of(self, entity: Entity) -> object:
        return config_tree(self._client, f"/config/{entity}")


class BrokersUnderTest(_Leased):
    """Brokers behind the Admin API; others edit by it as well."""

    def __init__(
        self, settings: Settings, edges: Edges, brokers: embedded.Cluster, admin: QuotaAdmin
    ) -> None:
        super().__init__(settings, edges)
        self._brokers, self._admin = brokers, admin

    def edit(self, quota: Quota, value: float | None) -> None:
        assert self._admin.alter(quota.entity, {quota.key.value: value}) is None
        # A broker follows its controller some milliseconds behind.
        assert wait_for(lambda: self.cluster.read([quota])[quota].value == value, within_s=60)

    def add_credential(self, user: str) -> None:
        set_credential(self._brokers, user, "canary")

    def credentials_of(self, user: str) -> object:
        return credentials(self._brokers, user)

    def all_of(self, entity: Entity) -> object:
        return self._admin.describe([entity])


@contextmanager
def brokers_under_test(brokers: embedded.Cluster, root: Path) -> Iterator[ClusterUnderTest]:
    settings = Settings(
        cluster_id="contract",
        tables=str(root / "tables"),
        kafka=Kafka(bootstrap_servers=brokers.bootstrap_servers),
        quotas=Quotas(source="admin"),
        enforcement=Enforcement(lease_time=Duration(30_000)),
    )
    with (
        enforcement_edges(settings) as edges,
        closing(QuotaAdmin(brokers.bootstrap_servers, {}, timeout_ms=60_000)) as admin,
    ):
        yield BrokersUnderTest(settings, edges, brokers, admin)


def test_zookeeper(edges: Edges, client: KazooClient, enforced: Settings) -> None:
    client.ensure_path("/config/ips")
    cluster = ZooKeeperUnderTest(enforced, edges, client)
    for claim in CLUSTER_CLAIMS:
        claim(cluster, claim.__name__)


@pytest.mark.parametrize("fixture", ["zookeeper_cluster", "kraft_cluster"])
def test_the_admin_api(fixture: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with brokers_under_test(request.getfixturevalue(fixture), tmp_path) as cluster:
        for claim in CLUSTER_CLAIMS:
            claim(cluster, claim.__name__)
