"""The three roads to a cluster's quotas: ZooKeeper, the Admin API of its brokers, and that of a KRaft node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from kquota_spark.config.contexts import Context, Contexts, save_contexts
from kquota_spark.embedded.cluster import Cluster

ROADS = ("zookeeper", "brokers", "kraft")


class Clusters(NamedTuple):
    """Both clusters, and the contexts of the three roads in a file."""

    of_zookeeper: Cluster
    of_kraft: Cluster

    def of(self, road: str) -> Cluster:
        return self.of_kraft if road == "kraft" else self.of_zookeeper


@pytest.fixture(scope="module")
def clusters(
    zookeeper_cluster: Cluster, kraft_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clusters]:
    """The shared clusters, without quotas, by the names of `ROADS`."""
    contexts = {
        "zookeeper": Context(zookeeper=zookeeper_cluster.zookeeper_connect),
        "brokers": Context(bootstrap_server=zookeeper_cluster.bootstrap_servers),
        "kraft": Context(bootstrap_server=kraft_cluster.bootstrap_servers),
    }
    file = tmp_path_factory.mktemp("roads") / "contexts.yaml"
    save_contexts(file, Contexts(contexts=contexts))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KQUOTA_CONTEXTS", str(file))
        yield Clusters(zookeeper_cluster, kraft_cluster)
