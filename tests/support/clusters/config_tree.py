"""Everything below /config of a ZooKeeper: names, data and rights, to the byte."""

from __future__ import annotations

from kazoo.client import KazooClient


def config_tree(client: KazooClient, path: str = "") -> dict[str, tuple[bytes | None, str]]:
    """Data and ACL by path, of the users and client ids, or of the node at a path and all below it."""
    if not path:
        return config_tree(client, "/config/users") | config_tree(client, "/config/clients")
    if client.exists(path) is None:
        return {}
    found = {path: (client.get(path)[0], repr(client.get_acls(path)[0]))}
    for name in client.get_children(path):
        found |= config_tree(client, f"{path}/{name}")
    return found
