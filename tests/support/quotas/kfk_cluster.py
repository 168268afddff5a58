"""A cluster in memory with quotas of every kind, which `kquota kfk --kafka cp-demo` finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kquota_spark.config.contexts import Context, Contexts, save_contexts
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from kquota_spark.quotas.backends import ClusterAddress
from tests.support.quotas.in_memory_cluster_quotas import InMemoryClusterQuotas
from tests.support.quotas.opened_clusters import opens

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
PERCENT, MUTATIONS = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
CONNECTIONS = IpQuotaKey.CONNECTION_CREATION_RATE
QUOTAS: QuotaSet = {
    Entity("alice", "app"): {PRODUCE: 1.0},
    Entity("alice", "etl"): {PRODUCE: 2.0},
    Entity("alice", DEFAULT): {PRODUCE: 3.0},
    Entity("alice"): {PRODUCE: 4.0, MUTATIONS: 0.5},
    Entity("bob"): {FETCH: 5.0},
    Entity(DEFAULT, "app"): {FETCH: 6.0},
    Entity(DEFAULT): {FETCH: 7.0},
    Entity(None, "app"): {PERCENT: 8.0},
    Entity(None, DEFAULT): {PERCENT: 9.0},
    IpEntity("10.0.0.1"): {CONNECTIONS: 10.0},
    IpEntity(DEFAULT): {CONNECTIONS: 11.0},
}


class KfkCluster(InMemoryClusterQuotas):
    """The addresses that commands opened are in `opened`."""

    def __init__(self) -> None:
        super().__init__(QUOTAS)
        self.opened: list[ClusterAddress] = []


@contextmanager
def kfk_cluster(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KfkCluster]:
    """Commands work on it until the block ends; the file of contexts is below `root`."""
    file = root / "contexts.yaml"
    save_contexts(file, Contexts(contexts={"cp-demo": Context(bootstrap_server="broker:9092")}))
    monkeypatch.setenv("KQUOTA_CONTEXTS", str(file))
    cluster = KfkCluster()
    with opens(cluster) as cluster.opened:
        yield cluster
