"""Quotas set the way an administrator of an old cluster sets them: straight in ZooKeeper.

First the node of the entity, changed and not replaced, because a user's node holds the login too (SCRAM
keys); then a sequential node under `/config/changes`, because brokers watch nothing else
(`kafka.server.ZkConfigManager`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from kquota_spark.embedded.zookeeper import connected
from kquota_spark.model.entities import DEFAULT, Default
from kquota_spark.model.names import sanitise

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_ATTEMPTS = 20


Name: TypeAlias = str | Default
_Change: TypeAlias = Callable[[dict[str, str]], None]


__all__ = ["DEFAULT", "Name", "entity_path", "remove_quota", "set_quota"]


def set_quota(
    zookeeper_connect: str,
    *,
    user: Name | None = None,
    client_id: Name | None = None,
    ip: Name | None = None,
    producer_byte_rate: int | None = None,
    consumer_byte_rate: int | None = None,
    request_percentage: float | None = None,
    controller_mutation_rate: float | None = None,
    connection_creation_rate: int | None = None,
) -> int:
    """Set limits of one entity; those that are not named stay as they are.

    Args:
        zookeeper_connect: the address of ZooKeeper.
        user: a user's raw name, DEFAULT, or None for a quota that does not look at users.
        client_id: likewise; with a user it is the pair.
        ip: an address or DEFAULT; alone.
        producer_byte_rate: bytes a second.
        consumer_byte_rate: bytes a second.
        request_percentage: percent of a request handler thread.
        controller_mutation_rate: partitions a second.
        connection_creation_rate: connections a second; for an ip.

    Returns:
        When ZooKeeper took the notification, in epoch ms. Brokers act on it some tens of ms later.
    """
    limits: dict[str, float | None] = {
        "producer_byte_rate": producer_byte_rate,
        "consumer_byte_rate": consumer_byte_rate,
        "request_percentage": request_percentage,
        "controller_mutation_rate": controller_mutation_rate,
        "connection_creation_rate": connection_creation_rate,
    }
    # Values are strings: a JSON number makes the broker's decoder throw (kafka.utils.json.DecodeJson).
    texts = {key: str(value) for key, value in limits.items() if value is not None}
    return _change(zookeeper_connect, entity_path(user, client_id, ip), lambda config: config.update(texts))


def remove_quota(
    zookeeper_connect: str,
    *keys: str,
    user: Name | None = None,
    client_id: Name | None = None,
    ip: Name | None = None,
) -> int:
    """Remove some limits of one entity, all if no key is named; what is not a quota stays.

    Returns:
        When ZooKeeper took the notification, in epoch ms.
    """

    def remove(config: dict[str, str]) -> None:
        for key in keys or [key for key in config if key.endswith(("_rate", "_percentage"))]:
            config.pop(key, None)

    return _change(zookeeper_connect, entity_path(user, client_id, ip), remove)


def entity_path(user: Name | None, client_id: Name | None, ip: Name | None = None) -> str:
    """The path of an entity below `/config`, with the names sanitised as the broker does it."""
    if ip is not None and user is None and client_id is None:
        return f"ips/{_node(ip)}"
    parts = [("users", user), ("clients", client_id)]
    path = "/".join(f"{root}/{_node(name)}" for root, name in parts if name is not None)
    if ip is not None or not path:
        msg = "a quota belongs to a user, a client id, both, or an ip alone"
        raise ValueError(msg)
    return path


def _node(name: Name) -> str:
    return name.value if isinstance(name, Default) else sanitise(name)


def _change(zookeeper_connect: str, entity: str, change: _Change) -> int:
    with connected(zookeeper_connect) as client:
        _change_node(client, f"/config/{entity}", change)
        notification = json.dumps({"version": 2, "entity_path": entity}).encode()
        path = client.create("/config/changes/config_change_", notification, sequence=True, makepath=True)
        _, status = client.get(path)
        return int(status.ctime)


def _change_node(client: KazooClient, path: str, change: _Change) -> None:
    """Read, change, write back the version that was read; again if another writer came between."""
    from kazoo.exceptions import BadVersionError

    client.ensure_path(path)
    for _ in range(_ATTEMPTS):
        data, status = client.get(path)
        document = _decoded(data)
        config = {str(key): str(value) for key, value in document.get("config", {}).items()}
        change(config)
        payload = json.dumps({"version": 1, **document, "config": config}).encode()
        try:
            client.set(path, payload, version=status.version)
        except BadVersionError:
            continue
        if not config:
            _remove_empty(client, path)
        return
    msg = f"{path} is changed by others all the time"
    raise RuntimeError(msg)


def _decoded(data: bytes) -> Mapping[str, Mapping[str, str]]:
    # A user's node may exist only as the parent of its clients, with null or nothing in it.
    return json.loads(data) or {} if data else {}


def _remove_empty(client: KazooClient, path: str) -> None:
    """Delete the node and the parents that it leaves empty, as Kafka does from 3.5 on (KAFKA-14285)."""
    from kazoo.exceptions import NoNodeError, NotEmptyError

    while path.count("/") > 2:
        try:
            data, _ = client.get(path)
            if _decoded(data).get("config"):
                return
            client.delete(path)
        except (NoNodeError, NotEmptyError):
            return
        path = path.rpartition("/")[0]
