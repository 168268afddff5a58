"""`kquota export`: every quota is in the file, or nothing is written and it is said which are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from kquota_spark.cli.main import parser as command_line
from kquota_spark.formats.exchange import NAMES
from kquota_spark.formats.exchange.registry import FORMATS
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from tests.support.programs.command_output import run, shown
from tests.support.quotas.in_memory_cluster_quotas import InMemoryClusterQuotas
from tests.support.quotas.opened_clusters import opens, save_settings
from tests.support.quotas.terraform_shows import terraform_shows
from tests.support.tables.table_rows import T0_MS, second, source, write_table

PRODUCE, FETCH, REQUEST, _ = QuotaKey
QUOTAS: QuotaSet = {
    Entity("alice", "etl"): {PRODUCE: 1_048_576.0},
    Entity("alice"): {PRODUCE: 2_000_000.0, REQUEST: 25.0},
    Entity("o'neil\x1b[31m", DEFAULT): {FETCH: 7.0},
    IpEntity("10.0.0.1"): {IpQuotaKey.CONNECTION_CREATION_RATE: 5.0},
}


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[InMemoryClusterQuotas]:
    found = InMemoryClusterQuotas(QUOTAS)

    monkeypatch.chdir(tmp_path)
    save_settings(tmp_path)
    with opens(found):
        yield found


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name not in ("strimzi", "terraform", "kafka-configs-commands")]
)
def test_what_is_exported_can_be_imported(name: str, tmp_path: Path) -> None:
    code, out, err = run("export", "--format", name)
    assert (code, err) == (0, "")
    assert FORMATS[name].read(out) == QUOTAS
    code, out, err = run("export", "--format", name, "--to", str(tmp_path / "f"))
    assert (code, out) == (0, "")
    assert err == f"4 entities, 5 values of a cluster in memory in {tmp_path}/f ({name})\n"
    assert FORMATS[name].read((tmp_path / "f").read_bytes().decode()) == QUOTAS


def test_the_format_is_ours_unless_the_suffix_says_another(tmp_path: Path) -> None:
    assert FORMATS["declared"].read(run("export")[1]) == QUOTAS
    code, _, err = run("export", "--partial", "--to", str(tmp_path / "quotas.tf"))
    assert code == 0
    assert err.splitlines()[:2] == [
        f"kquota: left out: users/{pair}: a kafka_quota has a user or a client id, no pair"
        for pair in ("alice/clients/etl", "o%27neil%1B%5B31m/clients/<default>")
    ]
    assert FORMATS["terraform"].read(terraform_shows((tmp_path / "quotas.tf").read_text())) == {
        entity: QUOTAS[entity] for entity in (Entity("alice"), IpEntity("10.0.0.1"))
    }


def test_what_a_format_cannot_say_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    old = tmp_path / "users.yaml"
    old.write_text("as before")
    code, out, err = run("export", "--format", "strimzi", "--to", str(old))
    assert (code, out, old.read_text()) == (1, "", "as before")
    only = "a KafkaUser has quotas of one named user only"
    assert err.splitlines() == [
        f"kquota: strimzi cannot say users/alice/clients/etl: {only}",
        f"kquota: strimzi cannot say users/o%27neil%1B%5B31m/clients/<default>: {only}",
        f"kquota: strimzi cannot say ips/10.0.0.1: {only}",
        "kquota: nothing was written: --partial leaves these out, other formats may say them",
    ]


def test_partly_on_demand_and_then_it_is_told_what_is_left_out() -> None:
    code, out, err = run("export", "--format", "strimzi", "--partial")
    assert code == 0
    assert FORMATS["strimzi"].read(out) == {Entity("alice"): QUOTAS[Entity("alice")]}
    assert [line.partition(": a KafkaUser")[0] for line in err.splitlines()] == [
        "kquota: left out: users/alice/clients/etl",
        "kquota: left out: users/o%27neil%1B%5B31m/clients/<default>",
        "kquota: left out: ips/10.0.0.1",
    ]


def test_each_entity_that_is_left_out_is_named(cluster: InMemoryClusterQuotas) -> None:
    cluster.quotas = {
        Entity(f"u{number:02}", "c"): {QuotaKey.PRODUCER_BYTE_RATE: 1.0} for number in range(30)
    }
    code, _, err = run("export", "--format", "strimzi", "--partial")
    named = [
        line.split()[3].rstrip(":") for line in err.splitlines() if line.startswith("kquota: left out: ")
    ]
    assert (code, named) == (0, [f"users/u{number:02}/clients/c" for number in range(30)])


def test_the_formats_are_shown_with_what_they_can_say() -> None:
    lines = shown("export", "--formats").splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(NAMES)
    says = {"strimzi": "users by name", "terraform": "all but pairs"}
    assert [line.rpartition("  ")[2] for line in lines[1:]] == [
        says.get(name, "all quotas") for name in NAMES
    ]


def test_no_quotas_are_said_to_be_none(cluster: InMemoryClusterQuotas) -> None:
    cluster.quotas.clear()
    assert run("export", "--format", "rpk") == (
        0,
        '{"quotas": [\n]}\n',
        "kquota: note: no quotas in a cluster in memory\n",
    )


def rule(entity: str, level: int | None, from_s: int, to_s: int | None, **values: float) -> dict[str, Any]:
    valid = {"valid_from": second(from_s), "valid_to": None if to_s is None else second(to_s)}
    return {"cluster_id": "demo", "level": level, "entity": entity, "version": 1, **valid, **values}


def test_the_tables_tell_of_any_moment(tmp_path: Path) -> None:
    write_table(
        tmp_path,
        "quota_rules",
        rule("users/alice", 3, 0, 10, producer_byte_rate=1.0),
        rule("users/alice", 3, 10, None, producer_byte_rate=2.0),
        rule("ips/10.0.0.1", None, 0, None, connection_creation_rate=5.0),
        rule("users/bob", 3, 0, 5),
        source(60),
    )
    for at_s, value in ((9, 1.0), (10, 2.0)):
        at = str(T0_MS + at_s * 1_000)
        code, out, err = run("export", "--tables", str(tmp_path), "--at", at, "--format", "kafka-configs")
        assert (code, err) == (0, "")
        assert out == (
            f"Quota configs for user-principal 'alice' are producer_byte_rate={value}\n"
            "Quota configs for ip '10.0.0.1' are connection_creation_rate=5.0\n"
        )
    _, _, err = run("export", "--tables", str(tmp_path), "--at", str(T0_MS + 61_000))
    assert "edits after" in err
    assert "are not known" in err


def test_a_cluster_and_the_tables_at_once_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", "--at", "1h", "--bootstrap-server", "b:9092"])
    assert ended.value.code == 2
    assert "--bootstrap-server: a cluster has only the quotas of now" in capsys.readouterr().err


def test_the_names_on_the_command_line_are_those_of_the_registry() -> None:
    assert tuple(FORMATS) == NAMES
    for command in ("import", "export"):
        assert command_line().parse_args(
            [command, *(["f"] if command == "import" else []), "--format", "kfk"]
        )
