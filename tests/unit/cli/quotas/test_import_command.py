"""`kquota import`: in place, nothing twice, nothing without being asked, and every refusal in the cluster's words."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from kquota_spark.enforce.ports import Change, Cluster, Held, Outcome, Written
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from tests.support.clock import set_clock
from tests.support.programs.command_output import run
from tests.support.quotas.in_memory_cluster_quotas import InMemoryClusterQuotas
from tests.support.quotas.opened_clusters import opens, save_settings

PRODUCE, FETCH, REQUEST, _ = QuotaKey
CONNECTIONS = IpQuotaKey.CONNECTION_CREATION_RATE
ALICE, BOB, CAROL = Entity("alice"), Entity("bob"), Entity("carol")
FILE = """\
Quota configs for user-principal 'alice' are producer_byte_rate=2000.0
Quota configs for user-principal 'bob' are producer_byte_rate=500.0, consumer_byte_rate=7.0
Quota configs for the default client-id are request_percentage=12.5
"""
Use = Callable[[Cluster], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Use]:
    """Makes commands work on this cluster."""
    monkeypatch.chdir(tmp_path)
    set_clock(monkeypatch, lambda: 1_764_195_247_123)

    save_settings(tmp_path)
    with ExitStack() as stack:

        def use_it(cluster: Cluster) -> None:
            stack.enter_context(opens(cluster))

        yield use_it


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "quotas.txt"
    path.write_text(FILE)
    return str(path)


@pytest.fixture
def cluster(use: Use) -> InMemoryClusterQuotas:
    found = InMemoryClusterQuotas(
        {
            ALICE: {PRODUCE: 1000.0, FETCH: 5.0},
            BOB: {PRODUCE: 1000.0},
            CAROL: {PRODUCE: 3.0},
            Entity(None, DEFAULT): {REQUEST: 12.5},
        }
    )
    use(found)
    return found


def test_what_the_file_does_not_name_stays_and_nothing_is_done_twice(
    cluster: InMemoryClusterQuotas, file: str
) -> None:
    code, out, err = run("import", file, "--yes")
    assert (code, err) == (0, "format: kafka-configs, guessed; --format names another\n")
    assert (
        out
        == """\
entity       key                 before  after  change   status
users/alice  producer_byte_rate   1,000  2,000  raised   applied
users/bob    consumer_byte_rate       -      7  set      applied
users/bob    producer_byte_rate   1,000    500  lowered  applied
entities: 2 applied, 1 unchanged (a cluster in memory)
undo: kquota import .kquota/undo/1764195247123.yaml --replace --config conf/kquota.yaml
"""
    )
    assert cluster.altered == [(ALICE, {PRODUCE: 2000.0}), (BOB, {FETCH: 7.0, PRODUCE: 500.0})]
    assert cluster.quotas[ALICE] == {PRODUCE: 2000.0, FETCH: 5.0}
    assert cluster.quotas[CAROL] == {PRODUCE: 3.0}
    code, out, _ = run("import", file)
    assert (code, out) == (0, "nothing to change: 3 as wanted (a cluster in memory)\n")
    assert len(cluster.altered) == 2


def test_replacing_removes_the_rest_after_everything_else_is_set(
    cluster: InMemoryClusterQuotas, file: str
) -> None:
    code, out, _ = run("import", file, "--replace", "--yes", "--output", "json")
    answer = json.loads(out)
    assert code == 0
    assert (answer["command"], answer["cluster"], answer["unchanged"]) == (
        "kquota import",
        "a cluster in memory",
        1,
    )
    assert [
        (row["entity"], row["key"], row["before"], row["after"], row["change"]) for row in answer["rows"]
    ] == [
        ("users/alice", "consumer_byte_rate", 5.0, None, "removed"),
        ("users/alice", "producer_byte_rate", 1000.0, 2000.0, "raised"),
        ("users/bob", "consumer_byte_rate", None, 7.0, "set"),
        ("users/bob", "producer_byte_rate", 1000.0, 500.0, "lowered"),
        ("users/carol", "producer_byte_rate", 3.0, None, "removed"),
    ]
    assert cluster.quotas == {
        ALICE: {PRODUCE: 2000.0},
        BOB: {PRODUCE: 500.0, FETCH: 7.0},
        Entity(None, DEFAULT): {REQUEST: 12.5},
    }


def test_entities_that_only_lose_values_come_last(use: Use, file: str) -> None:
    cluster = InMemoryClusterQuotas({Entity("a", "b"): {PRODUCE: 1.0}})
    use(cluster)
    assert run("import", file, "--replace", "--yes")[0] == 0
    assert [entity for entity, _ in cluster.altered] == [ALICE, BOB, Entity(None, DEFAULT), Entity("a", "b")]


def test_a_file_without_quotas_does_not_replace_all(cluster: InMemoryClusterQuotas, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text('{"quotas": []}')
    code, _, err = run("import", str(tmp_path / "empty.json"), "--replace", "--yes")
    assert code == 1
    assert "no quotas in it, and --replace would remove all" in err
    assert cluster.altered == []


def test_a_dry_run_asks_the_cluster_and_changes_nothing(use: Use, file: str) -> None:
    cluster = InMemoryClusterQuotas({}, refusals={BOB: "Unable to resolve \x1b[31mhost"})
    use(cluster)
    code, out, _ = run("import", file, "--dry-run")
    assert code == 1, "bob would be refused"
    assert (
        out
        == """\
entity             key                 before  after  change  status
users/alice        producer_byte_rate       -  2,000  set     would be applied
users/bob          consumer_byte_rate       -      7  set     refused
users/bob          producer_byte_rate       -    500  set     refused
clients/<default>  request_percentage       -   12.5  set     would be applied
users/bob: refused: Unable to resolve \\x1b[31mhost
entities: 2 would be applied, 1 refused (a cluster in memory)
"""
    )
    assert cluster.altered == []


def test_a_refusal_does_not_stop_the_others(use: Use, file: str) -> None:
    cluster = InMemoryClusterQuotas({}, refusals={ALICE: "no"})
    use(cluster)
    code, out, _ = run("import", file, "--yes", "--output", "csv")
    assert code == 1
    assert [line.split(",")[-2:] for line in out.splitlines()[1:]] == [
        ["refused", "no"], ["applied", ""], ["applied", ""], ["applied", ""],
    ]  # fmt: skip
    assert cluster.quotas.keys() == {BOB, Entity(None, DEFAULT)}


class Falling(InMemoryClusterQuotas):
    """A cluster that stops answering at bob."""

    def write(self, change: Change, expect: Held | None = None, fence: int | None = None) -> Written:
        if change.entity == BOB:
            return Written(Outcome.UNKNOWN, "no answer; whether users/bob was altered is not known")
        return super().write(change, expect, fence)


def test_after_no_answer_the_rest_is_not_tried_and_that_is_told(use: Use, file: str) -> None:
    use(Falling())
    code, out, _ = run("import", file, "--yes")
    assert code == 1
    assert out.endswith(
        "users/bob: failed: no answer; whether users/bob was altered is not known\n"
        "entities: 1 applied, 1 failed, 1 not tried (a cluster in memory)\n"
        "undo: kquota import .kquota/undo/1764195247123.yaml --replace --allow-empty --format declared "
        "--config conf/kquota.yaml\n"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "code"), [("y\n", 0), ("Yes\n", 0), ("n\n", 4), ("\n", 4), ("", 4), ("yep\n", 4)]
)
def test_on_a_terminal_it_asks_and_only_yes_is_yes(
    cluster: InMemoryClusterQuotas, file: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    found, out, err = run("import", file)
    assert found == code
    assert bool(cluster.altered) == (code == 0)
    assert err.endswith("nothing was changed\n") == (code == 4)
    assert "Change 2 entities of a cluster in memory? [y/N] " in err
    assert "to be changed: 2 entities; values: 1 set, 1 raised, 1 lowered (a cluster in memory)" in out


def test_the_answer_in_json_is_one_document_though_it_asks(
    cluster: InMemoryClusterQuotas, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    code, out, err = run("import", file, "--output", "json")
    assert code == 0
    assert {row["status"] for row in json.loads(out)["rows"]} == {"applied"}
    assert "users/alice  producer_byte_rate   1,000  2,000  raised   planned" in err


def test_without_a_terminal_it_shows_and_nothing_is_done(
    cluster: InMemoryClusterQuotas, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, out, err = run("import", file)
    assert (code, "planned" in out) == (4, True)
    assert err.endswith("kquota: there is no terminal to ask on; add --yes to do it\nnothing was changed\n")
    assert cluster.altered == []


def test_a_wrong_file_is_told_line_by_line_and_the_cluster_is_not_even_asked(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text(FILE + "?\n\x1b[31m\n")
    code, out, err = run(
        "import", str(tmp_path / "bad"), "--format", "kafka-configs", "--zookeeper", "nowhere:1"
    )
    lines = err.splitlines()
    assert (code, out, len(lines)) == (1, "", 2)
    assert lines[0].startswith(f"kquota: {tmp_path}/bad: line 4: expected a sentence")
    (tmp_path / "latin").write_bytes(b"\xff")
    assert "not UTF-8 at byte 0" in run("import", str(tmp_path / "latin"))[2]
    assert "No such file" in run("import", str(tmp_path / "none"))[2]


def test_a_format_that_cannot_be_guessed_is_wrong_usage(
    cluster: InMemoryClusterQuotas, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").write_text("hello")
    with pytest.raises(SystemExit) as ended:
        main(["import", str(tmp_path / "x")])
    assert ended.value.code == 2
    assert (
        f"{tmp_path}/x: --format cannot be guessed, no format is like it; expected one of declared, kfk"
        in capsys.readouterr().err
    )


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n")
    assert run("import", str(tmp_path / "empty.txt"), "--zookeeper", "nowhere:1") == (
        1,
        "",
        f"kquota: {tmp_path}/empty.txt: an empty file, expected quotas; name the --format if it means none\n",
    )


def test_standard_input_is_a_file_too(
    cluster: InMemoryClusterQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(FILE.encode())))
    assert run("import", "-", "--yes")[0] == 0
    assert cluster.quotas[ALICE][PRODUCE] == 2000.0


def test_another_spelling_of_an_address_is_that_address(use: Use, tmp_path: Path) -> None:
    cluster = InMemoryClusterQuotas({IpEntity("::1"): {CONNECTIONS: 5.0}})
    use(cluster)
    path = tmp_path / "x"
    path.write_text("Quota configs for ip '0:0:0:0:0:0:0:1' are connection_creation_rate=6.0\n")
    assert run("import", str(path), "--replace", "--yes")[0] == 0
    assert cluster.altered == [(IpEntity("::1"), {CONNECTIONS: 6.0})]
    path.write_text(f"{path.read_text()}{path.read_text().replace('0:0:0:0:0:0:0:1', '0::1')}")
    assert "ips/0::1 and another spelling of it are one address" in run("import", str(path), "--yes")[2]


def test_of_our_own_file_what_holds_now_is_set(cluster: InMemoryClusterQuotas, tmp_path: Path) -> None:
    year_2200_ms = 7_258_118_400_000
    (tmp_path / "quotas.yaml").write_text(
        f"- {{user: alice, type: producer_byte_rate, value: 7, to_ms: {year_2200_ms}}}\n"
        f"- {{user: alice, type: producer_byte_rate, value: 8, from_ms: {year_2200_ms}}}\n"
        "- {user: bob, type: producer_byte_rate, value: 9, to_ms: 1000}\n"
    )
    assert run("import", str(tmp_path / "quotas.yaml"), "--yes")[0] == 0
    assert cluster.altered == [(ALICE, {PRODUCE: 7.0})]
