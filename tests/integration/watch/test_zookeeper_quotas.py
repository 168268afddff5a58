"""A person's edits straight in ZooKeeper: one transaction an entity, and everything else in the tree stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from kquota_spark.config.settings import Settings
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.enforce.ports import Change, Outcome
from kquota_spark.errors import UserError
from kquota_spark.formats.znodes.writes import EMPTY_NODE, with_quotas
from kquota_spark.kafka.quota_admin import Named
from kquota_spark.model.quotas.entities import AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import AnyKey
from kquota_spark.quotas.zookeeper_cluster import ZooKeeperCluster, zookeeper_cluster
from kquota_spark.zookeeper.client import ZooKeeperCalls
from tests.support.clusters.config_tree import config_tree
from tests.support.clusters.outages import pause, resume
from tests.support.clusters.quota_nodes import payload, put
from tests.support.quotas.cluster_contract import CONNECTIONS, FETCH, PERCENT, PRODUCE, altered

SCRAM = "salt=c2FsdA==,stored_key=a/b+c==,server_key=d,iterations=4096"
ALICE = Entity("alice")


@pytest.fixture
def quotas(settings: Settings, client: KazooClient) -> Iterator[ZooKeeperCluster]:
    for path in ("changes", "ips"):
        client.ensure_path(f"/config/{path}")
    named = Named("--zookeeper", instead="--bootstrap-server")
    with zookeeper_cluster(settings.quotas, named=named) as opened:
        yield opened


def told(client: KazooClient) -> list[str]:
    """What brokers were told to read again, in order."""
    names = sorted(client.get_children("/config/changes"))
    return [json.loads(client.get(f"/config/changes/{name}")[0])["entity_path"] for name in names]


def test_each_edit_is_told_once_and_no_edit_is_not(quotas: ZooKeeperCluster, client: KazooClient) -> None:
    edits: list[tuple[AnyEntity, dict[AnyKey, float | None]]] = [
        (Entity("alice", "a b"), {PRODUCE: 1e6, FETCH: 2e6}),
        (Entity("alice", "a b"), {PRODUCE: 1e6}),
        (ALICE, {PERCENT: None}),
        (IpEntity("10.0.0.1"), {CONNECTIONS: 5.0}),
        (Entity("alice", "a b"), {PRODUCE: None, FETCH: None}),
    ]
    for entity, values in edits:
        assert altered(quotas, entity, values) is None
    assert told(client) == ["users/alice/clients/a%20b", "ips/10.0.0.1", "users/alice/clients/a%20b"]
    assert client.get("/config/ips/10.0.0.1")[0] == b'{"version":1,"config":{"connection_creation_rate":"5"}}'


def test_the_last_key_takes_the_node_and_what_it_leaves_empty(
    quotas: ZooKeeperCluster, client: KazooClient
) -> None:
    """As AdminZkClient of 3.5 and later does it."""
    before = config_tree(client)
    for entity in (Entity("alice", "etl"), Entity("alice", "app"), Entity("bob", "etl"), Entity("bob")):
        assert altered(quotas, entity, {PRODUCE: 1e6}) is None
    assert altered(quotas, Entity("alice", "etl"), {PRODUCE: None}) is None
    assert client.get_children("/config/users/alice/clients") == ["app"]
    assert altered(quotas, Entity("alice", "app"), {PRODUCE: None}) is None
    assert client.exists("/config/users/alice") is None, "it was made for the pairs, and is empty"
    assert altered(quotas, Entity("bob"), {PRODUCE: None}) is None
    assert client.get("/config/users/bob")[0] == EMPTY_NODE, "it stands above a pair"
    assert altered(quotas, Entity("bob", "etl"), {PRODUCE: None}) is None
    assert config_tree(client) == before


def test_a_user_with_a_login_stays_above_a_pair_that_goes(
    quotas: ZooKeeperCluster, client: KazooClient
) -> None:
    put(client, "users/alice", payload(**{"SCRAM-SHA-256": SCRAM, "of.another": "x"}))
    before = config_tree(client)
    for value in (1e6, None):
        assert altered(quotas, Entity("alice", "etl"), {PRODUCE: value}) is None
    assert config_tree(client) == before


def test_rights_are_those_of_the_node_above(quotas: ZooKeeperCluster, client: KazooClient) -> None:
    closed = [make_digest_acl("kafka", "secret", all=True), *client.get_acls("/config/users")[0]]
    client.set_acls("/config/users", closed)
    assert altered(quotas, Entity("alice", "etl"), {PRODUCE: 5e6}) is None
    for path in ("/config/users/alice", "/config/users/alice/clients", "/config/users/alice/clients/etl"):
        assert client.get_acls(path)[0] == closed


def test_an_edit_of_another_in_between_is_kept(
    quotas: ZooKeeperCluster, client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    edits: list[dict[AnyKey, float | None]] = [{FETCH: 7.0}, {PERCENT: 5.0}]
    others = iter(edits)
    commit = ZooKeeperCalls.commit

    def overtaken(calls: ZooKeeperCalls, transaction: Any) -> Any:
        if (edit := next(others, None)) is not None:
            put(client, "users/alice", with_quotas(ALICE, client.get("/config/users/alice")[0], edit))
        return commit(calls, transaction)

    monkeypatch.setattr(ZooKeeperCalls, "commit", overtaken)
    assert altered(quotas, ALICE, {PRODUCE: 2e6}) is None
    assert quotas.image().quotas[ALICE] == {PRODUCE: 2e6, FETCH: 7.0, PERCENT: 5.0}
    assert told(client) == ["users/alice"], "what was overtaken was not done, nor told"


def test_what_brokers_would_not_read_is_a_sentence(quotas: ZooKeeperCluster, client: KazooClient) -> None:
    put(client, "clients/a+b", payload(producer_byte_rate="1"))
    put(client, "clients/a~b", payload(producer_byte_rate="1"))
    put(client, "users/carol", b"secret-canary")
    before = config_tree(client)
    cases: list[tuple[AnyEntity, dict[AnyKey, float | None], str]] = [
        (Entity(None, "a b"), {PRODUCE: 1e6}, "there is another node for the same client id, clients/a+b"),
        (Entity(None, "a~b"), {PRODUCE: 1e6}, "there is another node for the same client id, clients/a~b"),
        (Entity("carol"), {PRODUCE: 1e6}, "its node is left as it is: not JSON"),
        (ALICE, {PRODUCE: 0.0}, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, {CONNECTIONS: 3.0}, "connection_creation_rate is no quota of users and client ids"),
        (Entity(".."), {PRODUCE: 1e6}, "relative paths not allowed"),
        (IpEntity("no.such.host.invalid"), {CONNECTIONS: 3.0}, "brokers would not start with it"),
        (IpEntity("10.0.0.1"), {CONNECTIONS: 2.0**31}, "expected a whole number of 32 bits, 0 or more"),
    ]
    for entity, values, problem in cases:
        words = altered(quotas, entity, values)
        assert words is not None and problem in words and "canary" not in words
    assert (config_tree(client), told(client)) == (before, [])


def test_nodes_that_are_no_quotas_are_named_when_all_are_read(
    quotas: ZooKeeperCluster, client: KazooClient
) -> None:
    put(client, "users/a+b", payload(producer_byte_rate="1"))
    put(client, "users/alice", payload(producer_byte_rate="2", request_percentage="many"))
    found = quotas.image()
    assert found.quotas == {ALICE: {PRODUCE: 2.0}}
    assert found.problems == {
        "users/a+b": "brokers never find this user: Kafka spells it users/a%20b",
        "users/alice": "request_percentage is not a number: brokers keep what they had for it and the keys after it",
    }


def test_a_tree_that_a_kraft_controller_owns_is_neither_read_nor_written(
    quotas: ZooKeeperCluster, client: KazooClient
) -> None:
    client.create("/controller", b'{"version":2,"brokerid":3000,"kraftControllerEpoch":1}')
    words = "a KRaft controller owns the nodes of this cluster: use --bootstrap-server"
    assert altered(quotas, ALICE, {PRODUCE: 1e6}) == words
    with pytest.raises(UserError, match=words):
        quotas.image()


def test_a_broker_before_28_has_no_quotas_of_ips(quotas: ZooKeeperCluster, client: KazooClient) -> None:
    client.delete("/config/ips")
    words = altered(quotas, IpEntity("10.0.0.1"), {CONNECTIONS: 3.0})
    assert words == "ips/10.0.0.1: this Kafka is older than 2.8 and has no quotas of ips"


def test_a_zookeeper_that_is_not_kafkas_is_one_line(quotas: ZooKeeperCluster, client: KazooClient) -> None:
    client.delete("/config/users")
    with pytest.raises(UserError, match="/config/users does not exist: check the chroot in --zookeeper"):
        quotas.image()


def test_a_lost_answer_says_that_it_is_not_known(
    quotas: ZooKeeperCluster, settings: Settings, zookeeper: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = ZooKeeperCalls.commit

    def cut(calls: ZooKeeperCalls, transaction: Any) -> Any:
        monkeypatch.setattr(calls, "_within_s", 0.5)  # not earlier: a busy server has its time until then
        pause(zookeeper, "zookeeper")
        return commit(calls, transaction)

    with zookeeper_cluster(settings.quotas, named=Named("--zookeeper")) as opened:
        monkeypatch.setattr(ZooKeeperCalls, "commit", cut)
        try:
            outcome, detail = opened.write(Change(ALICE, {PRODUCE: 2e6, FETCH: 3e6}))
        finally:
            resume(zookeeper, "zookeeper")
    assert outcome is Outcome.UNKNOWN
    assert detail == (
        f"{opened.origin} did not answer within 0.5 s: check --zookeeper and that the server runs; "
        "whether users/alice was altered is not known"
    )
    assert quotas.image().quotas.get(ALICE) in (None, {PRODUCE: 2e6, FETCH: 3e6}), "as a whole or not at all"
