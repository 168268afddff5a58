"""A cluster in memory that crashes, refuses and loses answers when it is told to: what quotas are lifted on."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from kquota_spark.enforce.changes import LogEntry, Quota
from kquota_spark.enforce.in_memory import InMemoryLeases, InMemoryLedger, MemoryCluster, Nodes
from kquota_spark.enforce.lifting import Lifter
from kquota_spark.enforce.ports import Change, Held, Written

NODES: Nodes = {
    "users/alice": {"SCRAM-SHA-256": "s", "consumer_byte_rate": "7", "producer_byte_rate": "1000000"},
    "users/alice/clients/etl": {"request_percentage": "12.5"},
    "users/<default>": {"producer_byte_rate": "5"},
}


class Crash(Exception):
    """The process is gone."""


@dataclass
class Cluster:
    """A cluster in memory; `crashes_at` counts down the calls that write, `answers` stand for the cluster's own."""

    nodes: Nodes = field(default_factory=lambda: deepcopy(NODES))
    ledger: InMemoryLedger = field(default_factory=InMemoryLedger)
    leases: InMemoryLeases = field(default_factory=InMemoryLeases)
    crashes_at: int | None = None
    answers: dict[Quota, Written] = field(default_factory=dict)
    vanishing: Quota | None = None
    """Removed by somebody else right before our own write."""

    @property
    def cluster(self) -> MemoryCluster:
        """Its quotas."""
        return _Cluster(self)

    def lifter(self) -> Lifter:
        """Of the next process, which takes the lease."""
        fencing = self.leases.take("us")
        return Lifter(self.cluster, _Ledger(self), fencing, "ann")

    def count_down(self) -> None:
        if self.crashes_at is not None:
            self.crashes_at -= 1
            if self.crashes_at < 0:
                raise Crash


class _Ledger(InMemoryLedger):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._entries = cluster, cluster.ledger._entries

    def append(self, entries: Sequence[LogEntry]) -> None:
        self._cluster.count_down()
        super().append(entries)


class _Cluster(MemoryCluster):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.leases, cluster.nodes)
        self._cluster = cluster

    def write(self, change: Change, expect: Held | None = None, fence: int | None = None) -> Written:
        self._cluster.count_down()
        if change.note is None and change.quota == self._cluster.vanishing:
            self.set_text(change.quota, None)
        return self._cluster.answers.get(change.quota) or super().write(change, expect, fence)
