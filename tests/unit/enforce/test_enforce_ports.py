"""The ports in memory keep the contract of the real ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kquota_spark.config.settings import Quotas
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.in_memory import (
    InMemoryLease,
    InMemoryLeases,
    InMemoryLedger,
    InMemorySwitch,
    MemoryCluster,
)
from kquota_spark.enforce.ports import Cluster, Lease, Ledger, Switch
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.watched_sources import PolledSource, WatchedSource
from tests.support.enforcement.enforcement_ports_contract import LEASE_CLAIMS, LEDGER_CLAIMS, SWITCH_CLAIMS
from tests.support.quotas.cluster_contract import CLUSTER_CLAIMS, ClusterUnderTest


class MemoryUnderTest:
    def __init__(self) -> None:
        self._leases = InMemoryLeases()
        self._nodes = MemoryCluster(self._leases)
        self.cluster: Cluster = self._nodes
        self.fencing = self._leases.take("us")

    def edit(self, quota: Quota, value: float | None) -> None:
        self._nodes.set_text(quota, None if value is None else str(value))

    def add_credential(self, user: str) -> None:
        self._nodes.nodes.setdefault(str(Entity(user=user)), {})["SCRAM-SHA-256"] = "salt=c2FsdA=="

    def all_of(self, entity: Entity) -> object:
        node = self._nodes.nodes.get(str(entity))
        return None if node is None else dict(node)

    def credentials_of(self, user: str) -> object:
        return self._nodes.nodes[str(Entity(user=user))]["SCRAM-SHA-256"]

    def followed(self) -> WatchedSource:
        return PolledSource(self.cluster, Quotas(), now_ms)

    def lose_lease(self) -> None:
        self._leases.take("them")


@pytest.mark.parametrize("claim", CLUSTER_CLAIMS)
def test_cluster(claim: Callable[[ClusterUnderTest, str], None]) -> None:
    claim(MemoryUnderTest(), "alice")


@pytest.mark.parametrize("claim", LEDGER_CLAIMS)
def test_ledger(claim: Callable[[Callable[[], Ledger]], None]) -> None:
    ledger = InMemoryLedger()
    claim(lambda: ledger)


@pytest.mark.parametrize("claim", LEASE_CLAIMS)
def test_lease(claim: Callable[[Lease, Lease], None]) -> None:
    leases = InMemoryLeases()
    claim(InMemoryLease(leases, "one"), InMemoryLease(leases, "two"))


@pytest.mark.parametrize("claim", SWITCH_CLAIMS)
def test_switch(claim: Callable[[Switch, Switch], None]) -> None:
    switch = InMemorySwitch()
    claim(switch, switch)
