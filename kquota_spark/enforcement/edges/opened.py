"""The real edges of enforcement for one cluster, chosen by where its quotas are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.ports import Lease, Ledger, QuotaTarget, Switch
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.errors import UserError


class Edges(NamedTuple):
    """Everything that the engine acts through."""

    target: QuotaTarget
    lease: Lease
    switch: Switch
    ledger: Ledger


@contextmanager
def enforcement_edges(settings: Settings) -> Iterator[Edges]:
    """The edges for as long as the block runs; the lease is given up at its end.

    Raises:
        UserError: the source of the quotas is a file, or the cluster does not answer.
    """
    open_target = {"zookeeper": _zookeeper, "admin": _admin}.get(settings.quotas.source)
    if open_target is None:
        raise UserError(
            "quotas.source: a file cannot be enforced: use zookeeper or admin, or have the file applied by its owner"
        )
    with open_target(settings) as (target, lease):
        try:
            yield Edges(target, lease, FreezeSwitch(settings), EnforcementLog(settings))
        finally:
            lease.release()


@contextmanager
def _zookeeper(settings: Settings) -> Iterator[tuple[QuotaTarget, Lease]]:
    from kquota_spark.enforcement.edges.zookeeper_lease import EnforcementNodes, ZooKeeperLease
    from kquota_spark.enforcement.edges.zookeeper_target import ZooKeeperTarget
    from kquota_spark.zookeeper.client import zookeeper_calls

    quotas = settings.quotas
    with zookeeper_calls(quotas, session_timeout=settings.enforcement.lease_time) as calls:
        nodes = EnforcementNodes.of(settings)
        yield ZooKeeperTarget(calls, nodes), ZooKeeperLease(calls, nodes)


@contextmanager
def _admin(settings: Settings) -> Iterator[tuple[QuotaTarget, Lease]]:
    from kquota_spark.enforcement.edges.admin_target import AdminTarget
    from kquota_spark.enforcement.edges.kafka_lease import KafkaLease
    from kquota_spark.kafka.quota_admin import QuotaAdmin

    kafka = settings.kafka
    timeout_ms = settings.quotas.connect_timeout
    admin = QuotaAdmin(kafka.bootstrap_servers, kafka.options, timeout_ms=timeout_ms)
    lease = KafkaLease(settings)
    try:
        yield AdminTarget(admin, lease), lease
    finally:
        admin.close()
