"""`kquota kfk query` selects as kfk-quotas does, and not as its defects do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kquota_spark.cli.quotas.kfk_selection import user_and_clients
from kquota_spark.errors import UserError
from kquota_spark.formats.exchange.kfk import read
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from tests.support.programs.command_output import as_json, run, shown
from tests.support.quotas.kfk_cluster import PRODUCE, QUOTAS, KfkCluster, kfk_cluster


@pytest.fixture(autouse=True)
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KfkCluster]:
    monkeypatch.chdir(tmp_path)
    with kfk_cluster(tmp_path, monkeypatch) as found:
        yield found


def query(*arguments: str) -> list[str]:
    """The entities of the answer, in its order."""
    code, out, err = run("kfk", "query", "--kafka", "cp-demo", *arguments)
    assert (code, err) == (0, "")
    assert out.count("\n") == 1 and ", " not in out and '": ' not in out, "one compact line"
    found = read(out)
    assert {entity: QUOTAS[entity] for entity in found} == found
    return [str(entity) for entity in found]


def test_without_a_selection_it_is_everything_most_specific_first(cluster: KfkCluster) -> None:
    assert query() == [str(entity) for entity in QUOTAS]
    assert [(address.bootstrap_servers, dict(address.properties)) for address in cluster.opened] == [
        ("broker:9092", {})
    ]


ALICE = ["users/alice/clients/app", "users/alice/clients/etl", "users/alice/clients/<default>", "users/alice"]


@pytest.mark.parametrize(
    ("arguments", "entities"),
    [
        # Of each kind, all that have such a part: pairs and defaults too.
        (["--all-users"], [*ALICE, "users/bob", "users/<default>/clients/app", "users/<default>"]),
        (["--all-clients"], [*ALICE[:3], "users/<default>/clients/app", "clients/app", "clients/<default>"]),
        (["--all-ips"], ["ips/10.0.0.1", "ips/<default>"]),
        # Exactly the entity, not its pairs; the default behind it, unless --only.
        (["--user=bob", "--user=alice"], ["users/bob", "users/alice", "users/<default>"]),
        (["--user=bob", "--only"], ["users/bob"]),
        (["--user=bob", "--user-default", "-o"], ["users/bob", "users/<default>"]),
        (["--user-default"], ["users/<default>"]),
        (["--user=nobody"], ["users/<default>"]),
        (["--user=nobody", "-o"], []),
        (["--user=bob", "--user=bob", "-o"], ["users/bob"]),
        (["--client=app"], ["clients/app", "clients/<default>"]),
        (["--client=app", "-o"], ["clients/app"]),
        (["--client-default", "-o"], ["clients/<default>"]),
        (["--ip=10.0.0.1"], ["ips/10.0.0.1", "ips/<default>"]),
        (["--ip=10.0.0.1", "-o"], ["ips/10.0.0.1"]),
        (["--ip-default"], ["ips/<default>"]),
        (["--user-clients=alice=etl,app", "-o"], [ALICE[1], ALICE[0]]),
        (["--user-clients=alice=etl", "--user-clients=alice=app", "-o"], [ALICE[1], ALICE[0]]),
        # kfk-quotas forgets the user here, and answers with clients/<default>.
        (["--user-clients=alice=app"], [ALICE[0], ALICE[2]]),
        (["--user-clients=alice=app", "-o", "--client-default"], [ALICE[0], ALICE[2]]),
        (["--user-clients=bob=app"], []),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_selection(arguments: list[str], entities: list[str]) -> None:
    assert query(*arguments) == entities


def test_of_several_kinds_the_first_counts_and_the_others_are_named() -> None:
    order = [
        "--all-users",
        "--all-clients",
        "--all-ips",
        "--user-clients=bob=x",
        "--user=bob",
        "--client=app",
        "--ip=1.1.1.1",
    ]
    names = [option.partition("=")[0] for option in order]
    for first in range(len(order) - 1):
        code, out, err = run("kfk", "query", "--kafka=cp-demo", *reversed(order[first:]))
        assert (code, json.loads(out)) == (
            0,
            json.loads(run("kfk", "query", "--kafka=cp-demo", order[first])[1]),
        )
        assert err == (
            f"kquota: note: {', '.join(names[first + 1 :])} not looked at; a pair is --user-clients USER=CLIENT\n"
        )


def test_the_other_forms_are_the_envelope_of_every_command() -> None:
    asked = ("kfk", "query", "--kafka", "cp-demo", "--user=alice")
    answer = as_json(*asked)
    assert (answer["command"], answer["cluster"]) == ("kquota kfk query", "a cluster in memory")
    assert answer["rows"] == [
        {"entity": "users/alice", "key": "producer_byte_rate", "value": 4.0},
        {"entity": "users/alice", "key": "controller_mutation_rate", "value": 0.5},
        {"entity": "users/<default>", "key": "consumer_byte_rate", "value": 7.0},
    ]
    assert shown(*asked, "-o", "--output", "table").splitlines() == [
        "entity       key                       value",
        "users/alice  producer_byte_rate            4",
        "users/alice  controller_mutation_rate    0.5",
    ]
    assert shown(*asked, "-o", "--output", "csv").splitlines()[1] == "users/alice,producer_byte_rate,4.0"
    assert shown("kfk", "query", "--kafka=cp-demo", "--user=x", "-o", "--output=table") == (
        "no quotas (a cluster in memory)\n"
    )


def test_names_that_a_terminal_acts_on_are_escapes_and_mean_the_same(cluster: KfkCluster) -> None:
    odd = Entity("a\x1b[31m\u202e\x9b\x7fü")
    cluster.quotas = {odd: {PRODUCE: 1.0}}
    code, out, _ = run("kfk", "query", "--kafka", "cp-demo")
    assert (code, read(out)) == (0, cluster.quotas)
    assert not {"\x1b", "\u202e", "\x9b", "\x7f"} & set(out) and "ü" in out


@pytest.mark.parametrize(
    ("text", "user", "client_ids"),
    [
        ("alice=a,b", "alice", ["a", "b"]),
        ("alice=a=b", "alice", ["a=b"]),
        (r"CN\=a\,O\=x=etl", "CN=a,O=x", ["etl"]),
        (r"CN\=a,O\=x=etl", "CN=a,O=x", ["etl"]),  # a comma in front of the = parts nothing
        (r"alice=a\,b,c", "alice", ["a,b", "c"]),
        (r"CORP\bob=C:\x", r"CORP\bob", [r"C:\x"]),
    ],
)
def test_names_with_separators_can_be_said(text: str, user: str, client_ids: list[str]) -> None:
    assert user_and_clients(text) == (user, client_ids)


@pytest.mark.parametrize("text", ["alice", "alice=", "=app", "alice=a,,b", "alice=a,", r"alice\=a", ""])
def test_what_names_no_pair_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match=r"^--user-clients: .*, expected USER=CLIENT,CLIENT \(.*\)$"):
        user_and_clients(text)


def test_a_properties_file_names_the_cluster(cluster: KfkCluster, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=b1:9093,b2:9093\nsecurity.protocol=SSL\n", encoding="utf-8")
    assert run("kfk", "query", "-c", str(file))[0] == 0
    assert run("kfk", "query", f"--config={file}")[0] == 0
    assert [(each.bootstrap_servers, dict(each.properties)) for each in cluster.opened] == [
        ("b1:9093,b2:9093", {"security.protocol": "SSL"})
    ] * 2
    file.write_text("security.protocol=SSL\n", encoding="utf-8")
    problem = f"kquota: bootstrap.servers in {file}: '', expected host:port,host:port\n"
    assert run("kfk", "query", "-c", str(file)) == (1, "", problem)


def test_a_context_that_is_not_there_and_none_at_all_are_one_line(cluster: KfkCluster) -> None:
    assert run("kfk", "query", "--kafka", "x")[2].startswith("kquota: context x: not in ")
    assert run("kfk", "query") == (
        1, "", "kquota: which cluster: give --kafka CONTEXT or --config FILE; kquota context add saves one\n"
    )  # fmt: skip
    run("context", "use", "cp-demo")
    assert run("kfk", "query")[0] == 0
    assert [address.bootstrap_servers for address in cluster.opened] == ["broker:9092"]


def test_a_default_is_of_its_user() -> None:
    """The defect of kfk-quotas: it filters by the default client id alone."""
    assert Entity(None, DEFAULT) in QUOTAS
    assert query("--user-clients=bob=app", "--client-default") == []
