"""The quotas of a cluster directly in its ZooKeeper, for brokers of any version, and also while none is running.

Each entity is changed in one transaction: its node at the version that was read, the missing nodes above it, and the
notification that brokers watch. All other content of a user's node stays, especially the login.

A person's change of the last key deletes the node and the empty nodes above it, as brokers since 3.5 do (KAFKA-14285,
`AdminZkClient`). Older brokers read a missing node as no quotas too.

An enforcer's transaction also checks the fencing number. So ZooKeeper itself refuses an enforcer that was paused for
longer than its session. The enforcer leaves a record of each node that it creates. It only ever deletes a node with
such a record, and with the same czxid, when it restores the state before.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoAuthError
from kazoo.protocol.states import ZnodeStat

from kquota_spark.config.settings import Quotas
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Change, Held, Image, Outcome, Written
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.formats.znodes.nodes import decode_quota_node, name_nodes, read_config
from kquota_spark.formats.znodes.writes import EMPTY_NODE, NodeNote, note_of, with_noted, with_quotas
from kquota_spark.kafka.quota_admin import Named
from kquota_spark.model.quotas.entities import IpEntity
from kquota_spark.model.quotas.quota_types import not_above_zero
from kquota_spark.zookeeper.client import ZooKeeperCalls, refusal_of, zookeeper_calls
from kquota_spark.zookeeper.entities import OVERTAKEN, EntityNode, EntityNodes
from kquota_spark.zookeeper.mirror import view_of_client, whole_view
from kquota_spark.zookeeper.own_nodes import EnforcementNodes

_ATTEMPTS = 20
_ROOT_DEPTH = "/config/users".count("/")
_BY_SETTINGS = Named("quotas.zookeeper_connect", instead="quotas.source: admin")


@dataclass(frozen=True, slots=True)
class _Edit:
    """The new data of a node, and whether no key is left in it: then it may be deleted."""

    data: bytes | None
    is_emptied: bool = False


class ZooKeeperCluster:
    """A `Cluster` in ZooKeeper, which does not report other tools that manage a quota: `Held.owner` is empty.

    Args:
        quotas: address, login, TLS and time limits.
        calls: a session to ZooKeeper.
        named: settings that gave the address, and the setting to use if a KRaft controller owns the nodes; for errors.
        own: the nodes of the enforcer, for writes with a fence; None for a person.
    """

    def __init__(
        self,
        quotas: Quotas,
        calls: ZooKeeperCalls,
        named: Named = _BY_SETTINGS,
        own: EnforcementNodes | None = None,
    ) -> None:
        self._quotas, self._calls, self._named, self._own = quotas, calls, named, own
        self._nodes = EntityNodes(calls, named.instead, named.servers)

    @property
    def origin(self) -> str:
        """See `Cluster`."""
        return f"ZooKeeper {self._quotas.zookeeper_connect}"

    def image(self) -> Image:
        """See `Cluster`.

        Raises:
            UserError: as there; also if it is not the ZooKeeper of a Kafka, or a KRaft controller has taken it over.
        """
        self._nodes.require_roots()
        if problem := self._nodes.owned_by_kraft():
            raise UserError(f"{self.origin}: {problem}")
        return self._image()

    def copied_image(self) -> Image:
        """As `image`, also if a KRaft controller has taken the nodes over: during a migration it copies quotas there.

        Raises:
            UserError: ZooKeeper does not answer, does not let us read all of it, or is not that of a Kafka.
        """
        self._nodes.require_roots()
        found = self._image()
        if self._nodes.owned_by_kraft():
            return replace(found, origin=f"{found.origin}, which a KRaft controller writes")
        return found

    def _image(self) -> Image:
        found = zookeeper_image(self._quotas, named=self._named.servers)
        for problem in found.unreadable.values():
            raise UserError(f"{self.origin}: {problem}: check the rights of quotas.zookeeper_login")
        return found

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """See `Cluster`.

        Raises:
            UserError: as there; also if it is not the ZooKeeper of a Kafka.
        """
        self._nodes.require_roots()
        nodes = {entity: self._nodes.of(entity) for entity in {quota.entity for quota in quotas}}
        return {quota: _held(quota, nodes[quota.entity]) for quota in quotas}

    def refusal(self, change: Change) -> str | None:
        """See `Cluster`. The rules are those of AlterClientQuotas: brokers check a node less strictly.

        Raises:
            UserError: ZooKeeper does not answer.
        """
        try:
            self._changed(self._nodes.of(change.entity), change)
        except ValueError as error:  # kazoo raises it too, for a node named . or ..
            return str(error)
        return None

    def write(self, change: Change, expect: Held | None = None, fence: int | None = None) -> Written:
        """See `Cluster`. It is repeated if another writer changed the node between its reading and its writing.

        Args:
            change: the change.
            expect: what the cluster must still hold; None compares nothing.
            fence: number of the lease; None for a person.

        Raises:
            UserError: no answer before anything was sent.
        """
        for _ in range(_ATTEMPTS):
            try:
                node = self._nodes.of(change.entity)
                if expect is not None and (objection := _objection(change, expect, node)) is not None:
                    return objection
                edit = self._changed(node, change) if change.note is None else _restored(node, change)
                transaction = self._transaction(change, node, edit, fence)
            except ValueError as error:
                return Written(Outcome.REFUSED, str(error))
            if not transaction.operations:
                return Written(Outcome.DONE)
            written = self._sent(change, transaction, is_fenced=fence is not None)
            if written is not None:
                return written
        return Written(Outcome.CHANGED, f"{change.entity}: others change its node all the time: try again")

    def _changed(self, node: EntityNode, change: Change) -> _Edit:
        """The node after a plain change; its own data if nothing changes.

        Raises:
            ValueError: the values cannot be set; the message has the reason.
        """
        problems = [not_above_zero(key, value) for key, value in change.values.items()]
        for problem in (node.problem, *problems, self._no_address(change)):
            if problem:
                raise ValueError(problem)
        changed = with_quotas(change.entity, node.data, change.values)
        if read_config(changed) == read_config(node.data):
            return _Edit(node.data)
        return _Edit(EMPTY_NODE if changed is None else changed, is_emptied=changed is None)

    def _sent(self, change: Change, transaction: TransactionRequest, *, is_fenced: bool) -> Written | None:
        """The outcome of a transaction; None if the node had changed."""
        try:
            refused = refusal_of(self._calls.commit(transaction))
        except UnreachableError as error:
            return Written(Outcome.UNKNOWN, f"{error}; whether {change.entity} was altered is not known")
        if refused is None:
            return Written(Outcome.DONE)
        index, reason = refused
        if is_fenced and index == 0:
            return Written(Outcome.FENCED)
        if isinstance(reason, OVERTAKEN):
            return None
        if not isinstance(reason, NoAuthError):
            return Written(Outcome.REFUSED, f"{change.entity}: ZooKeeper answers {type(reason).__name__}")
        path = transaction.operations[index].path.removeprefix(self._calls.chroot)
        advice = f"grant it to the user of {self._calls.login}"
        return Written(Outcome.REFUSED, f"{change.entity}: no right to write {path}: {advice}")

    def _transaction(
        self, change: Change, node: EntityNode, edit: _Edit, fence: int | None
    ) -> TransactionRequest:
        """The transaction of an edit; without a fence it is empty if nothing changes."""
        transaction = self._calls.transaction()
        own = None if fence is None else self._own
        if fence is not None:
            assert own is not None, "only an enforcer has a fence"
            transaction.check(own.fencing, fence)
        if node.stat is None:
            if not edit.data or edit.is_emptied:
                return transaction
            self._add_created(transaction, node.path, edit.data, own)
        elif edit.is_emptied and self._is_removed(node.path, node.stat, change, own):
            self._add_deleted(transaction, node.path, node.stat, own)
        elif edit.data != node.data:
            self._nodes.add_set(transaction, node, edit.data)
        else:
            return transaction
        self._nodes.add_notification(transaction, change.entity)
        return transaction

    def _is_removed(self, path: str, stat: ZnodeStat, change: Change, own: EnforcementNodes | None) -> bool:
        """Whether a node without keys is deleted: by a person, and by an enforcer that restores its absence."""
        if stat.numChildren:
            return False
        return own is None or (change.note is not None and self._is_ours(path, stat, own))

    def _add_created(
        self, transaction: TransactionRequest, path: str, data: bytes, own: EnforcementNodes | None
    ) -> None:
        for each in self._nodes.add_created(transaction, path, data):
            if own is None:
                continue
            if self._calls.stat(own.record(each)) is not None:
                transaction.delete(own.record(each))  # its node was deleted by somebody else since
            transaction.create(own.record(each), acl=list(own.acl))

    def _add_deleted(
        self, transaction: TransactionRequest, path: str, stat: ZnodeStat, own: EnforcementNodes | None
    ) -> None:
        def is_removable(above: str, of_above: ZnodeStat) -> bool:
            return above.count("/") > _ROOT_DEPTH if own is None else self._is_ours(above, of_above, own)

        for each, version in self._nodes.emptied(path, stat, is_removable):
            transaction.delete(each, version)
            if own is not None:
                transaction.delete(own.record(each))

    def _is_ours(self, path: str, stat: ZnodeStat, own: EnforcementNodes) -> bool:
        record = self._calls.stat(own.record(path))
        return record is not None and record.czxid == stat.czxid

    def _no_address(self, change: Change) -> str | None:
        """Why brokers would fail on an ip: a broker that finds a node with an unknown host does not start."""
        entity = change.entity
        if not isinstance(entity, IpEntity):
            return None
        if self._calls.stat("/config/ips") is None:
            return f"{entity}: this Kafka is older than 2.8 and has no quotas of ips"
        is_set = any(value is not None for value in change.values.values())
        if isinstance(entity.ip, str) and is_set and not _is_host(entity.ip):
            return f"{entity}: no address, and no host that is known here: brokers would not start with it"
        return None


@contextmanager
def zookeeper_cluster(quotas: Quotas, *, named: Named) -> Iterator[ZooKeeperCluster]:
    """A session to the ZooKeeper of a cluster, for a person.

    Args:
        quotas: address, login, TLS and time limits.
        named: settings that gave the address, and the setting to use if a KRaft controller owns the nodes; for errors.

    Raises:
        UserError: no server answers in time, or it refuses us.
    """
    with zookeeper_calls(quotas, session_timeout=quotas.session_timeout, named=named.servers) as calls:
        yield ZooKeeperCluster(quotas, calls, named)


def zookeeper_image(
    quotas: Quotas, of: tuple[str, str] | None = None, *, named: str = _BY_SETTINGS.servers
) -> Image:
    """The quotas that brokers read from the nodes now, over a connection of its own.

    Args:
        quotas: address, login, TLS and time limits.
        of: user and client id, to read only the quotas that can govern them; fast with any number of users. None for
            all.
        named: name of the address in errors.

    Raises:
        UserError: ZooKeeper does not answer within `connect_timeout`.
    """
    view = whole_view(quotas, named=named) if of is None else view_of_client(quotas, *of, named=named)
    names = name_nodes(view.nodes)
    decoded = {path: node.payload.problem for path, node in view.nodes.items() if node.payload.problem}
    nodes = {
        entity: view.nodes[path] for path, entity in names.entities.items() if view.nodes[path].payload.values
    }
    return Image(
        f"ZooKeeper {quotas.zookeeper_connect}",
        {entity: dict(node.payload.values) for entity, node in nodes.items()},
        {**decoded, **names.problems},
        view.unreadable,
        {entity: node.version for entity, node in nodes.items()},
    )


def _held(quota: Quota, node: EntityNode) -> Held:
    value = decode_quota_node(node.data).values.get(quota.key)
    if node.problem:
        return Held(value, None, node.problem)
    try:
        note = note_of(quota.entity, quota.key, node.data, exists=node.stat is not None)
    except ValueError as error:
        return Held(value, None, str(error))
    return Held(value, note.to_json())


def _objection(change: Change, expect: Held, node: EntityNode) -> Written | None:
    """Why the node is not as expected; None if it is. Before a restoration only the value is compared."""
    quota = change.quota
    if change.note is None:
        held = _held(quota, node)
        if held.note is None:
            return Written(Outcome.REFUSED, held.problem)
        is_as_expected = (held.value, held.note) == (expect.value, expect.note)
    else:
        found = decode_quota_node(node.data)
        if node.problem or quota.key in found.left_alone:
            return Written(Outcome.REFUSED, node.problem or f"{quota.entity}: {found.problem}")
        is_as_expected = found.values.get(quota.key) == expect.value
    if is_as_expected:
        return None
    value = decode_quota_node(node.data).values.get(quota.key)
    words = "not set" if value is None else f"{value:g}"
    return Written(Outcome.CHANGED, f"{quota.entity}: {quota.key.value} is {words}")


def _restored(node: EntityNode, change: Change) -> _Edit:
    """The node with the text and position of the key, and in the form, of the note.

    Raises:
        ValueError: it is not a note of a node, or something in the node would be lost.
    """
    quota, noted = change.quota, NodeNote.from_json(change.note or "")
    restored = with_noted(quota.entity, quota.key, node.data, noted)
    return _Edit(noted.emptied if restored is None else restored, is_emptied=restored is None)


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        try:
            socket.getaddrinfo(name, None)
        except (OSError, UnicodeError):
            return False
    return True
