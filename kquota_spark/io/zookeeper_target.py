"""Quotas changed straight in ZooKeeper, each in one transaction: the lease, the node as it was read, the notification.

A node that is there stays, with all its other keys. Nodes that are missing are made with the rights of the node above
them, each with a record of ours: only what such a record names, by the same czxid, is ever deleted again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.protocol.serialization import Create, SetData
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Held, Outcome, Written
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.formats.znode_json import first_json, read_config
from kquota_spark.formats.znode_notes import NodeNote, note_of, with_noted
from kquota_spark.formats.znode_writes import (
    CHANGE_NODE_PREFIX,
    EMPTY_NODE,
    change_notification,
    with_quotas,
)
from kquota_spark.formats.znodes import REQUIRED_ROOTS, decode_quota_node
from kquota_spark.io.zookeeper_calls import ZooKeeperCalls, refusal_of
from kquota_spark.io.zookeeper_lease import EnforcementNodes
from kquota_spark.model.entities import Entity

_CHANGES = "/config/changes"
_ATTEMPTS = 5
_OVERTAKEN = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)


@dataclass(frozen=True, slots=True)
class _Node:
    """An entity's node as it was read; without stat it is not there."""

    path: str
    data: bytes | None
    stat: ZnodeStat | None
    problem: str = ""
    """Why nothing may be written, whatever it holds."""


@dataclass(frozen=True, slots=True)
class _Edit:
    """What a node shall hold, and whether it shall go if it is ours."""

    data: bytes | None
    is_emptied: bool = False


class ZooKeeperTarget:
    """A `QuotaTarget`. ZooKeeper does not say who else manages a quota: `Held.owner` is empty."""

    def __init__(self, calls: ZooKeeperCalls, nodes: EnforcementNodes, chroot: str) -> None:
        self._calls, self._nodes, self._chroot = calls, nodes, chroot

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """What is there now.

        Raises:
            UserError: ZooKeeper does not answer, does not let us see all of it, or is not Kafka's.
        """
        self._calls.sync("/config")
        for root in REQUIRED_ROOTS:
            if self._calls.stat(f"/config/{root}") is None:
                raise UserError(
                    f"/config/{root} does not exist: check the chroot in quotas.zookeeper_connect"
                )
        nodes = {entity: self._node(entity) for entity in {quota.entity for quota in quotas}}
        return {quota: _held(quota, nodes[quota.entity]) for quota in quotas}

    def refusal(self, quota: Quota, value: float | None) -> str | None:
        """Why this value cannot be set. Brokers ask less of a node than of AlterClientQuotas: the latter counts."""
        if value is not None and not value > 0:
            return f"{quota.key.value} {value:g}: Kafka takes only values above 0"
        node = self._node(quota.entity)
        if node.problem:
            return node.problem
        try:
            with_quotas(quota.entity, node.data, {quota.key: value})
        except ValueError as error:
            return str(error)
        return None

    def write(self, quota: Quota, value: float | None, expected: Held, fencing: int) -> Written:
        """Set or remove one key of one node."""

        def edited(node: _Node) -> _Edit | Written:
            held = _held(quota, node)
            if held.note is None:
                return Written(Outcome.REFUSED, held.problem)
            if (held.value, held.note) != (expected.value, expected.note):
                return Written(Outcome.CHANGED, _found(quota, held.value))
            changed = with_quotas(quota.entity, node.data, {quota.key: value})
            if changed is None and node.stat is None:
                return _Edit(node.data)
            return _Edit(EMPTY_NODE if changed is None else changed)

        return self._changed(quota.entity, fencing, edited)

    def put_back(self, quota: Quota, expected: float | None, note: str, fencing: int) -> Written:
        """Restore the text, the place and the form that the note names."""
        try:
            noted = NodeNote.from_json(note)
        except ValueError as error:
            return Written(Outcome.REFUSED, str(error))

        def edited(node: _Node) -> _Edit | Written:
            if node.problem:
                return Written(Outcome.REFUSED, node.problem)
            found = decode_quota_node(node.data)
            if quota.key in found.left_alone:
                return Written(Outcome.REFUSED, f"{quota.entity}: {found.problem}")
            value = found.values.get(quota.key)
            if value != expected:
                return Written(Outcome.CHANGED, _found(quota, value))
            restored = with_noted(quota.entity, quota.key, node.data, noted)
            return _Edit(noted.emptied if restored is None else restored, is_emptied=restored is None)

        return self._changed(quota.entity, fencing, edited)

    def _changed(self, entity: Entity, fencing: int, edited: Callable[[_Node], _Edit | Written]) -> Written:
        """Read, decide, write; again if another key of the node was changed in between."""
        for _ in range(_ATTEMPTS):
            try:
                node = self._node(entity)
                edit = edited(node)
                if isinstance(edit, Written):
                    return edit
                transaction = self._transaction(entity, node, edit, fencing)
            except (UserError, ValueError) as error:
                return Written(Outcome.REFUSED, f"nothing was sent: {error}")
            written = self._sent(entity, transaction)
            if written is not None:
                return written
        return Written(Outcome.CHANGED, f"{entity}: others change its node all the time")

    def _sent(self, entity: Entity, transaction: TransactionRequest) -> Written | None:
        """What became of a transaction; None if the node had changed."""
        try:
            refused = refusal_of(self._calls.commit(transaction))
        except UnreachableError as error:
            return Written(Outcome.UNKNOWN, str(error))
        if refused is None:
            return Written(Outcome.DONE)
        index, reason = refused
        if index == 0:
            return Written(Outcome.FENCED)
        if isinstance(reason, _OVERTAKEN):
            return None
        words = "no right to write it" if isinstance(reason, NoAuthError) else type(reason).__name__
        return Written(Outcome.REFUSED, f"{entity}: {words}")

    def _transaction(self, entity: Entity, node: _Node, edit: _Edit, fencing: int) -> TransactionRequest:
        transaction = self._calls.transaction()
        transaction.check(self._nodes.fencing, fencing)
        if node.stat is None:
            if not edit.data or edit.is_emptied:
                return transaction
            self._add_created(transaction, node.path, edit.data)
        elif edit.is_emptied and not node.stat.numChildren and self._is_ours(node.path, node.stat):
            self._add_deleted(transaction, node.path, node.stat)
        elif edit.data != node.data:
            # kazoo's own set_data takes no null, which is what a node above others holds.
            path = self._chroot + node.path
            transaction._add(SetData(path, edit.data, node.stat.version))
        else:
            return transaction
        acl = self._calls.acl(_CHANGES)
        notification = change_notification(entity)
        transaction.create(f"{_CHANGES}/{CHANGE_NODE_PREFIX}", notification, acl=acl, sequence=True)
        return transaction

    def _add_created(self, transaction: TransactionRequest, path: str, data: bytes) -> None:
        missing = [path]
        while self._calls.stat(above := _above(missing[0])) is None:
            missing.insert(0, above)
        acl = self._calls.acl(_above(missing[0]))
        for each in missing:
            if self._calls.stat(self._nodes.record(each)) is not None:
                transaction.delete(self._nodes.record(each))  # of a node that somebody else has deleted since
            transaction.create(self._nodes.record(each), acl=list(self._nodes.acl))
            transaction._add(self._create(each, data if each == path else None, acl))

    def _create(self, path: str, data: bytes | None, acl: list[ACL]) -> Any:
        return Create(self._chroot + path, data, acl, 0)

    def _add_deleted(self, transaction: TransactionRequest, path: str, stat: ZnodeStat) -> None:
        """The node, and those above that are ours and that it leaves empty."""
        while True:
            transaction.delete(path, stat.version)
            transaction.delete(self._nodes.record(path))
            path = _above(path)
            found = self._calls.get(path)
            if found is None or found[1].numChildren != 1 or not self._is_ours(path, found[1]):
                return
            if read_config(found[0]) != read_config(None) and found[0] != EMPTY_NODE:
                return
            stat = found[1]

    def _is_ours(self, path: str, stat: ZnodeStat) -> bool:
        record = self._calls.stat(self._nodes.record(path))
        return record is not None and record.czxid == stat.czxid

    def _node(self, entity: Entity) -> _Node:
        path = f"/config/{entity}"
        found = self._calls.get(path)
        data, stat = (None, None) if found is None else found
        return _Node(path, data, stat, self._owned_by_kraft() or self._other_spelling(entity, path))

    def _owned_by_kraft(self) -> str:
        """While a cluster moves from ZooKeeper to KRaft, its controller writes the nodes, and nobody else may."""
        found = self._calls.get("/controller")
        try:
            controller = first_json(found[0] or b"") if found else {}
        except ValueError:
            return ""
        if isinstance(controller, dict) and int(controller.get("kraftControllerEpoch") or -1) >= 0:
            return "a KRaft controller owns the nodes of this cluster: use quotas.source: admin"
        return ""

    def _other_spelling(self, entity: Entity, path: str) -> str:
        """Brokers decode the names of client ids: two nodes may name the same one, and only one of them counts."""
        if not isinstance(entity.client_id, str):
            return ""
        parent, _, proper = path.rpartition("/")
        for name in self._calls.children(parent):
            other = f"{parent}/{name}".removeprefix("/config/")
            if name != proper and _is_spelling(other, entity):
                return f"{entity}: there is another node for the same client id, {other}: remove it first"
        return ""


def _held(quota: Quota, node: _Node) -> Held:
    value = decode_quota_node(node.data).values.get(quota.key)
    if node.problem:
        return Held(value, None, node.problem)
    try:
        note = note_of(quota.entity, quota.key, node.data, exists=node.stat is not None)
    except ValueError as error:
        return Held(value, None, str(error))
    return Held(value, note.to_json())


def _found(quota: Quota, value: float | None) -> str:
    return f"{quota.entity}: {quota.key.value} is {'not set' if value is None else f'{value:g}'}"


def _above(path: str) -> str:
    return path.rpartition("/")[0]


def _is_spelling(path: str, entity: Entity) -> bool:
    try:
        return Entity.parse(path) == entity
    except ValueError:
        return False
