"""The right to act, kept in ZooKeeper beside the quotas: who holds it, and a number that each holder raises.

Below /kquota/<cluster_id>: `enforcer` is ephemeral and goes with the session of its holder; the dataVersion of
`fencing` is the fencing number. Both are written in one transaction, and every write of a quota checks the number
in its own: an enforcer that was paused for longer than its session is refused by ZooKeeper itself.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from kazoo.exceptions import NodeExistsError
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.ports import Holder
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.model.quotas.names import sanitise
from kquota_spark.zookeeper.client import ZooKeeperCalls, refusal_of


@dataclass(frozen=True, slots=True)
class EnforcementNodes:
    """Where an enforcer keeps its own nodes, and who may write them."""

    root: str
    acl: Sequence[ACL]
    is_refused: bool
    """Anybody could write them, and nobody has asked for that."""

    @classmethod
    def of(cls, settings: Settings) -> EnforcementNodes:
        """Those of a cluster; with a login nobody else may write them."""
        # ZooKeeper takes neither "." nor ".." for a name.
        root = f"/kquota/{sanitise(settings.cluster_id).replace('.', '%2E')}"
        if settings.quotas.zookeeper_login.user:
            return cls(root, CREATOR_ALL_ACL, False)
        return cls(root, OPEN_ACL_UNSAFE, not settings.enforcement.allow_open_nodes)

    @property
    def enforcer(self) -> str:
        """Ephemeral, of the holder's session."""
        return f"{self.root}/enforcer"

    @property
    def fencing(self) -> str:
        """Its dataVersion is the fencing number."""
        return f"{self.root}/fencing"

    @property
    def created(self) -> str:
        """Above one record for each node of an entity that we made."""
        return f"{self.root}/created"

    def record(self, path: str) -> str:
        """The record that we made the node at a path; made in one transaction, both have the same czxid."""
        return f"{self.created}/{sanitise(path)}"


class ZooKeeperLease:
    """A `Lease`; the session of the calls' client is its life."""

    def __init__(self, calls: ZooKeeperCalls, nodes: EnforcementNodes) -> None:
        self._calls, self._nodes = calls, nodes
        self._holder = f"{socket.gethostname()}:{os.getpid()}".encode()

    def acquire(self) -> int | None:
        """The fencing number if the lease is ours, now or already; None while another enforcer holds it.

        Raises:
            UserError: ZooKeeper does not answer, or does not let us make our nodes; or anybody could write them.
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
        transaction.create(self._nodes.enforcer, self._holder, acl=list(self._nodes.acl), ephemeral=True)
        transaction.set_data(self._nodes.fencing, self._holder)
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
        """Whether the lease is still ours, asked of the server; not if it does not answer."""
        try:
            self._calls.sync(self._nodes.root)
            return self._is_ours() and self._number() == fencing
        except UserError:
            return False

    def release(self) -> None:
        """Give it up at once; a server that does not answer gives it up when the session ends."""
        try:
            if self._is_ours():
                self._calls.delete(self._nodes.enforcer)
        except UnreachableError:
            return

    def holder(self) -> Holder | None:
        """Who took it last; None where nobody ever did.

        Raises:
            UserError: ZooKeeper does not answer.
        """
        found = self._calls.get(self._nodes.fencing)
        if found is None or not found[0]:
            return None
        is_holding = self._calls.stat(self._nodes.enforcer) is not None
        return Holder(found[0].decode(errors="replace"), found[1].mtime, is_holding)

    def _is_ours(self) -> bool:
        stat = self._calls.stat(self._nodes.enforcer)
        return stat is not None and stat.ephemeralOwner == self._calls.session

    def _number(self) -> int | None:
        stat = self._calls.stat(self._nodes.fencing)
        return None if stat is None else int(stat.version)
