"""Build an enforcer from the policy file, the log, the switch, and the cluster and lease of the quotas' source."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kquota_spark.config.own_clients import enforcer_options, enforcer_zookeeper_login, for_enforcer
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import OVERRIDE, Mode, Proposal
from kquota_spark.enforce.enforcer import Enforcer
from kquota_spark.enforce.guards import Situation
from kquota_spark.enforce.policies.policy import Policies
from kquota_spark.enforce.policies.proposing import proposals
from kquota_spark.enforce.ports import Cluster, Lease, Ledger, Switch
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.enforcement.input import observations
from kquota_spark.enforcement.policies import load_policies
from kquota_spark.enforcement.right_sizes import DaySizes
from kquota_spark.enforcement.situation import situation
from kquota_spark.errors import UserError
from kquota_spark.quotas.sources import require_source


class Edges(NamedTuple):
    """The ports through which the enforcer acts."""

    cluster: Cluster
    lease: Lease
    switch: Switch
    ledger: Ledger


@contextmanager
def enforcement_edges(settings: Settings, *, is_patient: bool = False) -> Iterator[Edges]:
    """The edges while the block runs; the lease is released at its end.

    Args:
        settings: the configuration, with the source of the quotas.
        is_patient: whether to wait for a server that is starting; commands of people do not wait.

    Raises:
        UserError: the source of the quotas is a file, or the cluster does not answer.
    """
    open_cluster = {"zookeeper": _zookeeper, "admin": _admin}.get(settings.quotas.source)
    if open_cluster is None:
        raise UserError(
            "quotas.source: a file cannot be enforced: use zookeeper or admin, or have the file applied by its owner"
        )
    if not is_patient:
        require_source(settings)
    with open_cluster(for_enforcer(settings)) as (cluster, lease):
        try:
            yield Edges(cluster, lease, FreezeSwitch(settings), EnforcementLog(settings))
        finally:
            lease.release()


@contextmanager
def _zookeeper(settings: Settings) -> Iterator[tuple[Cluster, Lease]]:
    from kquota_spark.enforcement.edges.zookeeper_lease import ZooKeeperLease
    from kquota_spark.quotas.zookeeper_cluster import ZooKeeperCluster
    from kquota_spark.zookeeper.client import zookeeper_calls
    from kquota_spark.zookeeper.own_nodes import EnforcementNodes

    quotas = settings.quotas
    lease_time, login = settings.enforcement.lease_time, enforcer_zookeeper_login(settings)
    with zookeeper_calls(quotas, session_timeout=lease_time, login=login) as calls:
        nodes = EnforcementNodes.of(settings)
        yield ZooKeeperCluster(quotas, calls, own=nodes), ZooKeeperLease(calls, nodes)


@contextmanager
def _admin(settings: Settings) -> Iterator[tuple[Cluster, Lease]]:
    from kquota_spark.enforcement.edges.kafka_lease import KafkaLease
    from kquota_spark.kafka.quota_admin import Named, QuotaAdmin
    from kquota_spark.quotas.admin_cluster import AdminCluster

    kafka = settings.kafka
    timeout_ms = settings.quotas.connect_timeout
    named = Named(login=enforcer_options(settings))
    admin = QuotaAdmin(kafka.bootstrap_servers, kafka.options, timeout_ms=timeout_ms, named=named)
    lease = KafkaLease(settings)
    try:
        yield AdminCluster(admin, lease), lease
    finally:
        admin.close()


_LEASE_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Enforcing:
    """An enforcer and its settings; each new one reads the policy file again."""

    settings: Settings
    policies: Policies
    edges: Edges
    actor: str
    sizes: DaySizes | None = None
    """Right sizes that earlier checks have read; None to read them."""

    @classmethod
    def of(cls, settings: Settings, edges: Edges, actor: str, sizes: DaySizes | None = None) -> Enforcing:
        """Read the policy file, and build an enforcer with it.

        Args:
            settings: the configuration.
            edges: the ports of the cluster.
            actor: the person or program, for the log.
            sizes: right sizes that earlier checks have read; None to read them.

        Raises:
            UserError: it cannot be read or is not valid.
        """
        return cls(settings, load_policies(Path(settings.enforcement.policy_file)), edges, actor, sizes)

    @property
    def enforcer(self) -> Enforcer:
        """The enforcer of the cluster."""
        return self.with_ledger(self.edges.ledger)

    def with_ledger(self, ledger: Ledger) -> Enforcer:
        """The same enforcer with another log."""
        return Enforcer(
            self.edges.cluster,
            ledger,
            self.edges.lease,
            self.edges.switch,
            guards=self.policies.guards,
            exempt=self.policies.exempt,
            mode_of=self.mode_of,
            actor=self.actor,
            needs_second_person=self.needs_second_person,
            policy_file=self.settings.enforcement.policy_file,
        )

    @property
    def needs_second_person(self) -> bool:
        """Whether the author of a plan may not approve it."""
        return self.settings.enforcement.approval == "second_person"

    def mode_of(self, policy: str) -> Mode:
        """How far a policy may go; a person's change needs approval if a second person must approve it."""
        mode = self.policies.mode_of(policy)
        return min(mode, Mode.APPROVE) if policy == OVERRIDE and self.needs_second_person else mode

    def situation(self, now_ms: int) -> Situation:
        """The freshness of the tables now."""
        return situation(self.settings, now_ms, silent_after_ms=self.policies.guards.max_age)

    def proposals(self, now_ms: int) -> Sequence[Proposal]:
        """The proposals of the policies now."""
        seen = observations(self.settings, self.policies, now_ms, self.sizes)
        return proposals(self.policies, seen, now_ms)


@contextmanager
def enforcing(settings: Settings, actor: str) -> Iterator[Enforcing]:
    """An enforcer for the command of a person; the lease is released at the end.

    Raises:
        UserError: the policy file, the cluster or the tables cannot be used.
    """
    with enforcement_edges(settings) as edges:
        yield Enforcing.of(settings, edges, actor)


def wait_for_lease(run: Enforcing, command: str) -> None:
    """See `taken_lease`."""
    taken_lease(run.settings, run.edges.lease, command)


def taken_lease(settings: Settings, lease: Lease, command: str) -> int:
    """Take the lease for the command of a person: a running enforcer releases it after each check.

    Args:
        settings: the lease time.
        lease: of the cluster.
        command: the command, for people who ask what holds the lease, e.g. `kquota override set`.

    Returns:
        The fencing number.

    Raises:
        UserError: another enforcer still holds it after twice `enforcement.lease_time`.
    """
    wait_s = 2 * settings.enforcement.lease_time / 1_000
    until_s = time.monotonic() + wait_s
    while (fencing := lease.acquire(command)) is None:
        if time.monotonic() > until_s:
            raise UserError(
                f"another enforcer has held the lease for {wait_s:.0f} s: nothing was sent; kquota enforce status "
                "shows who it is, try again"
            )
        time.sleep(_LEASE_POLL_S)
    return fencing
