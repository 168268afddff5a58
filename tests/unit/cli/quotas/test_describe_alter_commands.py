"""`kquota describe` and `alter` on a cluster in memory: both grammars, what matches, what is checked before sending."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from tests.support.programs.command_output import as_json, run, shown
from tests.support.quotas.in_memory_cluster_quotas import InMemoryClusterQuotas
from tests.support.quotas.opened_clusters import opens, save_settings

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, ALICE_ETL, ALICE_ANY = Entity("alice"), Entity("alice", "etl"), Entity("alice", DEFAULT)
USERS, ETL, CLIENTS = Entity(DEFAULT), Entity(None, "etl"), Entity(None, DEFAULT)
DN = "CN=app,OU=x"
BYTES, UNSENT = "expected a whole number of bytes per second", "; nothing was sent"
OR_SO = ", e.g. 2000000 or 2MB/s"
QUOTAS: QuotaSet = {
    ALICE: {PRODUCE: 5e6, FETCH: 2.0},
    ALICE_ETL: {PRODUCE: 3e5},
    ALICE_ANY: {PRODUCE: 2e5},
    Entity(DN): {PRODUCE: 1.0},
    USERS: {PRODUCE: 1e6},
    ETL: {QuotaKey.REQUEST_PERCENTAGE: 12.5},
    CLIENTS: {FETCH: 3e6},
    IpEntity("10.0.0.1"): {IpQuotaKey.CONNECTION_CREATION_RATE: 20.0},
    IpEntity(DEFAULT): {IpQuotaKey.CONNECTION_CREATION_RATE: 5.0},
}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[InMemoryClusterQuotas]:
    found = InMemoryClusterQuotas(QUOTAS)
    monkeypatch.chdir(tmp_path)

    save_settings(tmp_path)
    with opens(found):
        yield found


@pytest.mark.parametrize(
    ("asked", "entities"),
    [
        ("", list(QUOTAS)),
        ("--name user=alice", [ALICE, ALICE_ETL, ALICE_ANY]),
        ("--name user=alice --strict", [ALICE]),
        ("--names=user=alice,client-id=etl", [ALICE_ETL]),
        ("--name user=alice --default client-id", [ALICE_ANY]),
        ("--name user=alice --any client-id", [ALICE_ETL, ALICE_ANY]),
        ("--any user --strict", [ALICE, Entity(DN), USERS]),
        ("--defaults=user", [USERS]),
        ("--defaults=user,client-id", []),
        ("--any client-id", [ALICE_ETL, ALICE_ANY, ETL, CLIENTS]),
        ("--name client-id=etl", [ALICE_ETL, ETL]),
        (f"--name user={DN}", [Entity(DN)]),
        ("--any ip", [IpEntity("10.0.0.1"), IpEntity(DEFAULT)]),
        ("--name user=nobody", []),
        # kafka-configs.sh asks strictly.
        ("--entity-type users", [ALICE, Entity(DN), USERS]),
        ("--entity-type users --entity-name alice", [ALICE]),
        ("--entity-type users --entity-name alice --entity-type clients --entity-default", [ALICE_ANY]),
        ("--entity-type users --entity-type clients --entity-name alice", [ALICE_ETL, ALICE_ANY]),
        ("--user alice --client etl", [ALICE_ETL]),
        ("--user alice", [ALICE]),
        ("--client-defaults", [CLIENTS]),
        ("--ip 10.0.0.1", [IpEntity("10.0.0.1")]),
        ("--entity-type ips --entity-default", [IpEntity(DEFAULT)]),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_what_matches(asked: str, entities: list[Any]) -> None:
    rows = as_json("describe", *asked.split(" " if asked else None))["rows"]
    assert {row["entity"] for row in rows} == set(map(str, entities))


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ("--name user=alice --user bob", "entities in two forms"),
        ("--entity-type users --user bob", "entities in two forms"),
        ("--name user=alice --default user", "user is named twice"),
        ("--name ip=1 --name user=alice", "an ip stands alone"),
        ("--strict", "strict without any type"),
        ("--user alice --strict", "strict themselves"),
        ("--entity-name alice", "more names than --entity-type"),
        ("--entity-type topics", "expected one of users, clients, ips"),
        ("--name alice", "expected TYPE=NAME"),
        (
            "--name user=bob,client-id=x",
            "write --name user=bob --name client-id=x; a user of that very name is --user bob,client-id=x",
        ),
        (f"--name user={DN},client-id=x", f"write --name user={DN} --name client-id=x;"),
        ("--name client-id=x,user=bob", "a client-id of that very name is --client x,user=bob"),
        ("--name group=x", "expected one of user, client-id, ip"),
        (f"--names=user={DN}", "is given by --name TYPE=NAME"),
        ("--entity-type users --entity-name=", "the default is --entity-default"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_wrong_usage_is_2(asked: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["describe", *asked.split()])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.usefixtures("cluster")
def test_a_table_shows_numbers_whole_and_for_people() -> None:
    assert (
        shown("describe", "--name", "user=alice")
        == """\
entity                         key                     value
users/alice/clients/etl        producer_byte_rate    300,000  300 kB/s
users/alice/clients/<default>  producer_byte_rate    200,000  200 kB/s
users/alice                    consumer_byte_rate          2     2 B/s
users/alice                    producer_byte_rate  5,000,000  5.0 MB/s
3 entities of a cluster in memory
"""
    )
    meant = shown("describe", "--name", "user=alcie", "--name", "client-id=ETL")
    assert meant == (
        "no quotas match, of 9 entities that have any (a cluster in memory); did you mean\n"
        "user=alice,client-id=etl?\n"
    )
    none = shown("describe", "--name", "user=x")
    assert none == "no quotas match, of 9 entities that have any (a cluster in memory)\n"


@pytest.mark.usefixtures("cluster")
def test_the_sentences_of_kafka_configs() -> None:
    code, out, _ = run("describe", "--user", "alice", "--client", "etl", "--output", "kafka-configs")
    sentence = "Quota configs for user-principal 'alice', client-id 'etl' are producer_byte_rate=300000.0\n"
    assert (code, out) == (0, sentence)


def test_keys_are_set_and_removed_in_one_request(cluster: InMemoryClusterQuotas) -> None:
    out = shown(
        "alter", "--name", "user=alice", "--add", "producer_byte_rate=6000000", "--delete", "consumer_byte_rate",
        "--yes",
    )  # fmt: skip
    assert cluster.altered == [(ALICE, {PRODUCE: 6e6, FETCH: None})]
    # Her rule is the only one of fetch for her: the default of client ids is next, and does not reach an empty one.
    assert (
        out
        == """\
consumer_byte_rate: user alice now falls to clients/<default>: 3.0 MB/s
consumer_byte_rate: nothing limits user alice with an empty client-id then
entity       key                    before      after  change   status
users/alice  producer_byte_rate  5,000,000  6,000,000  raised   applied
users/alice  consumer_byte_rate          2          -  removed  applied
entities: 1 applied (a cluster in memory)
undo: kquota alter --config conf/kquota.yaml --user alice --add producer_byte_rate=5000000,consumer_byte_rate=2
"""
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("--user-defaults --delete producer_byte_rate", "nothing limits any user without a rule of its own then"),
        ("--name user=alice --name client-id=etl --delete producer_byte_rate",
         "user alice with client-id etl now falls to users/alice/clients/<default>: 200 kB/s"),
        # For every other client id of hers a pair comes first.
        ("--user alice --delete producer_byte_rate",
         "user alice with an empty client-id now falls to users/<default>: 1.0 MB/s"),
        ("--user bob --delete producer_byte_rate", "nobody gets another limit or bucket by that"),
        ("--ip 10.0.0.1 --delete connection_creation_rate", "ip 10.0.0.1 now falls to ips/<default>: 5/s"),
        ("--ip-defaults --delete connection_creation_rate", "nothing limits any ip without a rule of its own then"),
        ("--entity-type clients --entity-name etl --delete-config request_percentage",
         "nothing limits client-id etl then"),
    ],
)  # fmt: skip
def test_what_governs_after_a_removal_is_said(asked: str, said: str, cluster: InMemoryClusterQuotas) -> None:
    cluster.quotas[Entity("bob")] = {PRODUCE: 1e6}  # as much as the default
    assert f": {said} entity" in " ".join(shown("alter", *asked.split(), "--yes").split())


@pytest.mark.parametrize(
    "asked",
    [
        "--user bob --add-config producer_byte_rate=7,consumer_byte_rate=8",
        "--name user=bob --add producer_byte_rate=7 --add consumer_byte_rate=8",
        "--names=user=bob --add=producer_byte_rate=7,consumer_byte_rate=8",
        "--entity-type users --entity-name bob --add-config consumer_byte_rate=8.0,producer_byte_rate=7e0",
    ],
)
def test_both_grammars_alter_alike(asked: str, cluster: InMemoryClusterQuotas) -> None:
    shown("alter", *asked.split(), "--yes")
    assert cluster.altered == [(Entity("bob"), {PRODUCE: 7.0, FETCH: 8.0})]


def test_values_may_have_units(cluster: InMemoryClusterQuotas) -> None:
    given = "producer_byte_rate=2MB/s,consumer_byte_rate=1.5MiB/s,request_percentage=200%"
    shown("alter", "--user", "bob", "--add", given, "--yes")
    wanted = {PRODUCE: 2_000_000.0, FETCH: 1_572_864.0, QuotaKey.REQUEST_PERCENTAGE: 200.0}  # 1.5 * 2^20
    assert cluster.altered == [(Entity("bob"), wanted)]


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (
            "--user alice --delete request_percentage",
            "users/alice: request_percentage cannot be removed, not set there; nothing was sent (a cluster in memory)",
        ),
        (
            "--user alice --add producer_byte_rate=0",
            f"users/alice: producer_byte_rate=0: {BYTES}, above 0{OR_SO}{UNSENT}",
        ),
        (
            "--user alice --add producer_byte_rate=-1",
            f"users/alice: producer_byte_rate=-1: {BYTES}, above 0{OR_SO}{UNSENT}",
        ),
        (
            "--user alice --add consumer_byte_rate=1.5",
            f"users/alice: consumer_byte_rate=1.5: {BYTES}, above 0{OR_SO}{UNSENT}",
        ),
        (
            "--user alice --add producer_byte_rate=2KB/s",
            f"users/alice: producer_byte_rate=2KB/s: {BYTES}, above 0{OR_SO}{UNSENT}",
        ),
        (
            "--user alice --add producer_byte_rate=1.0000005MB",
            (
                "users/alice: producer_byte_rate=1.0000005MB: expected whole bytes per second, and this is "
                f"1,000,000.5{OR_SO}{UNSENT}"
            ),
        ),
        (
            "--user alice --add request_percentage=nan",
            f"users/alice: request_percentage=nan: expected a number, above 0, e.g. 200 or 200%{UNSENT}",
        ),
        (
            "--ip ::1 --add connection_creation_rate=2147483648",
            (
                "ips/::1: connection_creation_rate=2147483648: expected a whole number of connections per second, "
                f"2147483647 or less, e.g. 10 or 10/s{UNSENT}"
            ),
        ),
        (
            "--user alice --add connection_creation_rate=5",
            (
                "users/alice: no key 'connection_creation_rate', expected one of producer_byte_rate, "
                "consumer_byte_rate, request_percentage, controller_mutation_rate"
            ),
        ),
        (
            "--ip ::1 --add producer_byte_rate=5",
            "ips/::1: no key 'producer_byte_rate', expected connection_creation_rate",
        ),
        (
            "--name user= --add producer_byte_rate=5",
            "users/: a name cannot be empty; the default has its own option, see --help",
        ),
    ],
)
def test_what_no_cluster_takes_is_not_sent(asked: str, problem: str, cluster: InMemoryClusterQuotas) -> None:
    assert run("alter", *asked.split(), "--yes") == (1, "", f"kquota: {problem}\n")
    assert cluster.altered == []


@pytest.mark.parametrize(
    "asked",
    [
        "--user alice",
        "--add producer_byte_rate=5",
        "--user alice --add producer_byte_rate",
        "--user alice --add producer_byte_rate=5 --delete producer_byte_rate",
        "--entity-type users --add producer_byte_rate=5",
        "--ip 1.1.1.1 --user alice --add connection_creation_rate=5",
        "--user alice --any client-id --add producer_byte_rate=5",
    ],
)
def test_wrong_usage_alters_nothing(
    asked: str, cluster: InMemoryClusterQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(SystemExit) as ended:
        run("alter", *asked.split())
    assert ended.value.code == 2
    assert cluster.altered == []


def test_without_a_terminal_and_without_yes_nothing_is_done(
    cluster: InMemoryClusterQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert run("alter", "--user", "alice", "--add", "producer_byte_rate=5")[0] == 4
    assert cluster.altered == []


@pytest.mark.parametrize("option", ["--dry-run", "--dry"])
def test_a_dry_run_asks_the_cluster_and_changes_nothing(option: str, cluster: InMemoryClusterQuotas) -> None:
    out = shown("alter", "--user", "alice", "--add", "producer_byte_rate=9", option)
    assert "5,000,000      9  lowered  would be applied" in out
    cluster.refusals[ALICE] = "no"
    code, out, _ = run(
        "alter", "--user", "alice", "--add", "producer_byte_rate=9", option, "--output", "json"
    )
    [row] = json.loads(out)["rows"]
    assert (code, row["status"], row["detail"], row["before"], row["after"]) == (1, "refused", "no", 5e6, 9.0)
    assert cluster.altered == []


def test_what_is_already_so_is_not_sent(cluster: InMemoryClusterQuotas) -> None:
    out = shown("alter", "--user", "alice", "--add", "producer_byte_rate=5000000", "--yes")
    assert out == "nothing to change: 1 as wanted (a cluster in memory)\n"
    assert cluster.altered == []


def test_a_user_with_an_empty_name_can_be_found_and_removed(cluster: InMemoryClusterQuotas) -> None:
    cluster.quotas[Entity("")] = {PRODUCE: 5.0}  # what a migration made of the default (KAFKA-16411)
    [row] = as_json("describe", "--name", "user=")["rows"]
    assert row["parts"] == [{"type": "user", "name": ""}]
    shown("alter", "--name", "user=", "--delete", "producer_byte_rate", "--yes")
    assert Entity("") not in cluster.quotas


def test_an_address_in_another_spelling_is_altered_where_it_is(cluster: InMemoryClusterQuotas) -> None:
    key = IpQuotaKey.CONNECTION_CREATION_RATE
    cluster.quotas = {IpEntity("0:0:0:0:0:0:0:1"): {key: 5.0}}
    shown("alter", "--ip", "::1", "--add", "connection_creation_rate=6", "--yes")
    assert cluster.quotas == {IpEntity("0:0:0:0:0:0:0:1"): {key: 6.0}}
