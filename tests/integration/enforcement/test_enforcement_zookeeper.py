"""Quotas go into ZooKeeper under the lease, and come out of it to the byte."""

from __future__ import annotations

import dataclasses
import itertools
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Enforcement, Quotas, Settings
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Change, Held, Lease, Outcome
from kquota_spark.enforcement.assembly import Edges, enforcement_edges
from kquota_spark.errors import UserError
from kquota_spark.formats.znodes.writes import EMPTY_NODE
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.process.clock import now_ms
from tests.support.clusters.config_tree import config_tree
from tests.support.clusters.quota_nodes import put
from tests.support.enforcement.enforcement_ports_contract import LEASE_CLAIMS, fencing_of

PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
PERCENT = QuotaKey.REQUEST_PERCENTAGE
ALICE = Entity("alice")


def held(edges: Edges, quota: Quota) -> Held:
    return edges.cluster.read([quota])[quota]


def changed(edges: Edges, quota: Quota, value: float | None, fencing: int) -> str:
    """Write a quota; the note for putting it back."""
    found = held(edges, quota)
    assert found.note is not None
    assert edges.cluster.write(Change.of(quota, value), found, fencing).outcome is Outcome.DONE
    assert held(edges, quota).value == value
    return found.note


def put_back(edges: Edges, quota: Quota, value: float | None, note: str, fencing: int) -> None:
    """Restore the state of a note, over this value."""
    written = edges.cluster.write(Change.of(quota, None, note), Held(value, None), fencing)
    assert written.outcome is Outcome.DONE


@pytest.mark.parametrize("claim", LEASE_CLAIMS)
def test_the_contract_of_leases(
    claim: Callable[[Lease, Lease], None], edges: Edges, enforced: Settings
) -> None:
    with enforcement_edges(enforced) as others:
        assert others.lease.holder() is None
        claim(edges.lease, others.lease)
        fencing_of(edges.lease)
        held_by, before_ms = others.lease.holder(), now_ms() - 60_000
        assert held_by is not None
        assert (held_by.name, held_by.is_holding) == (f"{socket.gethostname()}:{os.getpid()}", True)
        assert before_ms < held_by.since_ms <= now_ms()
        edges.lease.release()
        assert others.lease.holder() == held_by._replace(is_holding=False)
        assert edges.lease.acquire("kquota override set") is not None
        by_command = others.lease.holder()
        assert by_command is not None
        assert (by_command.name, by_command.command) == (held_by.name, "kquota override set")
        assert held_by.command == ""


CASES: list[tuple[str, dict[str, bytes | None], Quota, float | None]] = [
    ("a new user", {}, Quota(ALICE, PRODUCER), 5e6),
    ("a pair without its parents", {}, Quota(Entity("alice", "etl"), PRODUCER), 5e6),
    ("a pair below a user", {"users/alice": b""}, Quota(Entity("alice", "etl"), PRODUCER), 5e6),
    ("a user above pairs", {"users/alice": None, "users/alice/clients": None}, Quota(ALICE, PRODUCER), 5e6),
    ("what a broker left empty", {"users/alice": EMPTY_NODE}, Quota(ALICE, PRODUCER), 5e6),
    (
        "a login is kept",
        {"users/alice": b'{"version":1,"config":{"SCRAM-SHA-256":"x,y=","consumer_byte_rate":"07"}}'},
        Quota(ALICE, PRODUCER),
        5e6,
    ),
    (
        "the text of a value",
        {"users/alice": b'{"version":1,"config":{"request_percentage":"1.50e1","consumer_byte_rate":"7"}}'},
        Quota(ALICE, PERCENT),
        20.0,
    ),
    (
        "a removed value returns to its place",
        {
            "users/alice": b'{"version":1,"config":{"z":"1","request_percentage":"+3d","consumer_byte_rate":"7"}}'
        },
        Quota(ALICE, PERCENT),
        None,
    ),
    (
        "the only value",
        {"clients/etl": b'{"version":1,"config":{"producer_byte_rate":"0005"}}'},
        Quota(Entity(client_id="etl"), PRODUCER),
        None,
    ),
    ("the default user", {}, Quota(Entity(DEFAULT), PRODUCER), 5e6),
    ("both defaults", {}, Quota(Entity(DEFAULT, DEFAULT), CONSUMER), 5e6),
    ("a name to escape", {}, Quota(Entity("CN=a b,O=ü/*~", "<default>"), PRODUCER), 5e6),
]


@pytest.mark.parametrize(("nodes", "quota", "value"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_put_back(
    nodes: dict[str, bytes | None], quota: Quota, value: float | None, edges: Edges, client: KazooClient
) -> None:
    own = make_digest_acl("kafka", "secret", all=True)
    client.add_auth("digest", "kafka:secret")
    for path, data in nodes.items():
        put(client, path, data)
    if nodes:
        client.set_acls(f"/config/{next(iter(nodes))}", [own, *client.get_acls("/config/users")[0]])
    fencing = fencing_of(edges.lease)
    before = config_tree(client)
    for _ in range(2):  # the second time nothing of the first one may be in the way
        note = changed(edges, quota, value, fencing)
        assert config_tree(client) != before
        put_back(edges, quota, value, note, fencing)
        assert config_tree(client) == before
    assert len(client.get_children("/config/changes")) == 4, "brokers were told of each change"


TOGETHER = (
    Quota(ALICE, PRODUCER),
    Quota(ALICE, CONSUMER),
    Quota(Entity("alice", "etl"), PRODUCER),
    Quota(Entity("alice", "app"), PRODUCER),
)


def test_changes_of_one_user_are_put_back_in_any_order(edges: Edges, client: KazooClient) -> None:
    fencing = fencing_of(edges.lease)
    before = config_tree(client)
    for order in itertools.permutations(TOGETHER):
        notes = {quota: changed(edges, quota, 5e6, fencing) for quota in TOGETHER}
        for quota in order:
            put_back(edges, quota, 5e6, notes[quota], fencing)
        assert config_tree(client) == before, order


def test_new_nodes_have_the_rights_of_those_above_them(edges: Edges, client: KazooClient) -> None:
    closed = [make_digest_acl("kafka", "secret", all=True), *client.get_acls("/config/users")[0]]
    client.set_acls("/config/users", closed)
    changed(edges, Quota(Entity("alice", "etl"), PRODUCER), 5e6, fencing_of(edges.lease))
    for path in ("/config/users/alice", "/config/users/alice/clients", "/config/users/alice/clients/etl"):
        assert client.get_acls(path)[0] == closed


@pytest.mark.parametrize(
    ("path", "data", "problem"),
    [
        ("users/alice", b'{"version": 1, "config": {"producer_byte_rate": "1"}}', "not written as Kafka"),
        ("users/alice", b'{"version":1,"config":{"producer_byte_rate":1}}', "is not a JSON text"),
        ("users/alice", b'{"version":1,"config":{"producer_byte_rate":"many"}}', "not a whole number"),
        ("users/alice", b"secret-canary", "not JSON"),
        ("users/alice", b'{"version":2,"config":{}}', "not in the format of version 1"),
    ],
    ids=range(5),
)  # fmt: skip
def test_left_alone(path: str, data: bytes, problem: str, edges: Edges, client: KazooClient) -> None:
    """What could not be restored to the byte is not changed."""
    put(client, path, data)
    before = config_tree(client)
    found = held(edges, Quota(ALICE, CONSUMER))
    assert found.note is None
    assert problem in found.problem and "canary" not in found.problem
    written = edges.cluster.write(Change.of(Quota(ALICE, CONSUMER), 5e6), found, fencing_of(edges.lease))
    assert (written.outcome, config_tree(client)) == (Outcome.REFUSED, before)


def test_a_client_id_in_another_spelling_is_not_written_beside(edges: Edges, client: KazooClient) -> None:
    put(client, "clients/a+b", b'{"version":1,"config":{"producer_byte_rate":"1"}}')
    found = held(edges, Quota(Entity(client_id="a b"), PRODUCER))
    assert found.problem == (
        "clients/a%20b: there is another node for the same client id, clients/a+b: remove it first"
    )


def test_a_cluster_that_moves_to_kraft_is_left_alone(edges: Edges, client: KazooClient) -> None:
    client.create("/controller", b'{"version":2,"brokerid":3000,"kraftControllerEpoch":1}')
    assert "use quotas.source: admin" in held(edges, Quota(ALICE, PRODUCER)).problem


def test_a_value_that_brokers_would_not_read_is_refused_before(edges: Edges) -> None:
    def refusal(key: QuotaKey, value: float | None) -> str | None:
        return edges.cluster.refusal(Change.of(Quota(ALICE, key), value))

    assert refusal(PRODUCER, 1.5) == (
        "users/alice: producer_byte_rate 1.5, expected a whole number of 64 bits"
    )
    assert refusal(PRODUCER, 0) == "Quota producer_byte_rate must be greater than 0"
    assert refusal(PERCENT, 1.5) is None
    assert refusal(PRODUCER, None) is None


def test_nodes_that_anybody_may_write_are_made_only_if_asked_for(
    enforced: Settings, client: KazooClient
) -> None:
    refused = dataclasses.replace(enforced, enforcement=Enforcement())
    with (
        pytest.raises(UserError, match=r"give a login, or set enforcement\.allow_open_nodes: true"),
        enforcement_edges(refused) as edges,
    ):
        edges.lease.acquire()
    assert client.exists("/kquota") is None
    with enforcement_edges(enforced) as edges:
        assert edges.lease.acquire() == 1
    assert client.exists("/kquota/test/fencing") is not None


def test_without_an_answer_or_a_target_it_is_one_line(tmp_path: Path, zookeeper: Cluster) -> None:
    file = Settings(quotas=Quotas(source="file"))
    with pytest.raises(UserError, match="a file cannot be enforced"), enforcement_edges(file):
        pass
    none = f"{zookeeper.zookeeper_connect}/none"
    for address, within_ms, problem in (
        (none, 60_000, "/config/users does not exist"),
        ("127.0.0.1:1", 1_000, "did not answer .connection refused."),
    ):
        quotas = Quotas(zookeeper_connect=address, connect_timeout=Duration(within_ms))
        settings = Settings(tables=str(tmp_path), quotas=quotas)
        with pytest.raises(UserError, match=problem), enforcement_edges(settings) as edges:
            edges.cluster.read([Quota(ALICE, PRODUCER)])
