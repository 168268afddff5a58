"""The quota commands where streams are closed, names cannot be said, and files are not what editors on Linux write."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kquota_spark.cli.chosen.cluster_choice import of_brokers
from kquota_spark.cli.exit_codes import NOTHING
from kquota_spark.cli.main import main
from kquota_spark.config.settings import Quotas
from kquota_spark.enforce.ports import Change, Outcome
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.kafka.quota_admin import Named
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.quotas.admin_cluster import admin_cluster
from tests.support.programs.command_output import run
from tests.support.quotas.in_memory_cluster_quotas import InMemoryClusterQuotas
from tests.support.quotas.opened_clusters import opens, save_settings

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
ALICE = Entity("alice")
SET = ("--name", "user=alice", "--add", "producer_byte_rate=5")


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[InMemoryClusterQuotas]:
    found = InMemoryClusterQuotas({ALICE: {PRODUCE: 7.0}, Entity("jü\x1b[31m"): {PRODUCE: 6.0}})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KQUOTA_CONTEXTS", str(tmp_path / "contexts.yaml"))
    save_settings(tmp_path)
    with opens(found):
        yield found


class Stream(io.TextIOWrapper):
    """Standard output in some encoding, of a terminal or not."""

    def __init__(self, encoding: str, *, is_terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    @property
    def text(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(self.encoding)


def test_closed_standard_input_is_nobody_to_ask(
    cluster: InMemoryClusterQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kquota alter ... <&-`, as some schedulers start programs: Python has no sys.stdin then."""
    monkeypatch.setattr("sys.stdin", None)
    assert (run("alter", *SET)[0], cluster.altered) == (NOTHING, [])
    monkeypatch.setattr("sys.stdin", None)
    assert run("import", "-", "--format", "kfk", "--yes")[0] == 1
    monkeypatch.setattr("sys.stdin", None)
    assert run("alter", *SET, "--yes")[0] == 0
    assert cluster.altered == [(ALICE, {PRODUCE: 5.0})]


def test_closed_standard_output_is_no_error(
    cluster: InMemoryClusterQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", None)
    assert main(["alter", *SET, "--yes"]) == 0
    assert cluster.altered == [(ALICE, {PRODUCE: 5.0})]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("<default>",
         "users/%3Cdefault%3E: no name is <default>; the default has its own option, see --help"),
        ("\udcff", r"user '\udcff': not UTF-8, as every name on the wire is"),
    ],
)  # fmt: skip
def test_a_name_that_nobody_has_gets_no_quota(
    name: str, problem: str, cluster: InMemoryClusterQuotas
) -> None:
    asked = ("--name", f"user={name}", "--add", "producer_byte_rate=5", "--yes")
    assert run("alter", *asked) == (1, "", f"kquota: {problem}\n")
    assert cluster.altered == []


def test_somebody_who_became_the_default_by_mistake_can_be_removed(cluster: InMemoryClusterQuotas) -> None:
    cluster.quotas = {Entity("<default>"): {PRODUCE: 5.0}, Entity(DEFAULT): {PRODUCE: 6.0}}
    assert run("alter", "--name", "user=<default>", "--delete", "producer_byte_rate", "--yes")[0] == 0
    assert cluster.quotas == {Entity(DEFAULT): {PRODUCE: 6.0}}


def test_sentences_are_escaped_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal, shown in ((True, "jü\\x1b[31m"), (False, "jü\x1b[31m")):
        out = Stream("utf-8", is_terminal=is_terminal)
        monkeypatch.setattr("sys.stdout", out)
        assert main(["describe", "--output", "kafka-configs"]) == 0
        assert f"Quota configs for user-principal '{shown}' are producer_byte_rate=6.0\n" in out.text


def test_sentences_that_the_encoding_cannot_hold_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Stream("ascii")
    monkeypatch.setattr("sys.stdout", out)
    assert main(["describe", "--output", "kafka-configs"]) == 1
    assert out.text == ""
    assert capsys.readouterr().err == (
        "kquota: standard output is in ascii, which lacks 'ü': use kquota export --to FILE\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        (
            '{"quotas": [{"entity": [{"name": "alice", "type": "user"}], "values": [{"key": "producer_byte_rate", '
            '"values": "5"}]}]}'
        ),
        "- user: alice\r\n  type: producer_byte_rate\r\n  value: 5\r\n",
        "Quota configs for user-principal 'alice' are producer_byte_rate=5.0\r\n",
    ],
)
def test_a_file_with_a_byte_order_mark_is_known_by_its_content(
    text: str, cluster: InMemoryClusterQuotas, tmp_path: Path
) -> None:
    (tmp_path / "quotas").write_text(text, encoding="utf-8-sig", newline="")
    assert run("import", "quotas", "--yes")[0] == 0
    assert cluster.altered == [(ALICE, {PRODUCE: 5.0})]


def test_a_path_that_cannot_be_looked_at_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is too long, as one below a directory of somebody else."""
    name = "x" * 300
    assert run("diff", name) == (1, "", f"kquota: {name[:200]}: cannot be read: File name too long\n")
    monkeypatch.setenv("KQUOTA_CONTEXTS", name)
    assert run("context", "list") == (
        1, "", f"kquota: {name}: cannot be read: File name too long: KQUOTA_CONTEXTS names another file of contexts\n",
    )  # fmt: skip


@pytest.mark.parametrize(("servers", "bare"), [("localhost", "localhost"), ("b:9092, c", "c")])
def test_a_server_without_a_port_is_said_before_it_is_asked(servers: str, bare: str) -> None:
    said = f"^--bootstrap-server: {bare}: no port, e.g. {bare}:9092$"
    with pytest.raises(UserError, match=said):
        of_brokers(Quotas(), servers, {}, Named("--bootstrap-server"))


def test_a_log_that_does_not_exist_is_said_before_quotas_are_read() -> None:
    assert run("replay", "/nope.log") == (
        1, "", "kquota: /nope.log: cannot be read: No such file or directory\n",
    )  # fmt: skip


def test_after_an_interrupt_it_is_told_how_far_it_came(
    cluster: InMemoryClusterQuotas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C while the second of three entities is altered."""
    refusal = cluster.refusal  # `write` asks it, too

    def interrupted(change: Change) -> str | None:
        if change.entity == Entity("b"):
            raise KeyboardInterrupt
        return refusal(change)

    monkeypatch.setattr(cluster, "refusal", interrupted)
    rules = [f"- {{user: {user}, type: producer_byte_rate, value: 5}}\n" for user in "abc"]
    (tmp_path / "quotas.yaml").write_text("".join(rules))
    out = run("import", "quotas.yaml", "--dry-run")[1]
    assert "\nusers/b: failed: interrupted\nentities: 1 would be applied, 1 failed, 1 not tried (" in out
    code, out, _ = run("import", "quotas.yaml", "--yes")
    assert (code, cluster.altered) == (1, [(Entity("a"), {PRODUCE: 5.0})])
    assert out.splitlines()[-3:-1] == [
        "users/b: failed: interrupted; whether users/b was altered is not known",
        "entities: 1 applied, 1 failed, 1 not tried (a cluster in memory)",
    ]
    assert out.splitlines()[-1].startswith("undo: kquota import .kquota/undo/")


def test_replace_removes_nothing_once_a_value_of_the_file_is_refused(
    cluster: InMemoryClusterQuotas, tmp_path: Path
) -> None:
    """The default that the file does not name is what limits alice as long as she has no limit of her own."""
    cluster.quotas = {Entity(DEFAULT): {PRODUCE: 5.0}}
    rules = [
        f"- {{user: {user}, type: producer_byte_rate, value: {value}}}\n"
        for user, value in (("a", 0), ("b", 7))
    ]
    (tmp_path / "quotas.yaml").write_text("".join(rules))
    for way in ("--dry-run", "--yes"):
        code, out, _ = run("import", "quotas.yaml", "--replace", way)
        assert (code, "1 refused, 1 not tried" in out) == (1, True)
    assert cluster.quotas == {Entity("b"): {PRODUCE: 7.0}, Entity(DEFAULT): {PRODUCE: 5.0}}


def test_a_reader_that_went_away_does_not_change_the_exit_code(tmp_path: Path) -> None:
    """`kquota drift quotas.yaml --context prod | head`: 2 is drift, whoever reads it."""
    (tmp_path / "two.yaml").write_text("- {user: a, type: producer_byte_rate, value: 5}\n")
    (tmp_path / "one.yaml").write_text("- {user: a, type: producer_byte_rate, value: 6}\n")
    ours, theirs = os.pipe()
    os.close(ours)
    asked = ["-m", "kquota_spark.cli.main", "diff", "one.yaml", "two.yaml", "--by", "text"]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    ended = subprocess.run(
        [sys.executable, *asked], stdout=theirs, stderr=subprocess.PIPE, env=environment, check=False
    )
    os.close(theirs)
    assert (ended.returncode, ended.stderr) == (2, b"")


def test_a_number_beyond_all_of_kafka_does_not_fill_the_screen() -> None:
    asked = ("--name", "user=alice", "--add", "request_percentage=1e300", "--dry-run")
    assert run("alter", *asked)[1].splitlines()[1] == (
        "users/alice  request_percentage       -  1e+300  set     would be applied"
    )


@pytest.mark.parametrize("validate_only", [True, False])
def test_of_a_dry_run_nobody_is_left_to_wonder_whether_it_altered(validate_only: bool) -> None:
    change, wonder = Change(ALICE, {PRODUCE: 5.0}), "whether users/alice was altered is not known"
    with admin_cluster("127.0.0.1:1", {}, timeout_ms=100, named=Named()) as brokers:
        if validate_only:
            with pytest.raises(UnreachableError) as raised:
                brokers.refusal(change)
            assert wonder not in str(raised.value)
        else:
            outcome, detail = brokers.write(change)
            assert (outcome, wonder in detail) == (Outcome.UNKNOWN, True)
