"""The three roads to a cluster's quotas, on real brokers: ZooKeeper, their Admin API, and that of KRaft."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kquota_spark.cli.chosen.cluster_choice import address_of_context, saved_context
from kquota_spark.config.contexts import Contexts, save_contexts
from kquota_spark.embedded.readiness import connected
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import AnyKey
from kquota_spark.process.processes import wait_for
from kquota_spark.quotas.backends import opened_cluster
from tests.support.clusters.config_tree import config_tree
from tests.support.clusters.roads import ROADS, Clusters
from tests.support.clusters.waiting import WITHIN_S
from tests.support.programs.command_output import run
from tests.support.quotas.cluster_contract import CONNECTIONS, FETCH, MUTATIONS, PERCENT, PRODUCE, altered


def kfk(line: str) -> str:
    """What a line of the documentation of kfk-quotas prints, with `kquota kfk` instead of its name."""
    code, out, err = run("kfk", *line.split()[1:])
    assert (code, err) == (0, "")
    return out


@pytest.mark.parametrize("road", ROADS)
def test_the_published_examples_verbatim(
    road: str, clusters: Clusters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_contexts(tmp_path / "contexts.yaml", Contexts(contexts={"cp-demo": saved_context(road)}))
    monkeypatch.setenv("KQUOTA_CONTEXTS", str(tmp_path / "contexts.yaml"))
    assert kfk("kfk-quotas query --kafka cp-demo") == "[]\n"
    of_all = "kfk-quotas create --kafka cp-demo --user-default --produce-rate 5000000 --fetch-rate 15000000"
    of_one = (
        "kfk-quotas create --kafka cp-demo --user controlcenterAdmin --produce-rate 10000 --fetch-rate 60000"
    )
    assert (kfk(of_all), kfk(of_one)) == ("", "")
    of_user = {
        "clientEntity": {"user": {"user": "controlcenterAdmin"}},
        "constraints": {"producer_byte_rate": 10000.0, "consumer_byte_rate": 60000.0},
    }
    of_default = {
        "clientEntity": {"user": {"default": True}},
        "constraints": {"producer_byte_rate": 5000000.0, "consumer_byte_rate": 15000000.0},
    }
    assert json.loads(kfk("kfk-quotas query --kafka cp-demo")) == [of_user, of_default]
    only = kfk("kfk-quotas query --kafka cp-demo --user controlcenterAdmin --only")
    assert json.loads(only) == [of_user]
    assert kfk("kfk-quotas delete --kafka cp-demo --user controlcenterAdmin --fetch-rate") == ""
    printed = kfk("kfk-quotas delete --kafka cp-demo --all --user controlcenterAdmin")
    assert json.loads(printed)[0]["constraints"] == {"producer_byte_rate": 10000.0}
    kfk("kfk-quotas delete --kafka cp-demo --all --user-default")
    assert kfk("kfk-quotas query --kafka cp-demo") == "[]\n"


def test_brokers_act_on_what_was_written_and_removed_in_zookeeper(clusters: Clusters) -> None:
    log = clusters.of_zookeeper.brokers[0].request_log.with_name("server.log")
    edits: list[tuple[AnyEntity, dict[AnyKey, float | None], str]] = [
        (IpEntity("10.0.0.9"), {CONNECTIONS: 5.0}, "connection_creation_rate -> 5"),
        (IpEntity(DEFAULT), {CONNECTIONS: 11.0}, "connection_creation_rate -> 11"),
        (Entity("told", "a b"), {PRODUCE: 1e6, MUTATIONS: 0.5},
         "producer_byte_rate -> 1000000, controller_mutation_rate -> 0.5"),
        (Entity(None, DEFAULT), {FETCH: 3e6}, "consumer_byte_rate -> 3000000"),
    ]  # fmt: skip
    with (
        opened_cluster(address_of_context("zookeeper")) as zookeeper,
        opened_cluster(address_of_context("brokers")) as brokers,
    ):
        began = told = log.read_text("utf-8")

        def heard(entity: AnyEntity, config: str) -> bool:
            line = f"Processing override for entityPath: {entity} with config: HashMap({config})"
            return wait_for(lambda: line in log.read_text("utf-8")[len(told) :], within_s=WITHIN_S)

        for entity, values, config in edits:
            assert altered(zookeeper, entity, values) is None
            assert heard(entity, config)
        assert (
            brokers.image().quotas
            == zookeeper.image().quotas
            == {entity: values for entity, values, _ in edits}
        )
        told = log.read_text("utf-8")
        for entity, values, _ in edits:
            assert altered(zookeeper, entity, dict.fromkeys(values)) is None
            assert heard(entity, "")
        assert brokers.image().quotas == {}
    assert "ERROR" not in log.read_text("utf-8")[len(began) :]


def test_both_roads_to_zookeeper_leave_the_same_nodes(clusters: Clusters) -> None:
    """What brokers and kafka-configs write there, and what they leave of it when the last key goes.

    Brokers write the keys of a node in the order of a hash map, so data is compared as JSON.
    """
    pair, other = Entity("same", "a b"), Entity("same", "c")
    edits: list[tuple[AnyEntity, dict[AnyKey, float | None]]] = [
        (IpEntity("10.0.0.1"), {CONNECTIONS: 5.0}),
        (pair, {PRODUCE: 1e6, PERCENT: 12.5}),
        (other, {MUTATIONS: 0.5}),
        (pair, {PRODUCE: None}),
        (pair, {PERCENT: None}),
        (Entity("same"), {FETCH: 7.0}),
        (Entity("same"), {FETCH: None}),  # above a pair
        (other, {MUTATIONS: None}),
        (Entity(None, "CN=ü/*~"), {FETCH: 3e6}),
        (Entity(None, "CN=ü/*~"), {FETCH: None}),
        (IpEntity("10.0.0.1"), {CONNECTIONS: None}),
    ]
    seen: dict[str, list[dict[str, object]]] = {}
    with connected(clusters.of_zookeeper.zookeeper_connect) as client:
        for road in ("brokers", "zookeeper"):
            with opened_cluster(address_of_context(road)) as quotas:
                seen[road] = []
                for entity, values in edits:
                    assert altered(quotas, entity, values) is None
                    tree = config_tree(client) | config_tree(client, "/config/ips")
                    nodes: dict[str, object] = {
                        path: (data and json.loads(data), acl) for path, (data, acl) in tree.items()
                    }
                    seen[road].append(nodes)
    assert seen["zookeeper"] == seen["brokers"]
    assert len({len(nodes) for nodes in seen["brokers"]}) > 3, "nodes came and went"


def test_two_spellings_of_one_road_say_the_same(clusters: Clusters, tmp_path: Path) -> None:
    """A properties file instead of a context, and a refusal in the broker's words on one line."""
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={clusters.of_kraft.bootstrap_servers}\n", encoding="utf-8")
    assert run("kfk", "create", "-c", str(file), "--user=a", "--client=b", "--request-rate=12.5") == (
        0,
        "",
        "",
    )
    assert run("kfk", "query", "-c", str(file)) == run("kfk", "query", "--kafka", "kraft")
    code, out, err = run("kfk", "create", "-c", str(file), "--user=a", "--produce-rate=0")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("kquota: users/a: refused: ") and "greater than 0" in err
    assert json.loads(run("kfk", "delete", "-c", str(file), "--all", "--user=a", "--client=b")[1]) == [
        {
            "clientEntity": {"user": {"user": "a"}, "client": {"client-id": "b"}},
            "constraints": {"request_percentage": 12.5},
        }
    ]
    code, out, err = run("resolve", "--user=a", "--client-id=b", "--context", "kraft", "--output=json")
    assert (code, json.loads(out)["rows"][0]["limit"], err) == (0, None, "")
