"""Waiting for what comes, with a bound that a busy machine does not reach and that ends a test that is to fail."""

from __future__ import annotations

from collections.abc import Callable

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.process.processes import wait_for
from tests.support.clusters.zookeeper_edits import remove_quota

WITHIN_S = 120.0
"""Of a busy machine, too: nothing that comes takes longer."""
_MARK = "127.0.0.9"


def until(condition: Callable[[], bool]) -> None:
    assert wait_for(condition, within_s=WITHIN_S)


def until_brokers_act(cluster: Cluster) -> None:
    """Until all brokers of a cluster with ZooKeeper act on every quota that was set or removed before.

    They say which one they come to, not that they are done with it; but they take one after the other.
    """
    told = [(server.log, server.log.stat().st_size) for server in cluster.servers[1:]]
    remove_quota(cluster.zookeeper_connect, ip=_MARK)
    mark = f"Processing override for entityPath: ips/{_MARK}".encode()
    until(lambda: all(mark in log.read_bytes()[size:] for log, size in told))
