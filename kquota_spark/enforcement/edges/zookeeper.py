"""Target and lease for quotas that are changed directly in ZooKeeper.

The lease is kept in ZooKeeper too, below /kquota/<cluster_id>. The node `enforcer` is ephemeral and ends with the
session of its holder. The dataVersion of the node `fencing` is the fencing number, which each holder raises. Both are
written in one transaction.

Each quota is changed in one transaction: it checks the fencing number and that the node is as it was read, and adds the
notification. ZooKeeper itself refuses an enforcer that was paused for longer than its session. An existing node stays,
with all its other keys. Missing nodes are created with the rights of the node above them, each with a record of ours.
Only a node with such a record, and with the same czxid, is ever deleted again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoAuthError, NodeExistsError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Held, Holder, Outcome, Written
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.formats.znodes.nodes import decode_quota_node
from kquota_spark.formats.znodes.writes import EMPTY_NODE, NodeNote, note_of, with_noted, with_quotas
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.names import sanitise
from kquota_spark.model.quotas.quota_types import not_above_zero
from kquota_spark.zookeeper.client import ZooKeeperCalls, refusal_of
from kquota_spark.zookeeper.entities import OVERTAKEN, EntityNode, EntityNodes

_ATTEMPTS = 5


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


@dataclass(frozen=True, slots=True)
class _Edit:
    """The new data of a node, and whether to delete the node if it is ours."""

    data: bytes | None
    is_emptied: bool = False


class ZooKeeperTarget:
    """A `QuotaTarget` in ZooKeeper, which does not report other tools that manage a quota: `Held.owner` is empty."""

    def __init__(self, calls: ZooKeeperCalls, nodes: EnforcementNodes) -> None:
        self._calls, self._nodes = calls, nodes
        self._entities = EntityNodes(calls, "quotas.source: admin", "quotas.zookeeper_connect")

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """The present state of each requested quota.

        Raises:
            UserError: ZooKeeper does not answer, does not let us read all of it, or is not Kafka's.
        """
        self._entities.require_roots()
        nodes = {entity: self._entities.of(entity) for entity in {quota.entity for quota in quotas}}
        return {quota: _held(quota, nodes[quota.entity]) for quota in quotas}

    def refusal(self, quota: Quota, value: float | None) -> str | None:
        """Why this value cannot be set; None if it can. The rules are those of AlterClientQuotas.

        Brokers check a node less strictly than AlterClientQuotas.
        """
        if problem := not_above_zero(quota.key, value):
            return problem
        node = self._entities.of(quota.entity)
        if node.problem:
            return node.problem
        try:
            with_quotas(quota.entity, node.data, {quota.key: value})
        except ValueError as error:
            return str(error)
        return None

    def write(self, quota: Quota, value: float | None, expected: Held, fencing: int) -> Written:
        """Set or remove one key of one node.

        Args:
            quota: entity and key.
            value: the limit, per second; None removes it.
            expected: the result of `read` for it.
            fencing: number of the lease.
        """

        def edited(node: EntityNode) -> _Edit | Written:
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
        """Restore the text and position of the key, and the form of the node, from the note.

        Args:
            quota: entity and key.
            expected: the limit that the enforcer has written, per second; None if it removed it.
            note: `Held.note` of the state to restore.
            fencing: number of the lease.
        """
        try:
            noted = NodeNote.from_json(note)
        except ValueError as error:
            return Written(Outcome.REFUSED, str(error))

        def edited(node: EntityNode) -> _Edit | Written:
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

    def _changed(
        self, entity: Entity, fencing: int, edited: Callable[[EntityNode], _Edit | Written]
    ) -> Written:
        """Read, decide, write; repeat if another key of the node was changed in between."""
        for _ in range(_ATTEMPTS):
            try:
                node = self._entities.of(entity)
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
        """The outcome of a transaction; None if the node had changed."""
        try:
            refused = refusal_of(self._calls.commit(transaction))
        except UnreachableError as error:
            return Written(Outcome.UNKNOWN, str(error))
        if refused is None:
            return Written(Outcome.DONE)
        index, reason = refused
        if index == 0:
            return Written(Outcome.FENCED)
        if isinstance(reason, OVERTAKEN):
            return None
        path = transaction.operations[index].path.removeprefix(self._calls.chroot)
        words = f"no right to write {path}" if isinstance(reason, NoAuthError) else type(reason).__name__
        return Written(Outcome.REFUSED, f"{entity}: {words}")

    def _transaction(self, entity: Entity, node: EntityNode, edit: _Edit, fencing: int) -> TransactionRequest:
        transaction = self._calls.transaction()
        transaction.check(self._nodes.fencing, fencing)
        if node.stat is None:
            if not edit.data or edit.is_emptied:
                return transaction
            self._add_created(transaction, node.path, edit.data)
        elif edit.is_emptied and not node.stat.numChildren and self._is_ours(node.path, node.stat):
            for path, version in self._entities.emptied(node.path, node.stat, self._is_ours):
                transaction.delete(path, version)
                transaction.delete(self._nodes.record(path))
        elif edit.data != node.data:
            self._entities.add_set(transaction, node, edit.data)
        else:
            return transaction
        self._entities.add_notification(transaction, entity)
        return transaction

    def _add_created(self, transaction: TransactionRequest, path: str, data: bytes) -> None:
        for each in self._entities.add_created(transaction, path, data):
            if self._calls.stat(self._nodes.record(each)) is not None:
                transaction.delete(self._nodes.record(each))  # its node was deleted by somebody else since
            transaction.create(self._nodes.record(each), acl=list(self._nodes.acl))

    def _is_ours(self, path: str, stat: ZnodeStat) -> bool:
        record = self._calls.stat(self._nodes.record(path))
        return record is not None and record.czxid == stat.czxid


def _held(quota: Quota, node: EntityNode) -> Held:
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
