"""The quotas of a cluster directly in its ZooKeeper, for brokers of any version, and also while none is running.

Each entity is altered in one transaction: its node at the version that was read, the missing nodes above it, and the
notification that brokers watch. All other content of a user's node stays, especially the login. A node without keys is
deleted, with the empty nodes above it, as brokers since 3.5 do (KAFKA-14285, `AdminZkClient`). Older brokers read a
missing node as no quotas too.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoAuthError

from kquota_spark.config.settings import Quotas
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.formats.znodes.nodes import name_nodes, read_config
from kquota_spark.formats.znodes.writes import EMPTY_NODE, with_quotas
from kquota_spark.kafka.quota_admin import Named
from kquota_spark.model.quotas.entities import AnyEntity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, not_above_zero
from kquota_spark.zookeeper.client import ZooKeeperCalls, refusal_of, zookeeper_calls
from kquota_spark.zookeeper.entities import OVERTAKEN, EntityNode, EntityNodes
from kquota_spark.zookeeper.mirror import whole_view

_ATTEMPTS = 20
_ROOT_DEPTH = "/config/users".count("/")


class ZooKeeperQuotas:
    """`ClusterQuotas` in ZooKeeper; see `zookeeper_quotas`."""

    def __init__(
        self, quotas: Quotas, calls: ZooKeeperCalls, named: Named, on_problem: Callable[[str], None]
    ) -> None:
        self._quotas, self._calls, self._on_problem = quotas, calls, on_problem
        self._nodes = EntityNodes(calls, named.instead, named.servers)
        self._named = named
        self.origin = f"ZooKeeper {quotas.zookeeper_connect}"

    def read(self) -> QuotaSet:
        """See `ClusterQuotas`: all quotas that brokers read from the nodes.

        Raises:
            UserError: as there; also if it is not the ZooKeeper of a Kafka, or a KRaft controller has taken it over.
        """
        self._nodes.require_roots()
        if problem := self._nodes.owned_by_kraft():
            raise UserError(f"{self.origin}: {problem}")
        view = whole_view(self._quotas, named=self._named.servers)
        for problem in view.unreadable.values():
            raise UserError(f"{self.origin}: {problem}: check the rights of quotas.zookeeper_login")
        names = name_nodes(view.nodes)
        decoded = {path: node.payload.problem for path, node in view.nodes.items() if node.payload.problem}
        for path, problem in sorted({**decoded, **names.problems}.items()):
            self._on_problem(f"{path}: {problem}")
        return {
            entity: dict(view.nodes[path].payload.values)
            for path, entity in names.entities.items()
            if view.nodes[path].payload.values
        }

    def alter(
        self, entity: AnyEntity, values: Mapping[AnyKey, float | None], *, validate_only: bool = False
    ) -> str | None:
        """See `ClusterQuotas`; one transaction."""
        for _ in range(_ATTEMPTS):
            try:
                transaction = self._prepared(entity, values)
            except ValueError as error:  # kazoo raises it too, for a node named . or ..
                return str(error)
            if transaction is None or validate_only:
                return None
            refused = self._refusal(entity, transaction)
            if not isinstance(refused, OVERTAKEN):
                return None if refused is None else _words(entity, refused)
        return f"{entity}: others change its node all the time: try again"

    def _prepared(
        self, entity: AnyEntity, values: Mapping[AnyKey, float | None]
    ) -> TransactionRequest | None:
        """The transaction to send; None if nothing changes.

        Raises:
            ValueError: the values cannot be set; the message has the reason.
        """
        node = self._nodes.of(entity)
        problems = [not_above_zero(key, value) for key, value in values.items()]
        for problem in (node.problem, *problems, self._no_address(entity, values)):
            if problem:
                raise ValueError(problem)
        return self._transaction(entity, node, with_quotas(entity, node.data, values))

    def _refusal(self, entity: AnyEntity, transaction: TransactionRequest) -> Exception | None:
        try:
            refused = refusal_of(self._calls.commit(transaction))
        except UnreachableError as error:
            raise UnreachableError(f"{error}; whether {entity} was altered is not known") from error
        return None if refused is None else refused[1]

    def _transaction(
        self, entity: AnyEntity, node: EntityNode, data: bytes | None
    ) -> TransactionRequest | None:
        """The transaction that writes the data to the node; None if the node holds it already."""
        if read_config(data) == read_config(node.data):
            return None
        transaction = self._calls.transaction()
        if node.stat is None:
            assert data is not None, "a node without config is like none"
            self._nodes.add_created(transaction, node.path, data)
        elif data is None and not node.stat.numChildren:
            for path, version in self._nodes.emptied(node.path, node.stat, _is_below_root):
                transaction.delete(path, version)
        else:
            self._nodes.add_set(transaction, node, EMPTY_NODE if data is None else data)
        self._nodes.add_notification(transaction, entity)
        return transaction

    def _no_address(self, entity: AnyEntity, values: Mapping[AnyKey, float | None]) -> str | None:
        """Why brokers would fail on an ip: a broker that finds a node with an unknown host does not start."""
        if not isinstance(entity, IpEntity):
            return None
        if self._calls.stat("/config/ips") is None:
            return f"{entity}: this Kafka is older than 2.8 and has no quotas of ips"
        is_set = any(value is not None for value in values.values())
        if isinstance(entity.ip, str) and is_set and not _is_host(entity.ip):
            return f"{entity}: no address, and no host that is known here: brokers would not start with it"
        return None


@contextmanager
def zookeeper_quotas(
    quotas: Quotas, *, named: Named, on_problem: Callable[[str], None]
) -> Iterator[ZooKeeperQuotas]:
    """A session to the ZooKeeper of a cluster.

    Args:
        quotas: address, login, TLS and time limits.
        named: settings that gave the address, and the setting to use if a KRaft controller owns the nodes; for errors.
        on_problem: called with each node from which brokers read no quotas.

    Raises:
        UserError: no server answers in time, or it refuses us.
    """
    with zookeeper_calls(quotas, session_timeout=quotas.session_timeout, named=named.servers) as calls:
        yield ZooKeeperQuotas(quotas, calls, named, on_problem)


def _words(entity: AnyEntity, refused: Exception) -> str:
    if isinstance(refused, NoAuthError):
        return f"{entity}: no right to write it: check quotas.zookeeper_login"
    return f"{entity}: ZooKeeper answers {type(refused).__name__}"


def _is_below_root(path: str, _: object) -> bool:
    return path.count("/") > _ROOT_DEPTH


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        try:
            socket.getaddrinfo(name, None)
        except (OSError, UnicodeError):
            return False
    return True
