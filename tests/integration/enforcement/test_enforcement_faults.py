"""Enforcers that were stopped, and answers that did not come: ZooKeeper has the last word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient, TransactionRequest

from kquota_spark.config.settings import Settings
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.readiness import connected
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Change, Outcome
from kquota_spark.enforcement.assembly import Edges
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.quotas.zookeeper_cluster import ZooKeeperCluster
from kquota_spark.zookeeper.client import ZooKeeperCalls
from kquota_spark.zookeeper.own_nodes import EnforcementNodes
from tests.support.clusters.outages import pause, resume
from tests.support.clusters.paused_enforcer import LATE, NEXT, VALUE, taken_over_while_stopped

QUOTA = Quota(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE)


def test_a_holder_that_was_stopped_writes_nothing(
    edges: Edges, enforced: Settings, client: KazooClient, tmp_path: Path
) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text(
        f"cluster_id: {enforced.cluster_id}\ntables: {enforced.tables}\n"
        f"quotas: {{zookeeper_connect: '{enforced.quotas.zookeeper_connect}'}}\n"
        # It ends while its holder is stopped; until then no pause of a busy machine may end it.
        "enforcement: {lease_time: 4 s, allow_open_nodes: true}\n",
        encoding="utf-8",
    )
    first, second, outcome = taken_over_while_stopped(config, edges)
    assert (first + 1, outcome) == (second, "FENCED")
    found = edges.cluster.read([NEXT, LATE])
    assert (found[NEXT].value, found[LATE].value) == (VALUE, None)
    assert len(client.get_children("/config/changes")) == 1, "nothing of the first one arrived"


def test_a_change_whose_answer_is_lost_was_done_as_a_whole_or_not_at_all(
    edges: Edges, enforced: Settings, client: KazooClient, zookeeper: Cluster
) -> None:
    class CutCalls(ZooKeeperCalls):
        def commit(self, transaction: TransactionRequest) -> Sequence[Any]:
            self._within_s = 0.5
            pause(zookeeper, "zookeeper")
            return super().commit(transaction)

    nodes = EnforcementNodes.of(enforced)
    found, fencing = edges.cluster.read([QUOTA])[QUOTA], edges.lease.acquire()
    assert fencing is not None
    with connected(enforced.quotas.zookeeper_connect) as cut:
        cluster = ZooKeeperCluster(enforced.quotas, CutCalls(cut, "it", 60), own=nodes)
        try:
            written = cluster.write(Change.of(QUOTA, 5e6), found, fencing)
        finally:
            resume(zookeeper, "zookeeper")
    assert written.outcome is Outcome.UNKNOWN
    # It may have been done or not, but as a whole, and who writes on the grounds of before is told.
    fencing = edges.lease.acquire()
    assert fencing is not None
    again = edges.cluster.write(Change.of(QUOTA, 6e6), found, fencing).outcome
    now = edges.cluster.read([QUOTA])[QUOTA].value
    assert (again, now) in [(Outcome.DONE, 6e6), (Outcome.CHANGED, 5e6)]
    assert len(client.retry(client.get_children, "/config/changes")) == 1, (
        "brokers were told of what was done"
    )
