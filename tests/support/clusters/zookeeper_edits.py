"""Quotas set the way an administrator of an old cluster sets them: straight in ZooKeeper.

First the node of the entity, changed and not replaced, because a user's node holds the login too (SCRAM
keys); then a sequential node under `/config/changes`, because brokers watch nothing else
(`kafka.server.ZkConfigManager`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kquota_spark.embedded.readiness import connected
from kquota_spark.formats.znodes.nodes import read_config
from kquota_spark.formats.znodes.writes import (
    CHANGE_NODE_PREFIX,
    EMPTY_NODE,
    change_notification,
    with_quotas,
)
from kquota_spark.model.quotas.entities import Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_types import IP_QUOTA_KEY, QuotaKey, parse_key

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_ATTEMPTS = 20


def set_quota(
    zookeeper_connect: str,
    *,
    user: Name = None,
    client_id: Name = None,
    ip: Name = None,
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
    given = {key: value for key, value in limits.items() if value is not None}
    return _change(zookeeper_connect, _entity(user, client_id, ip), given)


def remove_quota(
    zookeeper_connect: str,
    *keys: str,
    user: Name = None,
    client_id: Name = None,
    ip: Name = None,
) -> int:
    """Remove some limits of one entity, all if no key is named; what is not a quota stays.

    Returns:
        When ZooKeeper took the notification, in epoch ms.
    """
    all_keys = [IP_QUOTA_KEY] if ip is not None else [key.value for key in QuotaKey]
    return _change(zookeeper_connect, _entity(user, client_id, ip), dict.fromkeys(keys or all_keys))


def _entity(user: Name, client_id: Name, ip: Name) -> Entity | IpEntity:
    if ip is not None:
        if (user, client_id) != (None, None):
            msg = "an ip stands alone"
            raise ValueError(msg)
        return IpEntity(ip)
    return Entity(user, client_id)


def _change(zookeeper_connect: str, entity: Entity | IpEntity, values: Mapping[str, float | None]) -> int:
    with connected(zookeeper_connect) as client:
        _change_node(client, entity, values)
        changes = f"/config/changes/{CHANGE_NODE_PREFIX}"
        path = client.create(changes, change_notification(entity), sequence=True, makepath=True)
        _, status = client.get(path)
        return int(status.ctime)


def _change_node(client: KazooClient, entity: Entity | IpEntity, values: Mapping[str, float | None]) -> None:
    """Read, change, write back the version that was read; again if another writer came between."""
    from kazoo.exceptions import BadVersionError

    path = f"/config/{entity}"
    client.ensure_path(path)
    for _ in range(_ATTEMPTS):
        data, status = client.get(path)
        changed = with_quotas(entity, data, {parse_key(key): value for key, value in values.items()})
        try:
            client.set(path, EMPTY_NODE if changed is None else changed, version=status.version)
        except BadVersionError:
            continue
        if changed is None:
            _remove_empty(client, path)
        return
    msg = f"{path} is changed by others all the time"
    raise RuntimeError(msg)


def _remove_empty(client: KazooClient, path: str) -> None:
    """Delete the node and the parents that it leaves empty, as Kafka does from 3.5 on (KAFKA-14285)."""
    from kazoo.exceptions import NoNodeError, NotEmptyError

    while path.count("/") > 2:
        try:
            data, _ = client.get(path)
            if data and read_config(data).config:
                return
            client.delete(path)
        except (NoNodeError, NotEmptyError):
            return
        path = path.rpartition("/")[0]
