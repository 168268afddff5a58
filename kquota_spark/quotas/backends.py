"""How each kind of cluster is opened, by its address.

A kind is an entry of `BACKENDS`. The commands of people know no other way to a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from kquota_spark.config.settings import Quotas
from kquota_spark.enforce.ports import Cluster
from kquota_spark.kafka.quota_admin import Named
from kquota_spark.process.listeners import require_listener


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The address of a cluster: its brokers if they are named, else the ZooKeeper of `quotas`."""

    quotas: Quotas
    """Time limits, and ZooKeeper's address and login."""
    named: Named
    """Names of the options or settings, for errors."""
    bootstrap_servers: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def kind(self) -> str:
        """The key of its backend."""
        return "admin" if self.bootstrap_servers else "zookeeper"


def opened_cluster(address: ClusterAddress) -> AbstractContextManager[Cluster]:
    """A connection to a cluster for a person; it is closed after the block.

    Raises:
        UserError: the address is invalid, or nothing answers there.
    """
    return BACKENDS[address.kind](address)


def _admin(address: ClusterAddress) -> AbstractContextManager[Cluster]:
    from kquota_spark.quotas.admin_cluster import admin_cluster

    servers, timeout_ms = address.bootstrap_servers, address.quotas.connect_timeout
    require_listener("Kafka", servers, address.named.servers)
    return admin_cluster(servers, address.properties, timeout_ms=timeout_ms, named=address.named)


def _zookeeper(address: ClusterAddress) -> AbstractContextManager[Cluster]:
    from kquota_spark.quotas.zookeeper_cluster import zookeeper_cluster
    from kquota_spark.zookeeper.client import require_zookeeper

    require_zookeeper(address.quotas, address.named.servers)
    return zookeeper_cluster(address.quotas, named=address.named)


Backend = Callable[[ClusterAddress], AbstractContextManager[Cluster]]
BACKENDS: dict[str, Backend] = {"admin": _admin, "zookeeper": _zookeeper}
"""What opens a cluster, by the kind of its address."""
