"""The nodes that an enforcer keeps in ZooKeeper: its lease, the fencing number, and a record of each created node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from kquota_spark.config.settings import Settings
from kquota_spark.model.quotas.names import sanitise


@dataclass(frozen=True, slots=True)
class EnforcementNodes:
    """The path of an enforcer's own nodes, and who may write them."""

    root: str
    acl: Sequence[ACL]
    is_refused: bool
    """Whether the lease is refused: anybody could write the nodes, and the settings do not allow that."""

    @classmethod
    def of(cls, settings: Settings) -> EnforcementNodes:
        """The nodes of a cluster; with a login nobody else may write them."""
        # ZooKeeper accepts neither "." nor ".." as a name.
        root = f"/kquota/{sanitise(settings.cluster_id).replace('.', '%2E')}"
        if settings.quotas.zookeeper_login.user:
            return cls(root, CREATOR_ALL_ACL, False)
        return cls(root, OPEN_ACL_UNSAFE, not settings.enforcement.allow_open_nodes)

    @property
    def enforcer(self) -> str:
        """Path of the ephemeral node of the holder's session."""
        return f"{self.root}/enforcer"

    @property
    def fencing(self) -> str:
        """Path of the node that has the fencing number as its dataVersion."""
        return f"{self.root}/fencing"

    @property
    def created(self) -> str:
        """Path of the parent of our records: one for each node of an entity that we created."""
        return f"{self.root}/created"

    def record(self, path: str) -> str:
        """Path of our record for the node at `path`; one transaction creates both, so their czxid is equal."""
        return f"{self.created}/{sanitise(path)}"
