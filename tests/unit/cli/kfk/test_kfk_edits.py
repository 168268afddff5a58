"""`kquota kfk create` and `delete` take what kfk-quotas takes, and are as quiet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kquota_spark.formats.exchange.kfk import write
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import AnyKey
from tests.support.programs.command_output import as_json, run
from tests.support.quotas.kfk_cluster import (
    CONNECTIONS,
    FETCH,
    MUTATIONS,
    PERCENT,
    PRODUCE,
    QUOTAS,
    KfkCluster,
    kfk_cluster,
)


@pytest.fixture(autouse=True)
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KfkCluster]:
    monkeypatch.chdir(tmp_path)
    with kfk_cluster(tmp_path, monkeypatch) as found:
        yield found


def kfk(*arguments: str) -> tuple[int, str, str]:
    return run("kfk", arguments[0], "--kafka", "cp-demo", *arguments[1:])


Altered = list[tuple[AnyEntity, dict[AnyKey, float | None]]]


@pytest.mark.parametrize(
    ("arguments", "altered"),
    [
        (
            ["--user-default", "--produce-rate", "5000000", "--fetch-rate", "15000000"],
            [(Entity(DEFAULT), {PRODUCE: 5e6, FETCH: 15e6})],
        ),
        (
            ["--user", "controlcenterAdmin", "--produce-rate", "10000", "--fetch-rate", "60000"],
            [(Entity("controlcenterAdmin"), {PRODUCE: 1e4, FETCH: 6e4})],
        ),
        (["--user=a", "--client=b", "--request-rate=12.5"], [(Entity("a", "b"), {PERCENT: 12.5})]),
        (["--user=a", "--client-default", "--mutation-rate=2"], [(Entity("a", DEFAULT), {MUTATIONS: 2.0})]),
        (["--client-default", "--fetch-rate=1e6"], [(Entity(None, DEFAULT), {FETCH: 1e6})]),
        (["--ip=10.0.0.1", "--connection-rate=5"], [(IpEntity("10.0.0.1"), {CONNECTIONS: 5.0})]),
        (["--ip-default", "--connection-rate=5/s"], [(IpEntity(DEFAULT), {CONNECTIONS: 5.0})]),
        (
            ["--user=a", "--produce-rate=1.5MiB/s", "--request-rate=12.5%"],
            [(Entity("a"), {PRODUCE: 1_572_864.0, PERCENT: 12.5})],
        ),  # 1.5 * 2^20
        (["--ip-default", "--connection-rate=5"], [(IpEntity(DEFAULT), {CONNECTIONS: 5.0})]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value[0], str) else "",
)
def test_create_sets_and_says_nothing(arguments: list[str], altered: Altered, cluster: KfkCluster) -> None:
    assert kfk("create", *arguments) == (0, "", "")
    assert cluster.altered == altered


def test_a_dry_run_prints_the_array_and_changes_nothing(cluster: KfkCluster) -> None:
    said = kfk("create", "--user", "dora", "--produce-rate", "7", "--dry-run")
    assert said == (0, write({Entity("dora"): {PRODUCE: 7.0}}), "")
    said = kfk("delete", "--user", "alice", "--produce-rate", "--fetch-rate", "--dry-run")
    assert said == (0, write({Entity("alice"): {PRODUCE: 4.0}}), "")
    code, _, err = kfk("create", "--user", "dora", "--produce-rate", "1.5", "--dry-run")
    assert (code, err) == (
        1,
        "kquota: users/dora: refused: producer_byte_rate cannot be a fractional value.\n",
    )
    assert (cluster.altered, cluster.quotas) == ([], QUOTAS)


@pytest.mark.parametrize(
    ("arguments", "altered"),
    [
        (["--user=alice", "--produce-rate"], [(Entity("alice"), {PRODUCE: None})]),
        (["--user=alice", "--fetch-rate"], [(Entity("alice"), {FETCH: None})]),  # is not set: done, as by Kafka
        (["--user=alice", "--client-default", "--produce-rate", "--mutation-rate"],
         [(Entity("alice", DEFAULT), {PRODUCE: None, MUTATIONS: None})]),
        (["--ip-default", "--connection-rate"], [(IpEntity(DEFAULT), {CONNECTIONS: None})]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value[0], str) else "",
)  # fmt: skip
def test_delete_removes_single_keys_and_says_nothing(
    arguments: list[str], altered: Altered, cluster: KfkCluster
) -> None:
    assert kfk("delete", *arguments) == (0, "", "")
    assert cluster.altered == altered


@pytest.mark.parametrize(
    ("arguments", "going"),
    [
        (["--user=alice"], [Entity("alice")]),  # the mutation rate, which kfk-quotas leaves, too
        (["--user-default"], [Entity(DEFAULT)]),
        (["--user=bob", "--user-default"], [Entity("bob"), Entity(DEFAULT)]),
        (["--client=app"], [Entity(None, "app")]),
        (["--ip=10.0.0.1"], [IpEntity("10.0.0.1")]),
        # kfk-quotas looks at the user alone, and removes users/alice.
        (["--user=alice", "--client=app"], [Entity("alice", "app")]),
        (["--user=alice", "--client-default"], [Entity("alice", DEFAULT)]),
        (
            ["--user=alice", "--user-default", "--client=app"],
            [Entity("alice", "app"), Entity(DEFAULT, "app")],
        ),
        (["--user=nobody"], []),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_delete_all_prints_what_goes_and_removes_exactly_that(
    arguments: list[str], going: list[AnyEntity], cluster: KfkCluster
) -> None:
    assert kfk("delete", "--all", *arguments) == (0, write({entity: QUOTAS[entity] for entity in going}), "")
    assert cluster.quotas == {entity: values for entity, values in QUOTAS.items() if entity not in going}


def test_what_one_entity_refuses_does_not_stop_the_other(cluster: KfkCluster) -> None:
    cluster.refusals = {Entity("bob"): "not\x1b you"}
    code, out, err = kfk("delete", "--all", "--user=bob", "--user-default")
    assert (code, out) == (1, write({Entity("bob"): {FETCH: 5.0}, Entity(DEFAULT): {FETCH: 7.0}}))
    assert err == "kquota: users/bob: refused: not\\x1b you\n"
    assert (Entity("bob") in cluster.quotas, Entity(DEFAULT) in cluster.quotas) == (True, False)


def test_other_forms_tell_what_became_of_each_key(cluster: KfkCluster) -> None:
    answer = as_json("kfk", "create", "--kafka=cp-demo", "--user=alice", "--produce-rate=5", "--fetch-rate=6")
    assert [
        [row[name] for name in ("entity", "key", "before", "after", "status")] for row in answer["rows"]
    ] == [
        ["users/alice", "producer_byte_rate", 4.0, 5.0, "applied"],
        ["users/alice", "consumer_byte_rate", None, 6.0, "applied"],
    ]
    answer = as_json("kfk", "delete", "--kafka=cp-demo", "--user=alice", "--all", "--dry-run")
    assert [(row["key"], row["before"], row["status"]) for row in answer["rows"]] == [
        ("producer_byte_rate", 5.0, "would be applied"),
        ("controller_mutation_rate", 0.5, "would be applied"),
        ("consumer_byte_rate", 6.0, "would be applied"),
    ]


WHOSE = "whose quota: give --user, --client or --ip, or one of --user-default, --client-default, --ip-default"
OF_USERS = "--produce-rate, --fetch-rate, --request-rate, --mutation-rate"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["create", "--produce-rate", "1"], WHOSE),
        (["delete", "--all"], WHOSE),
        (["create", "--user=a"], f"users/a: which quota: expected {OF_USERS}"),
        (["delete", "--user=a"], f"users/a: which quota: expected {OF_USERS}"),
        (["create", "--user=a", "--connection-rate=1"], f"users/a: which quota: expected {OF_USERS}"),
        (["create", "--ip=10.0.0.1", "--fetch-rate=1"], "ips/10.0.0.1: which quota: expected --connection-rate"),
        (["create", "--ip=a/b", "--connection-rate=1"], "--ip: 'a/b' is no address or host name"),
        (["create", "--ip=a", "--user=b", "--fetch-rate=1"], "--ip: an ip stands alone, without user and client"),
        (["create", "--user=a", "--user-default", "--fetch-rate=1"], "users/a and users/<default>: name one of them"),
        (["delete", "--user=a", "--user-default", "--fetch-rate"], "users/a and users/<default>: name one of them"),
        (["create", "--user=<default>", "--fetch-rate=1"],
         "users/%3Cdefault%3E: no name is <default>; the default has its own option, see --help"),
        (["create", "--user=a", "--client=", "--fetch-rate=1"],
         "users/a/clients/: a name cannot be empty; the default has its own option, see --help"),
        (["create", "--client=\udcff", "--fetch-rate=1"],
         "client-id '\\udcff': not UTF-8, as every name on the wire is"),
        (["delete", "--client=\udcff", "--fetch-rate"],
         "client-id '\\udcff': not UTF-8, as every name on the wire is"),
        (["delete", "--user=a", "--all", "--fetch-rate"],
         "--all removes every quota: leave out the options of single ones, or --all"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_wrong_command_is_one_line_and_changes_nothing(
    arguments: list[str], problem: str, cluster: KfkCluster
) -> None:
    assert kfk(*arguments) == (1, "", f"kquota: {problem}\n")
    assert cluster.altered == []


@pytest.mark.parametrize("value", ["many", "nan", "inf", ""])
def test_a_rate_is_a_number(value: str) -> None:
    with pytest.raises(SystemExit) as ended:
        kfk("create", "--user=a", f"--produce-rate={value}")
    assert ended.value.code == 2


def test_an_empty_name_of_a_context_is_not_the_one_in_use(cluster: KfkCluster) -> None:
    """`--kafka "$UNSET"` of a script."""
    run("context", "use", "cp-demo")
    assert run("kfk", "delete", "--user=alice", "--all", "--dry-run")[0] == 0
    wrong = "kquota: which cluster: give --kafka CONTEXT or --config FILE; kquota context add saves one\n"
    assert run("kfk", "delete", "--kafka", "", "--user=alice", "--all") == (1, "", wrong)
    assert cluster.altered == []


@pytest.mark.parametrize(
    ("arguments", "rate"),
    [(["create", "--connection-rate=6"], 6.0), (["delete", "--connection-rate"], None), (["delete", "--all"], None)],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_an_address_in_another_spelling_is_altered_where_it_is(
    arguments: list[str], rate: float | None, cluster: KfkCluster
) -> None:
    there = IpEntity("0:0:0:0:0:0:0:1")
    cluster.quotas = {there: {CONNECTIONS: 5.0}}
    assert kfk(*arguments, "--ip=::1")[0] == 0
    assert cluster.altered == [(there, {CONNECTIONS: rate})]
