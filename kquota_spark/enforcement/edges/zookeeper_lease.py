"""The lease of an enforcer that changes quotas directly in ZooKeeper.

The lease is kept in ZooKeeper too, below /kquota/<cluster_id>. The node `enforcer` is ephemeral and ends with the
session of its holder. The dataVersion of the node `fencing` is the fencing number, which each holder raises. Both are
written in one transaction. `quotas.zookeeper_cluster` checks the number in the transaction of each change.
"""

from __future__ import annotations

import os
import socket

from kazoo.exceptions import NodeExistsError

from kquota_spark.enforce.ports import Holder
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.zookeeper.client import ZooKeeperCalls, refusal_of
from kquota_spark.zookeeper.own_nodes import EnforcementNodes


class ZooKeeperLease:
    """A `Lease` in ZooKeeper; it lasts as long as the session of the client."""

    def __init__(self, calls: ZooKeeperCalls, nodes: EnforcementNodes) -> None:
        self._calls, self._nodes = calls, nodes
        self._holder = f"{socket.gethostname()}:{os.getpid()}"

    def acquire(self, command: str = "") -> int | None:
        """Take the lease, unless we hold it already; its fencing number, None if another enforcer holds it.

        Args:
            command: a person's command, for `holder`; empty for the enforcer.

        Raises:
            UserError: ZooKeeper does not answer, or does not let us create our nodes; or anybody could write them.
        """
        if self._nodes.is_refused:
            raise UserError(
                "quotas.zookeeper_login is not set: whoever reaches ZooKeeper could take the lease and write quotas: "
                "give a login, or set enforcement.allow_open_nodes: true"
            )
        for path in (self._nodes.created, self._nodes.fencing):
            self._calls.ensure(path, self._nodes.acl)
        self._calls.sync(self._nodes.root)
        if self._calls.stat(self._nodes.enforcer) is not None:
            return self._number() if self._is_ours() else None
        transaction = self._calls.transaction()
        # Names of hosts have no blank: the command follows the first one.
        holder = f"{self._holder} {command}".rstrip().encode()
        transaction.create(self._nodes.enforcer, holder, acl=list(self._nodes.acl), ephemeral=True)
        transaction.set_data(self._nodes.fencing, holder)
        results = self._calls.commit(transaction)
        refused = refusal_of(results)
        if refused is None:
            return int(results[1].version)
        if isinstance(refused[1], NodeExistsError):
            return None
        raise UserError(
            f"the lease at {self._nodes.root} cannot be taken: {type(refused[1]).__name__}: check the rights of "
            "quotas.zookeeper_login there"
        )

    def is_held(self, fencing: int) -> bool:
        """Whether we still hold the lease, according to the server; False if it does not answer."""
        try:
            self._calls.sync(self._nodes.root)
            return self._is_ours() and self._number() == fencing
        except UserError:
            return False

    def release(self) -> None:
        """Release the lease immediately; if the server does not answer, it ends with the session."""
        try:
            if self._is_ours():
                self._calls.delete(self._nodes.enforcer)
        except UnreachableError:
            return

    def holder(self) -> Holder | None:
        """The last holder; None if nobody ever took the lease.

        Raises:
            UserError: ZooKeeper does not answer.
        """
        found = self._calls.get(self._nodes.fencing)
        if found is None or not found[0]:
            return None
        is_holding = self._calls.stat(self._nodes.enforcer) is not None
        name, _, command = found[0].decode(errors="replace").partition(" ")
        return Holder(name, found[1].mtime, is_holding, command)

    def _is_ours(self) -> bool:
        stat = self._calls.stat(self._nodes.enforcer)
        return stat is not None and stat.ephemeralOwner == self._calls.session

    def _number(self) -> int | None:
        stat = self._calls.stat(self._nodes.fencing)
        return None if stat is None else int(stat.version)
