"""The nodes of entities in ZooKeeper, and the operations that change them.

A writer of quotas fills a transaction with these operations. A node is written at the version that was read. Missing
nodes are created with the rights of the node above. The same transaction notifies the brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.protocol.serialization import Create, SetData
from kazoo.protocol.states import ZnodeStat

from kquota_spark.errors import UserError
from kquota_spark.formats.znodes.nodes import REQUIRED_ROOTS, NodeConfig, first_json, read_config
from kquota_spark.formats.znodes.writes import CHANGE_NODE_PREFIX, change_notification
from kquota_spark.model.quotas.entities import AnyEntity, Entity
from kquota_spark.zookeeper.client import ZooKeeperCalls

_CHANGES = "/config/changes"
OVERTAKEN = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)
"""Errors of a transaction that another writer overtook: read again."""


@dataclass(frozen=True, slots=True)
class EntityNode:
    """An entity's node as it was read; `stat` is None if it does not exist."""

    path: str
    data: bytes | None
    stat: ZnodeStat | None
    problem: str = ""
    """Why nothing may be written, whatever the node holds; empty if it may."""


class EntityNodes:
    """Reads the nodes of entities, and fills transactions.

    Two parameters are for errors. `instead` is what to use if a KRaft controller owns the nodes. `named` is the
    setting or option that holds the address.
    """

    def __init__(self, calls: ZooKeeperCalls, instead: str, named: str) -> None:
        self._calls, self._instead, self._named = calls, instead, named

    def require_roots(self) -> None:
        """Check that this is the ZooKeeper of a Kafka cluster, including every edit made before the call.

        Raises:
            UserError: it is not, or it does not answer.
        """
        self._calls.sync("/config")
        for root in REQUIRED_ROOTS:
            if self._calls.stat(f"/config/{root}") is None:
                raise UserError(f"/config/{root} does not exist: check the chroot in {self._named}")

    def of(self, entity: AnyEntity) -> EntityNode:
        """The node of an entity now.

        Raises:
            UserError: ZooKeeper does not answer, or does not let us read the node.
        """
        path = f"/config/{entity}"
        found = self._calls.get(path)
        data, stat = (None, None) if found is None else found
        return EntityNode(path, data, stat, self.owned_by_kraft() or self._other_spelling(entity, path))

    def owned_by_kraft(self) -> str:
        """Why nothing may be written if a KRaft controller owns the nodes; empty otherwise.

        While a cluster migrates from ZooKeeper to KRaft, only its controller may write the nodes.
        """
        found = self._calls.get("/controller")
        try:
            controller = first_json(found[0] or b"") if found else {}
        except ValueError:
            return ""
        if isinstance(controller, dict) and int(controller.get("kraftControllerEpoch") or -1) >= 0:
            return f"a KRaft controller owns the nodes of this cluster: use {self._instead}"
        return ""

    def add_created(self, transaction: TransactionRequest, path: str, data: bytes) -> list[str]:
        """Create a node and those missing above it, with the rights of the lowest existing node above.

        Returns:
            The paths of the created nodes, highest first.
        """
        missing = [path]
        while self._calls.stat(above := _above(missing[0])) is None:
            missing.insert(0, above)
        acl = self._calls.acl(_above(missing[0]))
        for each in missing:
            # kazoo's own `create` does not accept null, which is the data of a node above others.
            transaction._add(Create(self._calls.chroot + each, data if each == path else None, acl, 0))
        return missing

    def add_set(self, transaction: TransactionRequest, node: EntityNode, data: bytes | None) -> None:
        """Write an existing node, unless it has changed since it was read."""
        assert node.stat is not None
        # As in `add_created`: kazoo's own `set_data` does not accept null.
        transaction._add(SetData(self._calls.chroot + node.path, data, node.stat.version))

    def add_notification(self, transaction: TransactionRequest, entity: AnyEntity) -> None:
        """Notify the brokers, so that they read an entity's node again."""
        path, acl = f"{_CHANGES}/{CHANGE_NODE_PREFIX}", self._calls.acl(_CHANGES)
        transaction.create(path, change_notification(entity), acl=acl, sequence=True)

    def emptied(
        self, path: str, stat: ZnodeStat, is_removable: Callable[[str, ZnodeStat], bool]
    ) -> list[tuple[str, int]]:
        """Path and version of a node to delete, and of those above that become empty, lowest first.

        Args:
            path: the node to delete.
            stat: its stat as it was read.
            is_removable: whether a node above, by path and stat, may be deleted too.
        """
        going = [(path, stat.version)]
        while True:
            path = _above(path)
            found = self._calls.get(path)
            if found is None or found[1].numChildren != 1 or not is_removable(path, found[1]):
                return going
            if read_config(found[0]) != NodeConfig():
                return going
            going.append((path, found[1].version))

    def _other_spelling(self, entity: AnyEntity, path: str) -> str:
        """The problem that another node names the same client id; empty if none does.

        Brokers decode the names of client ids, so two nodes may name the same one. Only one of them counts.
        """
        if not isinstance(entity, Entity) or not isinstance(entity.client_id, str):
            return ""
        parent, _, proper = path.rpartition("/")
        for name in self._calls.children(parent):
            # Skips most of thousands of names cheaply: without an escape, only the raw client id itself can match.
            if name == proper or (name != entity.client_id and "%" not in name and "+" not in name):
                continue
            other = f"{parent}/{name}".removeprefix("/config/")
            with suppress(ValueError):
                if Entity.parse(other) == entity:
                    return f"{entity}: there is another node for the same client id, {other}: remove it first"
        return ""


def _above(path: str) -> str:
    return path.rpartition("/")[0]
