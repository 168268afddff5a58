"""`kquota describe`, `alter` and `diff` on real clusters: in ZooKeeper mode by both roads, and KRaft."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import closing
from itertools import product
from typing import Any

import pytest

from kquota_spark.cli.chosen.cluster_choice import address_of_context
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.setup.jars import find_jars
from kquota_spark.embedded.setup.java import find_java
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Default, Entity
from kquota_spark.model.quotas.quota_set import ANY, AnyName, EntityFilter, EntityType
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.quotas.backends import opened_cluster
from tests.support.clusters.roads import ROADS, Clusters
from tests.support.programs.command_output import run
from tests.support.quotas.cluster_contract import altered

DN = "CN=app,OU=x"


def done(*arguments: str) -> str:
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    return out


def values(road: str, *asked: str) -> dict[tuple[str, str], float]:
    rows: list[dict[str, Any]] = json.loads(done("describe", "--context", road, *asked, "--output", "json"))[
        "rows"
    ]
    return {(row["entity"], row["key"]): row["value"] for row in rows}


def clear(road: str) -> None:
    for row in json.loads(done("describe", "--context", road, "--output", "json"))["rows"]:
        parts = [(part["type"], part["name"]) for part in row["parts"]]
        names = [
            ("--default", kind) if name is None else ("--name", f"{kind}={name}") for kind, name in parts
        ]
        flat = [word for pair in names for word in pair]
        done("alter", "--context", road, *flat, "--delete", row["key"], "--yes")
    assert values(road) == {}


def kafka_configs(cluster: Cluster, *arguments: str) -> str:
    """What Kafka's own tool prints."""
    jars = os.pathsep.join(map(str, find_jars().broker))
    command = [str(find_java().path), "-Xmx128m", "-cp", jars, "kafka.admin.ConfigCommand"]
    command += ["--bootstrap-server", cluster.bootstrap_servers, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    return done.stdout


@pytest.mark.parametrize("road", ROADS)
def test_what_is_altered_is_described(road: str, clusters: Clusters) -> None:
    at = ("--context", road)
    done(
        "alter",
        *at,
        "--name",
        f"user={DN}",
        "--name",
        "client-id=a b",
        "--add",
        "producer_byte_rate=1000000",
        "--yes",
    )
    done(
        "alter",
        *at,
        "--user-defaults",
        "--add-config",
        "consumer_byte_rate=7,request_percentage=12.5",
        "--yes",
    )
    done("alter", *at, "--ip", "10.1.2.3", "--add", "connection_creation_rate=9", "--yes")
    assert values(road, "--any", "user") == {
        ("users/CN%3Dapp%2COU%3Dx/clients/a%20b", "producer_byte_rate"): 1e6,
        ("users/<default>", "consumer_byte_rate"): 7.0,
        ("users/<default>", "request_percentage"): 12.5,
    }
    # The pair falls to the default user; a key that is not set is no removal.
    out = done(
        "alter",
        *at,
        "--name",
        f"user={DN}",
        "--name",
        "client-id=a b",
        "--delete",
        "producer_byte_rate",
        "--yes",
    )
    assert f"nothing limits user {DN} with client-id a b then" in " ".join(out.split())
    code, out, err = run("alter", *at, "--user-defaults", "--delete", "producer_byte_rate", "--yes")
    assert (code, out) == (1, "") and "users/<default>: producer_byte_rate cannot be removed" in err
    assert values(road, "--entity-type", "ips") == {("ips/10.1.2.3", "connection_creation_rate"): 9.0}
    clear(road)


@pytest.mark.parametrize("road", ROADS)
def test_a_dry_run_asks_and_changes_nothing(road: str, clusters: Clusters) -> None:
    at = ("alter", "--context", road, "--output", "json", "--dry-run")
    [row] = json.loads(done(*at, "--user", "dry", "--add", "producer_byte_rate=5"))["rows"]
    assert (row["status"], row["before"], row["after"]) == ("would be applied", None, 5.0)
    code, out, _ = run(*at, "--ip", "no.such.host.invalid", "--add", "connection_creation_rate=5")
    [row] = json.loads(out)["rows"]
    assert (code, row["status"]) == (1, "refused")
    assert values(road) == {}


@pytest.mark.parametrize("road", ["brokers", "kraft"])
def test_what_matches_is_what_brokers_match(road: str, clusters: Clusters) -> None:
    """Every filter over the names of a small world, strict and not: the entities that the brokers themselves give."""
    key, users, client_ids = QuotaKey.PRODUCER_BYTE_RATE, ("alice", "bob", DEFAULT), ("app", DEFAULT)
    entities: list[AnyEntity] = [Entity("alice"), Entity(DEFAULT), Entity("alice", "app"), Entity("alice", DEFAULT),
                                 Entity(DEFAULT, "app"), Entity(None, "app"), Entity(None, DEFAULT)]  # fmt: skip
    admin = QuotaAdmin(clusters.of(road).bootstrap_servers, {}, timeout_ms=60_000)
    with closing(admin), opened_cluster(address_of_context(road)) as cluster:
        for entity in entities:
            assert altered(cluster, entity, {key: 5.0}) is None
        quotas = cluster.image().quotas
        asked = 0
        for user, client_id, is_strict in product(
            (None, ANY, *users), (None, ANY, *client_ids), (False, True)
        ):
            parts = {EntityType.USER: user, EntityType.CLIENT_ID: client_id}
            wanted = {kind: name for kind, name in parts.items() if name is not None}
            if wanted:
                ours = set(EntityFilter(wanted, is_strict).among(quotas))
                assert ours == described(admin, wanted, is_strict=is_strict), (wanted, is_strict)
                asked += 1
        assert asked == 2 * (5 * 4 - 1)
    clear(road)


def described(
    admin: QuotaAdmin, wanted: Mapping[EntityType, str | Default | AnyName], *, is_strict: bool
) -> set[Entity]:
    """The entities that DescribeClientQuotas answers: 0 is a name, 1 the default, 2 any."""
    from kafka.protocol.admin.client_quotas import DescribeClientQuotasRequest as Request

    kinds: dict[object, int] = {DEFAULT: 1, ANY: 2}
    components = [
        Request.ComponentData(entity_type=kind.value, match_type=kinds.get(name, 0),
                              match=name if isinstance(name, str) else None)
        for kind, name in wanted.items()
    ]  # fmt: skip
    [answer] = admin._ask([Request(components=components, strict=is_strict)])
    names = [{part.entity_type: part.entity_name for part in entry.entity} for entry in answer.entries or ()]
    return {
        Entity(
            *(
                DEFAULT if kind in one and one[kind] is None else one.get(kind)
                for kind in ("user", "client-id")
            )
        )
        for one in names
    }


def test_the_sentences_are_those_of_kafkas_own_tool(clusters: Clusters) -> None:
    at = ("alter", "--context", "kraft", "--yes")
    done(*at, "--user", DN, "--add", "producer_byte_rate=12345678,consumer_byte_rate=1024")
    done(*at, "--user-defaults", "--add", "request_percentage=200")
    done(*at, "--user", DN, "--client-defaults", "--add", "controller_mutation_rate=0.25")
    asked: tuple[tuple[str, ...], ...] = (
        ("--entity-type", "users"),
        ("--entity-type", "users", "--entity-type", "clients"),
    )
    for one in asked:
        theirs = kafka_configs(clusters.of_kraft, "--describe", *one)
        ours = done("describe", "--context", "kraft", *one, "--output", "kafka-configs")
        assert as_sets(ours) == as_sets(theirs)
        assert ours.count("\n") == len(as_sets(theirs))
    clear("kraft")


def as_sets(sentences: str) -> set[tuple[str, frozenset[str]]]:
    """Each sentence on quotas: whose, and the values in any order, as Kafka prints a hash map.

    Kafka's tool has others on the logins of users, which tests of other files leave there.
    """
    found = (line.partition(" are ") for line in sentences.splitlines() if line.startswith("Quota"))
    return {(who, frozenset(values.split(", "))) for who, _, values in found}


def test_a_migration_is_let_through_when_nothing_is_mangled(clusters: Clusters) -> None:
    for road, name in (("zookeeper", DN), ("kraft", "CN%3Dapp%2COU%3Dx")):
        done("alter", "--context", road, "--name", f"user={name}", "--add", "producer_byte_rate=5", "--yes")
    code, out, _ = run("diff", "zookeeper", "kraft")
    assert code == 2
    assert "(KAFKA-16222)" in out
    assert f"{DN} / (any)" in out
    done(
        "alter",
        "--context",
        "kraft",
        "--name",
        "user=CN%3Dapp%2COU%3Dx",
        "--delete",
        "producer_byte_rate",
        "--yes",
    )
    done("alter", "--context", "kraft", "--name", f"user={DN}", "--add", "producer_byte_rate=5", "--yes")
    assert run("diff", "zookeeper", "kraft")[0] == 0
    for road in ("zookeeper", "kraft"):
        clear(road)
