"""The quota nodes of a ZooKeeper, read once: all of them, or those that can matter to one client.

The latter takes a few requests however many users there are; all of them take seconds with thousands of users.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from kquota_spark.config.settings import Quotas
from kquota_spark.errors import UserError
from kquota_spark.formats.znodes.nodes import REQUIRED_ROOTS, Node, View, decode_node, name_nodes
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.resolve import candidates
from kquota_spark.zookeeper.client import ADDRESS, unanswered, zookeeper_client
from kquota_spark.zookeeper.mirror import QuotaTree

_RETRY_S = 0.1


def whole_view(quotas: Quotas, *, named: str = ADDRESS) -> View:
    """All nodes.

    Raises:
        UserError: the address is none, or ZooKeeper does not answer within `connect_timeout`.
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
    """The nodes of the entities that could govern a client, as brokers find them; errors are those of `whole_view`."""
    with _connected(quotas, named) as client:
        client.sync("/config")
        unreadable: dict[str, str] = {}
        for root in REQUIRED_ROOTS:
            with suppress(NoAuthError):  # it exists
                if client.exists(f"/config/{root}") is None:
                    unreadable[root] = f"/config/{root} does not exist"
        users = [str(Entity(user)), str(Entity(DEFAULT))]
        paths = list(users)
        # Client ids are looked for among the names that are there: brokers understand more than one spelling.
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
