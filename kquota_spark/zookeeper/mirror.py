"""The quota nodes below `/config` of a ZooKeeper: mirrored by a snapshot, then one-shot watches, or read once.

`QuotaTree.read` returns a view that contains every edit made before the call, or None while that cannot be
guaranteed. Plain one-shot watches work with every ZooKeeper that Kafka 2.8 to 3.9 runs with. The nodes that can
govern one client take a few requests, for any number of users. All nodes take seconds with thousands of users.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import Callback, KeeperState, WatchedEvent

from kquota_spark.config.settings import Quotas
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.formats.znodes.nodes import (
    REQUIRED_ROOTS,
    ROOTS,
    Node,
    View,
    decode_node,
    has_children,
    has_data,
    name_nodes,
)
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.resolve import candidates
from kquota_spark.zookeeper.client import ADDRESS, tls_problem, unanswered, zookeeper_client

_log = logging.getLogger(__name__)

_DISCONNECTED = (
    ConnectionLoss,
    SessionExpiredError,
    ConnectionClosedError,
    OperationTimeoutError,
    KazooTimeoutError,
)
_REQUESTS_AT_ONCE = 500
_ROUNDS = 10
_PATROL = 25
_RETRY_S = 0.1


class QuotaTree:
    """The connection and the mirror. Only `stop` may be called from another thread."""

    def __init__(self, quotas: Quotas, *, named: str = ADDRESS) -> None:
        self._quotas, self._connect, self._named = quotas, quotas.zookeeper_connect, named
        self._timeout_s = quotas.session_timeout / 1_000
        # kazoo logs every response at DEBUG, SCRAM credentials included. A level of its own prevents that, whatever
        # the level of the root logger. kazoo's warnings only repeat those of `_on_state`.
        quiet = logging.getLogger(f"{__name__}.kazoo")
        quiet.setLevel(logging.ERROR)
        # kazoo's own pause between two attempts to connect grows up to an hour.
        pause = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 2.0}
        self._client = zookeeper_client(quotas, quiet, named=named, connection_retry=pause, read_only=False)
        self._lock = threading.Lock()
        self._dirty: set[str] = set()
        self._epoch = 0
        self._read_epoch = -1
        self._nodes: dict[str, Node] = {}
        self._names: dict[str, set[str]] = {}
        self._listed_at: dict[str, int] = {}
        self._unreadable: dict[str, str] = {}
        self._view: View | None = None
        self._patrol = self._patrolled()
        self.changed = threading.Event()
        """Set when a watch has fired or the connection has changed: the next `read` has work to do."""

    def start(self) -> None:
        """Connect; the client keeps trying after an error, until stopped.

        Raises:
            UnreachableError: no server answers within `connect_timeout`.
            UserError: TLS fails.
        """
        self._client.add_listener(self._on_state)
        within_s = self._quotas.connect_timeout / 1_000
        if self._client.start_async().wait(within_s):
            return
        if problem := tls_problem(self._quotas):
            raise UserError(f"ZooKeeper {problem}: check quotas.zookeeper_tls and {self._named}")
        raise UnreachableError(unanswered(self._connect, within_s, self._named))

    def stop(self) -> None:
        """Close the session."""
        self._client.remove_listener(self._on_state)
        try:
            self._client.stop()
            self._client.close()
        except (KazooException, OSError) as error:
            _log.warning("closing the ZooKeeper session failed: %s", type(error).__name__)

    def read(self) -> View | None:
        """All nodes, including every edit made before the call; None while the connection cannot guarantee that.

        The same view object is returned while nothing has changed.

        Raises:
            UserError: ZooKeeper refuses our credentials.
        """
        if self._client.client_state == KeeperState.AUTH_FAILED:
            raise UserError(f"ZooKeeper {self._connect} refused the credentials")
        self.changed.clear()
        epoch = self._epoch
        # SUSPENDED counts as lost: kazoo reports LOST only once a server answers again.
        if self._client.state != KazooState.CONNECTED:
            return None
        try:
            self._catch_up(epoch)
        except _DISCONNECTED:
            self._read_epoch = -1  # some answers are lost, so everything must be read again
            return None
        except AuthFailedError:
            return None
        if epoch != self._epoch:
            return None
        if self._view is None:
            self._view = View(dict(self._nodes), dict(self._listed_at), dict(self._unreadable))
        return self._view

    def _catch_up(self, epoch: int) -> None:
        self._round_trip()
        if self._read_epoch != epoch:
            # Watches do not survive the connection: read everything again.
            self._nodes, self._unreadable, self._names, self._listed_at = {}, {}, {}, {}
            self._view = None
            self._take_dirty()
            self._refresh(ROOTS)
            self._read_epoch = epoch
        # Rights change without an event, so refused paths are read again each time. A server of 3.9.2 or later
        # sends a client no event for an edit that it may not read (CVE-2024-23944). Therefore some of the known
        # paths, in turn, are read again each time too.
        paths = self._take_dirty() | self._unreadable.keys() | set(islice(self._patrol, _PATROL))
        for _ in range(_ROUNDS):
            if not paths:
                break
            self._refresh(paths)
            self._deliver_events()
            paths = self._take_dirty()
        else:
            # Edits arrive faster than they are read; all those made before the call are included.
            self._on_paths(paths)

    def _patrolled(self) -> Iterator[str]:
        """All known paths, round after round; they may include one that was deleted meanwhile."""
        while True:
            yield from [*ROOTS, *self._nodes, *(path for path in self._names if not has_data(path))]

    def _round_trip(self) -> None:
        """After this, the events of all edits made before it are in `_dirty`."""
        self._client.sync_async("/config").get(timeout=self._timeout_s)
        with suppress(NoAuthError):  # a refusal is an answer, too
            self._client.exists_async("/config/users").get(timeout=self._timeout_s)
        self._deliver_events()

    def _deliver_events(self) -> None:
        """Wait until kazoo has called our watch for every event it has received so far.

        kazoo answers requests from its connection thread, but calls watches from another one.
        """
        delivered = threading.Event()
        self._client.handler.dispatch_callback(Callback("watch", delivered.set, ()))
        if not delivered.wait(self._timeout_s):
            raise KazooTimeoutError

    def _on_state(self, state: str) -> None:
        """Called by kazoo's connection thread."""
        self._epoch += 1
        if state == KazooState.CONNECTED:
            _log.info("connected to ZooKeeper %s", self._connect)
        else:
            _log.warning(
                "ZooKeeper %s: connection %s, quotas are not known from here on", self._connect, state
            )
        self.changed.set()

    def _on_event(self, event: WatchedEvent) -> None:
        """Called by kazoo's watch thread. An event without a path is about the connection: see `_on_state`."""
        if event.path and event.path.startswith("/config/"):
            self._on_paths([event.path.removeprefix("/config/")])

    def _on_paths(self, paths: Iterable[str]) -> None:
        with self._lock:
            self._dirty.update(paths)
        self.changed.set()

    def _take_dirty(self) -> set[str]:
        with self._lock:
            taken, self._dirty = self._dirty, set()
        return taken

    def _refresh(self, paths: Iterable[str]) -> None:
        """Read these paths, and every path below them that was not known."""
        wave = sorted(paths)
        while wave:
            found: list[str] = []
            for start in range(0, len(wave), _REQUESTS_AT_ONCE):
                chunk = [(path, self._ask(path)) for path in wave[start : start + _REQUESTS_AT_ONCE]]
                for path, (data, children) in chunk:
                    found.extend(self._take(path, data, children))
            wave = found

    def _ask(self, path: str) -> tuple[Any, Any]:
        full = f"/config/{path}"
        data = self._client.get_async(full, watch=self._on_event) if has_data(path) else None
        if not has_children(path):
            return data, None
        return data, self._client.get_children_async(full, watch=self._on_event, include_data=True)

    def _take(self, path: str, data: Any, children: Any) -> list[str]:
        """Store the answers; returns the children that were not known before."""
        was_unreadable = self._unreadable.pop(path, None)
        new: list[str] = []
        try:
            if data is not None:
                payload, stat = data.get(timeout=self._timeout_s)
                self._put(path, Node(decode_node(path, payload), stat.mtime, stat.mzxid))
            if children is not None:
                new = self._take_children(path, *children.get(timeout=self._timeout_s))
        except NoNodeError:
            self._forget(path)
            if path in ROOTS:
                self._await_root(path)
        except NoAuthError:
            self._refuse(path, was_unreadable)
        if self._unreadable.get(path) != was_unreadable:
            self._view = None
        return new

    def _put(self, path: str, node: Node) -> None:
        if self._nodes.get(path) != node:
            self._nodes[path] = node
            self._view = None

    def _take_children(self, path: str, names: list[str], stat: Any) -> list[str]:
        wanted = {name for name in names if path in ROOTS or path.endswith("/clients") or name == "clients"}
        before = self._names.get(path, set())
        if before != wanted or self._listed_at.get(path) != stat.pzxid:
            self._view = None
        self._names[path], self._listed_at[path] = wanted, stat.pzxid
        for name in before - wanted:
            self._forget(f"{path}/{name}")
        return [f"{path}/{name}" for name in sorted(wanted - before)]

    def _await_root(self, path: str) -> None:
        if path in REQUIRED_ROOTS:
            self._unreadable[path] = f"/config/{path} does not exist"
        with suppress(NoAuthError):
            found = self._client.exists_async(f"/config/{path}", watch=self._on_event)
            if found.get(timeout=self._timeout_s):
                self._on_paths([path])

    def _refuse(self, path: str, before: str | None) -> None:
        """Record a path that we may not read. A server of 3.9.2 or later hides even its stat."""
        self._unreadable[path] = f"no right to read /config/{path}"
        self._nodes.pop(path, None)
        if before is None:
            _log.error("ZooKeeper: %s: quotas are not fully known", self._unreadable[path])

    def _forget(self, path: str) -> None:
        self._view = None
        self._nodes.pop(path, None)
        self._unreadable.pop(path, None)
        self._listed_at.pop(path, None)
        # Remove it from its parent's list too: if it is created again before that list is read, it must count as new.
        parent, _, name = path.rpartition("/")
        self._names.get(parent, set()).discard(name)
        for child in self._names.pop(path, ()):
            self._forget(f"{path}/{child}")


def whole_view(quotas: Quotas, *, named: str = ADDRESS) -> View:
    """All nodes.

    Raises:
        UserError: the address is not valid, or ZooKeeper does not answer within `connect_timeout`.
    """
    deadline_s = time.monotonic() + quotas.connect_timeout / 1_000
    tree = QuotaTree(quotas, named=named)
    try:
        tree.start()
        while (view := tree.read()) is None:
            if time.monotonic() > deadline_s:
                within_s = quotas.connect_timeout / 1_000
                raise UserError(
                    f"ZooKeeper {quotas.zookeeper_connect} did not answer within {within_s:g} s: try again"
                )
            tree.changed.wait(_RETRY_S)
    finally:
        tree.stop()
    return view


def view_of_client(quotas: Quotas, user: str, client_id: str, *, named: str = ADDRESS) -> View:
    """The nodes of the entities that could govern a client, as brokers find them; errors are those of `whole_view`.

    Args:
        quotas: address, timeouts and login.
        user: raw name.
        client_id: raw client id.
        named: the setting or option that holds the address, for errors.
    """
    with _connected(quotas, named) as client:
        client.sync("/config")
        unreadable: dict[str, str] = {}
        for root in REQUIRED_ROOTS:
            with suppress(NoAuthError):  # it exists
                if client.exists(f"/config/{root}") is None:
                    unreadable[root] = f"/config/{root} does not exist"
        users = [str(Entity(user)), str(Entity(DEFAULT))]
        paths = list(users)
        # Client ids are matched against the existing names, because brokers understand more than one spelling.
        for parent in ("clients", *(f"{path}/clients" for path in users)):
            paths += _children(client, parent, unreadable)
        wanted = set(candidates(user, client_id))
        found = [path for path, entity in name_nodes(paths).entities.items() if entity in wanted]
        nodes = {path: node for path in found if (node := _node(client, path, unreadable)) is not None}
        return View(nodes, {}, unreadable)


@contextmanager
def _connected(quotas: Quotas, named: str) -> Iterator[KazooClient]:
    client = zookeeper_client(quotas, named=named)
    try:
        if not client.start_async().wait(quotas.connect_timeout / 1_000):
            raise KazooTimeoutError
        yield client
    except (KazooTimeoutError, KazooException) as error:
        within_s = quotas.connect_timeout / 1_000
        raise UserError(unanswered(quotas.zookeeper_connect, within_s, named)) from error
    finally:
        client.stop()
        client.close()


def _children(client: KazooClient, parent: str, unreadable: dict[str, str]) -> list[str]:
    try:
        return [f"{parent}/{name}" for name in client.get_children(f"/config/{parent}")]
    except NoNodeError:
        return []
    except NoAuthError:
        unreadable[parent] = f"no right to read /config/{parent}"
        return []


def _node(client: KazooClient, path: str, unreadable: dict[str, str]) -> Node | None:
    try:
        data, stat = client.get(f"/config/{path}")
    except NoNodeError:
        return None
    except NoAuthError:
        unreadable[path] = f"no right to read /config/{path}"
        return None
    return Node(decode_node(path, data), stat.mtime, stat.mzxid)
