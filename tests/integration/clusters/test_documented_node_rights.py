"""The page on rights is complete about ZooKeeper: the audit and the enforcer run with exactly its lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Enforcement, Quotas, Settings, ZooKeeperLogin
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Change, Held
from kquota_spark.enforcement.assembly import enforcement_edges
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.quotas.watch import Watcher
from tests.support.clusters.documented_grants import node_rights

_CHROOT = "/documented"
_LETTERS = {"a": "admin", "c": "create", "d": "delete", "r": "read", "w": "write"}
CREATE = "no right to create /kquota/payments/created"
QUOTA = Quota(Entity("of-rights"), QuotaKey.PRODUCER_BYTE_RATE)


@pytest.fixture
def nodes(running_with_zookeeper: Cluster) -> Iterator[KazooClient]:
    """A client that may set every list; the nodes of the page are there, and nobody else may write."""
    # Of the enforcer too, because what it made is for itself alone.
    logins = [("digest", "kafka:broker"), ("digest", "kquota-enforce:of kquota-enforce")]
    outer = KazooClient(running_with_zookeeper.zookeeper_connect, auth_data=logins)
    outer.start(timeout=60)
    outer.ensure_path(_CHROOT)
    client = KazooClient(
        running_with_zookeeper.zookeeper_connect + _CHROOT, auth_data=[("digest", "kafka:broker")]
    )
    client.start(timeout=60)
    for path in node_rights():
        client.ensure_path(path)
    for path in ("/", "/config"):
        client.set_acls(
            path, [make_digest_acl("kafka", "broker", all=True), make_acl("world", "anyone", read=True)]
        )
    yield client
    client.stop()
    client.close()
    outer.delete(_CHROOT, recursive=True)
    outer.stop()
    outer.close()


def give(nodes: KazooClient, rights: dict[str, dict[str, str]]) -> None:
    """These lists, and the brokers' own."""
    for path, by_user in rights.items():
        given = [make_digest_acl("kafka", "broker", all=True)]
        for user, letters in by_user.items():
            given.append(make_digest_acl(user, f"of {user}", **{_LETTERS[each]: True for each in letters}))
        nodes.set_acls(path, given)


@pytest.fixture
def settings(nodes: KazooClient, running_with_zookeeper: Cluster, tmp_path: Path) -> Settings:
    audit, enforce = (
        ZooKeeperLogin(user=user, password=f"of {user}") for user in ("kquota-audit", "kquota-enforce")
    )
    return Settings(
        cluster_id="payments",
        tables=str(tmp_path / "tables"),
        quotas=Quotas(
            zookeeper_connect=running_with_zookeeper.zookeeper_connect + _CHROOT,
            zookeeper_login=audit,
            connect_timeout=Duration(5_000),
        ),
        enforcement=Enforcement(zookeeper_login=enforce, lease_time=Duration(30_000)),
    )


def audit(settings: Settings) -> None:
    watcher = Watcher(settings)
    watcher.start()
    watcher.stop()
    watcher.check()


def enforce(settings: Settings) -> None:
    with enforcement_edges(settings) as edges:
        fencing = edges.lease.acquire()
        assert fencing is not None
        held = edges.cluster.read([QUOTA])[QUOTA]
        written = edges.cluster.write(Change.of(QUOTA, 5e6), held, fencing)
        if written.detail:
            raise UserError(written.detail)
        assert held.note is not None
        back = Change.of(QUOTA, held.value, held.note)
        assert edges.cluster.write(back, Held(5e6, None), fencing).detail == ""


def said(settings: Settings, user: str) -> str:
    """What a program says is wrong; empty if nothing is."""
    try:
        {"kquota-audit": audit, "kquota-enforce": enforce}[user](settings)
    except UserError as error:
        return str(error)
    return ""


def test_audit_and_enforcer_run_with_exactly_the_lists_of_the_page(
    nodes: KazooClient, settings: Settings
) -> None:
    give(nodes, node_rights())
    assert {user: said(settings, user) for user in ("kquota-audit", "kquota-enforce")} == {
        "kquota-audit": "",
        "kquota-enforce": "",
    }


@pytest.mark.parametrize(
    ("user", "path", "named"),
    [
        ("kquota-audit", "/config/users", "no right to read /config/users"),
        ("kquota-audit", "/config/clients", "no right to read /config/clients"),
        ("kquota-enforce", "/config/users", "/config/users"),
        ("kquota-enforce", "/config/changes", "no right to read /config/changes"),
        ("kquota-enforce", "/kquota", f"{CREATE}: grant it to the user of enforcement.zookeeper_login"),
    ],
)  # fmt: skip
def test_a_list_that_lacks_a_program_is_named(
    nodes: KazooClient, settings: Settings, user: str, path: str, named: str
) -> None:
    rights = node_rights()
    del rights[path][user]
    give(nodes, rights)
    found = said(settings, user)
    assert named in found and "\n" not in found, found


def test_no_node_is_made_whose_list_would_lock_everybody_out(nodes: KazooClient, settings: Settings) -> None:
    rights = node_rights()
    assert rights["/config/users"]["kquota-enforce"] == "cdrwa"
    rights["/config/users"]["kquota-enforce"] = "cdrw"  # ZooKeeper then shows digests as "x"
    give(nodes, rights)
    assert "no right to administer /config/users: grant it to" in said(settings, "kquota-enforce")
    assert nodes.get_children("/config/users") == []
