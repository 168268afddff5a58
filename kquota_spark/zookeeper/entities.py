"""The nodes of entities in ZooKeeper, as whoever writes quotas there finds them, and the operations that change them.

Who writes fills a transaction with these: a node is written at the version that was read, what is missing is made with
the rights of the node above, and brokers are told in the same transaction.
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
"""What refuses a transaction because somebody else was faster: read again."""


@dataclass(frozen=True, slots=True)
class EntityNode:
    """An entity's node as it was read; without stat it is not there."""

    path: str
    data: bytes | None
    stat: ZnodeStat | None
    problem: str = ""
    """Why nothing may be written, whatever it holds."""


class EntityNodes:
    """Reads the nodes of entities, and fills transactions.

    `instead` is what to use where a KRaft controller owns the nodes, `named` what gave the address; both for errors.
    """

    def __init__(self, calls: ZooKeeperCalls, instead: str, named: str) -> None:
        self._calls, self._instead, self._named = calls, instead, named

    def require_roots(self) -> None:
        """See that this is the ZooKeeper of a Kafka, with all that was written before the call.

        Raises:
            UserError: it is not, or does not answer.
        """
        self._calls.sync("/config")
        for root in REQUIRED_ROOTS:
            if self._calls.stat(f"/config/{root}") is None:
                raise UserError(f"/config/{root} does not exist: check the chroot in {self._named}")

    def of(self, entity: AnyEntity) -> EntityNode:
        """The node of an entity now.

        Raises:
            UserError: ZooKeeper does not answer, or does not let us see it.
        """
        path = f"/config/{entity}"
        found = self._calls.get(path)
        data, stat = (None, None) if found is None else found
        return EntityNode(path, data, stat, self.owned_by_kraft() or self._other_spelling(entity, path))

    def owned_by_kraft(self) -> str:
        """While a cluster moves from ZooKeeper to KRaft, its controller writes the nodes, and nobody else may."""
        found = self._calls.get("/controller")
        try:
            controller = first_json(found[0] or b"") if found else {}
        except ValueError:
            return ""
        if isinstance(controller, dict) and int(controller.get("kraftControllerEpoch") or -1) >= 0:
            return f"a KRaft controller owns the nodes of this cluster: use {self._instead}"
        return ""

    def add_created(self, transaction: TransactionRequest, path: str, data: bytes) -> list[str]:
        """Make a node and those missing above it, with the rights of the one above; their paths, highest first."""
        missing = [path]
        while self._calls.stat(above := _above(missing[0])) is None:
            missing.insert(0, above)
        acl = self._calls.acl(_above(missing[0]))
        for each in missing:
            # kazoo's own create takes no null, which is what a node above others holds.
            transaction._add(Create(self._calls.chroot + each, data if each == path else None, acl, 0))
        return missing

    def add_set(self, transaction: TransactionRequest, node: EntityNode, data: bytes | None) -> None:
        """Write a node that is there, unless it has changed."""
        assert node.stat is not None
        # As for create: kazoo's own takes no null.
        transaction._add(SetData(self._calls.chroot + node.path, data, node.stat.version))

    def add_notification(self, transaction: TransactionRequest, entity: AnyEntity) -> None:
        """Have brokers read an entity's node again."""
        path, acl = f"{_CHANGES}/{CHANGE_NODE_PREFIX}", self._calls.acl(_CHANGES)
        transaction.create(path, change_notification(entity), acl=acl, sequence=True)

    def emptied(
        self, path: str, stat: ZnodeStat, is_removable: Callable[[str, ZnodeStat], bool]
    ) -> list[tuple[str, int]]:
        """Path and version of a node that goes, and of those above that it leaves empty, lowest first."""
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
        """Brokers decode the names of client ids: two nodes may name the same one, and only one of them counts."""
        if not isinstance(entity, Entity) or not isinstance(entity.client_id, str):
            return ""
        parent, _, proper = path.rpartition("/")
        for name in self._calls.children(parent):
            # Of thousands of names most cannot be it: one without escapes only if it is the client id as it stands.
            if name == proper or (name != entity.client_id and "%" not in name and "+" not in name):
                continue
            other = f"{parent}/{name}".removeprefix("/config/")
            with suppress(ValueError):
                if Entity.parse(other) == entity:
                    return f"{entity}: there is another node for the same client id, {other}: remove it first"
        return ""


def _above(path: str) -> str:
    return path.rpartition("/")[0]
