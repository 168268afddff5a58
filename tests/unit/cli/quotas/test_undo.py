"""After a change, `kquota` prints the command that undoes it exactly: run by the real parser, it brings back all."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.cli.quotas.undo import FOLDER, MOST_CHARACTERS, prepared_undo
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.shell_words import shell_line
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaEdit, QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from tests.support.clock import set_clock
from tests.support.programs.command_output import run
from tests.support.quotas.in_memory_cluster_quotas import InMemoryClusterQuotas
from tests.support.quotas.opened_clusters import opens

_SETTINGS = settings(deadline=None, print_blob=True)
PRODUCE, FETCH, REQUEST, MUTATION = QuotaKey
CONNECTION = IpQuotaKey.CONNECTION_CREATION_RATE
HOSTILE = "-x'; rm -rf ~ #\x1b[31m\u202e\n$(id) \\ "
QUOTAS: QuotaSet = {
    Entity("bob"): {PRODUCE: 200_000.0, REQUEST: 12.345678901234567},
    Entity("alice", "etl"): {FETCH: 3e5},
    Entity("alice", DEFAULT): {FETCH: 2e5},
    Entity(HOSTILE): {PRODUCE: 1e6},
    Entity("a,client-id=b"): {PRODUCE: 1e6},
    Entity("u" * 120): {PRODUCE: 7.0},
    Entity(DEFAULT): {PRODUCE: 9_007_199_254_740_993.0},
    IpEntity("10.0.0.1"): {CONNECTION: 20.0},
}
AT = ["--bootstrap-server", "broker1:9092"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[InMemoryClusterQuotas]:
    found = InMemoryClusterQuotas(QUOTAS)

    set_clock(monkeypatch, lambda: 1_764_195_247_123)
    monkeypatch.setenv("KQUOTA_CONTEXTS", str(tmp_path / "contexts.yaml"))
    monkeypatch.chdir(tmp_path)
    with opens(found):
        yield found


def words_of(line: str) -> list[str]:
    """The words that bash makes of a line."""
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


def undone(line: str) -> None:
    """Run the command of an undo line, as bash splits it, and agree."""
    assert len(line) <= MOST_CHARACTERS
    assert terminal_text(line) == line
    words = words_of(line.removeprefix("undo: "))
    if words[0] == "sh":
        words = words_of(Path(words[1]).read_text(encoding="utf-8").rstrip("\n"))
    assert words[0] == "kquota"
    code, _, err = run(*words[1:], "--yes")
    assert code == 0, err


def last_line(*arguments: str) -> str:
    code, out, err = run(*arguments)
    assert code == 0, err
    return out.splitlines()[-1]


@pytest.mark.parametrize(
    ("whose", "values", "line"),
    [
        (
            ["--user", "bob"],
            ["--add", "producer_byte_rate=2MB/s"],
            "undo: kquota alter --bootstrap-server broker1:9092 --user bob --add producer_byte_rate=200000",
        ),
        (
            ["--user", "bob"],
            ["--add", "consumer_byte_rate=5"],  # was not there
            "undo: kquota alter --bootstrap-server broker1:9092 --user bob --delete consumer_byte_rate",
        ),
        (
            ["--user", "bob"],
            ["--add", "consumer_byte_rate=5", "--delete", "request_percentage,producer_byte_rate"],
            "undo: sh .kquota/undo/1764195247123.sh",  # its command has 172 characters
        ),
        (
            ["--user", "nobody", "--client-defaults"],
            ["--add", "consumer_byte_rate=5"],
            (
                "undo: kquota alter --bootstrap-server broker1:9092 --user nobody --client-defaults --delete "
                "consumer_byte_rate"
            ),
        ),
        (
            ["--user-defaults"],
            ["--delete", "producer_byte_rate"],
            (
                "undo: kquota alter --bootstrap-server broker1:9092 --user-defaults --add "
                "producer_byte_rate=9007199254740992"  # the double nearest to 9007199254740993
            ),
        ),
        (
            ["--ip", "10.0.0.1"],
            ["--delete", "connection_creation_rate"],
            (
                "undo: kquota alter --bootstrap-server broker1:9092 --ip 10.0.0.1 --add "
                "connection_creation_rate=20"
            ),
        ),
        (
            ["--user", "a,client-id=b"],
            ["--add", "producer_byte_rate=1"],
            (
                "undo: kquota alter --bootstrap-server broker1:9092 --user a,client-id=b --add "
                "producer_byte_rate=1000000"
            ),
        ),
        (["--user", "u" * 120], ["--add", "producer_byte_rate=8"], "undo: sh .kquota/undo/1764195247123.sh"),
        ([f"--user={HOSTILE}"], ["--add", "producer_byte_rate=8"], "undo: sh .kquota/undo/1764195247123.sh"),
    ],
)
def test_the_undo_of_alter_brings_back_the_very_quotas(
    whose: list[str], values: list[str], line: str, cluster: InMemoryClusterQuotas
) -> None:
    found = last_line("alter", *whose, *values, *AT, "--yes")
    assert found == line
    assert cluster.quotas != QUOTAS
    undone(found)
    assert cluster.quotas == QUOTAS


def test_a_hostile_name_is_quoted_so_that_bash_reads_the_very_name(cluster: InMemoryClusterQuotas) -> None:
    name = "-'\x1b\u202e\n$(id)\\"
    line = last_line("alter", f"--user={name}", "--add", "producer_byte_rate=8", AT[0], "b:9092", "--yes")
    assert line == (
        "undo: kquota alter --bootstrap-server b:9092 $'--user=-\\'\\x1b\\xe2\\x80\\xae\\x0a$(id)\\\\' "
        "--delete producer_byte_rate"
    )
    assert Entity(name) in cluster.quotas
    undone(line)
    assert cluster.quotas == QUOTAS


@_SETTINGS
@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=9), min_size=1))
def test_bash_splits_a_line_into_the_very_words(words: list[str]) -> None:
    line = shell_line(words)
    assert words_of(line) == words
    assert terminal_text(line) == line


def test_a_change_of_several_is_undone_by_a_file_of_all_quotas_of_before(
    cluster: InMemoryClusterQuotas, tmp_path: Path
) -> None:
    (tmp_path / "new.yaml").write_text(
        "- {user: bob, type: producer_byte_rate, value: 1MB/s}\n"
        "- {user: carol, type: producer_byte_rate, value: 1MB/s}\n"
    )
    line = last_line("import", "new.yaml", *AT, "--yes")
    file = ".kquota/undo/1764195247123.yaml"
    assert line == f"undo: kquota import {file} --replace --bootstrap-server broker1:9092"
    assert cluster.quotas[Entity("carol")] == {PRODUCE: 1e6}
    undone(line)
    assert cluster.quotas == QUOTAS


def test_the_first_import_of_a_cluster_is_undone_too(cluster: InMemoryClusterQuotas, tmp_path: Path) -> None:
    cluster.quotas.clear()
    (tmp_path / "new.yaml").write_text(
        "- {user: bob, type: producer_byte_rate, value: 1}\n- {user: carol, type: producer_byte_rate, value: 1}\n"
    )
    brokers = ["--bootstrap-server", "broker1.example.org:9092,broker2.example.org:9092"]
    line = last_line("import", "new.yaml", *brokers, "--yes")
    assert line == "undo: sh .kquota/undo/1764195247123.sh"
    assert Path(".kquota/undo/1764195247123.sh").read_text(encoding="utf-8") == (
        "kquota import .kquota/undo/1764195247123.yaml --replace --allow-empty --format declared "
        "--bootstrap-server broker1.example.org:9092,broker2.example.org:9092\n"
    )
    undone(line)
    assert cluster.quotas == {}


def test_an_import_that_changes_one_entity_is_undone_by_alter(
    cluster: InMemoryClusterQuotas, tmp_path: Path
) -> None:
    (tmp_path / "new.yaml").write_text("- {user: bob, type: producer_byte_rate, value: 1MB/s}\n")
    line = last_line("import", "new.yaml", *AT, "--yes")
    assert line.endswith(" --user bob --add producer_byte_rate=200000")
    undone(line)
    assert cluster.quotas == QUOTAS


def test_without_a_change_there_is_no_undo_and_no_file(
    cluster: InMemoryClusterQuotas, tmp_path: Path
) -> None:
    bob = ["alter", "--user", "bob", *AT, "--add"]
    for arguments in (
        [*bob, "producer_byte_rate=200kB/s", "--yes"],
        [*bob, "producer_byte_rate=1", "--dry-run"],
    ):
        assert "undo" not in run(*arguments)[1]
    cluster.refusals = {Entity("u" * 120): "no"}
    assert run("alter", "--user", "u" * 120, "--add", "producer_byte_rate=1", *AT, "--yes")[0] == 1
    assert list((tmp_path / FOLDER).glob("*")) == []


def test_json_has_the_undo_in_its_envelope(cluster: InMemoryClusterQuotas) -> None:
    arguments = ["alter", "--user", "bob", "--add", "producer_byte_rate=1", *AT, "--yes", "--output"]
    answer = json.loads(run(*arguments, "json")[1])
    undone(answer["undo"])
    assert cluster.quotas == QUOTAS
    out, err = run(*arguments, "csv")[1:]
    assert ("undo" in out, err) == (False, f"{answer['undo']}\n")


def test_the_undo_names_the_context_that_was_in_use(cluster: InMemoryClusterQuotas, tmp_path: Path) -> None:
    contexts = "contexts:\n  prod: {bootstrap_server: 'a:9092'}\nin_use: prod\n"
    (tmp_path / "contexts.yaml").write_text(contexts)
    line = last_line("alter", "--user", "bob", "--add", "producer_byte_rate=1", "--yes")
    assert line == "undo: kquota alter --context prod --user bob --add producer_byte_rate=200000"
    # kfk prints it for a person: on a terminal, or in another form than that of kfk-quotas.
    create = ["kfk", "create", "--user", "bob", "--produce-rate", "2"]
    assert run(*create) == (0, "", "")
    assert last_line(*create[:-1], "3", "--output", "table") == line.replace("200000", "2")


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (
            QuotaEdit(Entity("a"), PRODUCE, 1.5, 2.0),
            "users/a producer_byte_rate 1.5: expected a whole number",
        ),
        (QuotaEdit(Entity("<default>"), PRODUCE, 1.0, None), "a quota file has no way to write the name"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_what_no_command_brings_back_is_said(edit: QuotaEdit, reason: str) -> None:
    assert edit.before is not None
    before: dict[AnyEntity, dict[AnyKey, float]] = {edit.entity: {edit.key: edit.before}}
    undo = prepared_undo([edit], before, AT)
    assert undo.line.startswith("no undo: ") and reason in undo.line
    assert undo.files == ()
