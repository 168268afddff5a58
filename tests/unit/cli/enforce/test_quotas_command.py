"""`kquota lift` shows before it acts, reports the outcome of each quota, and fails where not all is as asked."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kquota_spark.cli.exit_codes import NOTHING
from kquota_spark.cli.main import main
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.in_memory import (
    InMemoryLease,
    InMemoryLeases,
    InMemoryLedger,
    InMemorySwitch,
    MemoryCluster,
    Nodes,
)
from kquota_spark.enforce.log_state import LogState
from kquota_spark.enforce.ports import Frozen
from kquota_spark.enforcement.assembly import Edges
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.quotas.sources import QuotaHistory

HOSTILE = Entity("\x1b[2Jmallory\u202e" + "x" * 80)
NODES: Nodes = {
    "users/alice": {"producer_byte_rate": "1000000", "request_percentage": "12.5"},
    "clients/<default>": {"consumer_byte_rate": "2500000"},
}
YES = ["--yes", "--reason", "incident 7"]


@dataclass
class Cluster:
    """What the command acts on, in memory."""

    nodes: Nodes = field(default_factory=lambda: {path: dict(keys) for path, keys in NODES.items()})
    leases: InMemoryLeases = field(default_factory=InMemoryLeases)
    ledger: InMemoryLedger = field(default_factory=InMemoryLedger)
    switch: InMemorySwitch = field(default_factory=InMemorySwitch)

    @contextmanager
    def edges(self, _: Settings) -> Iterator[Edges]:
        target, lease = MemoryCluster(self.leases, self.nodes), InMemoryLease(self.leases, "us")
        yield Edges(target, lease, self.switch, self.ledger)
        lease.release()

    def history(self, _: Settings) -> QuotaHistory:
        edits = [
            QuotaChange(Entity.parse(path), QuotaKey(key), float(text), None, 0, 1)
            for path, keys in self.nodes.items()
            for key, text in keys.items()
        ]
        return QuotaHistory("memory", RuleBook(rule_periods(edits)), problems=("users/%zz: malformed",))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    found = Cluster()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setattr("kquota_spark.enforcement.assembly.enforcement_edges", found.edges)
    monkeypatch.setattr("kquota_spark.quotas.sources.from_cluster", found.history)
    monkeypatch.setattr("kquota_spark.enforcement.edges.log.EnforcementLog", lambda _: found.ledger)
    return found


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code, and what went to standard output."""
    code = main(["lift", *arguments])
    return code, capsys.readouterr().out


def test_without_yes_it_only_shows(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys)
    assert (code, cluster.nodes, cluster.ledger.entries()) == (NOTHING, NODES, [])
    assert out.splitlines() == [
        "entity             key                   before    after",
        "clients/<default>  consumer_byte_rate  2.5 MB/s  not set  lift",
        "users/alice        producer_byte_rate  1.0 MB/s  not set  lift",
        "users/alice        request_percentage    12.5 %  not set  lift",
        "nothing was changed; add --yes to do it",
    ]


def test_off_and_on_again(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, *YES)
    assert (code, out.count("lifted\n")) == (0, 3)
    assert "3 quotas lifted; kquota lift --end puts them back\nour own enforcement continues" in out
    code, out = run(capsys, "--end")
    assert (code, out.count("  restore\n")) == (NOTHING, 3)
    assert cluster.nodes == {"users/alice": {}, "clients/<default>": {}}
    code, out = run(capsys, "--end", "--yes")
    assert (code, cluster.nodes) == (0, NODES)
    assert out.endswith("3 quotas put back as before\n")
    assert run(capsys, "--end", "--yes") == (NOTHING, "nothing is lifted\n")


def test_a_second_time_there_is_nothing_to_do(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.switch.freeze(Frozen(1, "ann", "r"))
    assert "our own enforcement" not in run(capsys, *YES)[1]
    rows = len(cluster.ledger.entries())
    assert run(capsys, *YES) == (NOTHING, "nothing to lift\n")
    assert run(capsys) == (NOTHING, "nothing to lift\n")
    assert len(cluster.ledger.entries()) == rows


def test_what_was_set_meanwhile_stays_and_is_told(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, *YES)
    cluster.nodes["users/alice"]["producer_byte_rate"] = "42"
    code, out = run(capsys, *YES)
    assert (code, "set again since it was lifted: stays" in out) == (NOTHING, True)
    code, out = run(capsys, "--end", "--output", "json")
    assert (code, len(json.loads(out)["rows"])) == (1, 3)
    code, out = run(capsys, "--end", "--yes", "--output", "json")
    superseded = [row for row in json.loads(out)["rows"] if row["status"] != "restored"]
    assert (code, superseded) == (
        1,
        [{
            "entity": "users/alice", "key": "producer_byte_rate", "before": 42.0, "after": 42.0,
            "status": "somebody else set it meanwhile: stays", "detail": "somebody else has set it",
        }],
    )  # fmt: skip
    assert cluster.nodes["users/alice"]["producer_byte_rate"] == "42"


def test_enable_names_whom_it_skipped_and_counts_who_is_left(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, *YES)
    cluster.nodes["users/alice"]["producer_byte_rate"] = "42"
    code, out = run(capsys, "--end", "--user", "alice", "--yes")
    assert code == 1
    assert out.splitlines()[-3:] == [
        "1 quota put back as before",
        "skipped: users/alice producer_byte_rate: somebody else set it meanwhile: stays",
        "1 quota of others stay lifted: kquota lift --end without a name",
    ]


@pytest.mark.parametrize(
    ("whose", "lifted"),
    [
        (["--user", "alice"], 2),
        (["--client-default"], 1),
        (["--user-default"], 0),
        (["--client-id", "<default>"], 0),
        (["--user", "alice", "--client-default"], 0),
    ],
)
def test_whose_quotas_are_meant(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], whose: list[str], lifted: int
) -> None:
    assert run(capsys, *whose, *YES)[0] == (0 if lifted else NOTHING)
    assert sum(map(len, NODES.values())) - sum(map(len, cluster.nodes.values())) == lifted
    status = json.loads(run(capsys, "--list", *whose, "--output", "json")[1])["rows"]
    assert [(row["actor"], row["reason"], row["is_in_doubt"]) for row in status] == [
        ("ann", "incident 7", False)
    ] * lifted


def test_a_name_that_a_client_chose_stays_within_its_column(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.nodes[str(HOSTILE)] = {"request_percentage": "1"}
    shown = run(capsys)[1] + run(capsys, *YES)[1] + run(capsys, "--list")[1]
    assert "\x1b" not in shown and "\u202e" not in shown
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize("reason", [[], ["--reason", " "], ["--reason", "x" * 501]])
def test_nobody_lifts_without_a_reason(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], reason: list[str]
) -> None:
    assert main(["lift", "--yes", *reason]) == 1
    assert capsys.readouterr().err == "kquota: --reason: expected 1 to 500 characters: others will ask why\n"
    assert cluster.nodes == NODES


def test_a_lost_lease_ends_it_in_one_line(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kquota_spark.enforcement.assembly.taken_lease", lambda *_: cluster.leases.take("us"))
    original = MemoryCluster.read

    def overtaken(target: MemoryCluster, quotas: list[Quota]) -> object:
        cluster.leases.take("them")
        return original(target, quotas)

    monkeypatch.setattr(MemoryCluster, "read", overtaken)
    assert main(["lift", *YES]) == 1
    assert "kquota: another enforcer has taken the lease meanwhile: nothing more was sent; run it again" in (
        capsys.readouterr().err
    )
    assert cluster.nodes == NODES


def test_what_is_no_quota_is_named(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lift"])
    assert capsys.readouterr().err == "not read as quotas, and left as it is: users/%zz: malformed\n"


def test_an_enforcer_finds_lifted_quotas_on_top_of_its_own_changes(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, *YES)
    state = LogState.of(cluster.ledger.entries())
    live = {quota: [step.proposal.after for step in steps] for quota, steps in state.live.items()}
    assert live == {Quota(Entity.parse(path), QuotaKey(key)): [None] for path in NODES for key in NODES[path]}
    assert (state.in_doubt(), state.expired(10**15)) == ([], [])
    run(capsys, "--end", "--yes")
    assert not any(LogState.of(cluster.ledger.entries()).live.values())


@pytest.mark.parametrize(
    ("whose", "words"),
    [
        ([], ""),
        (["--user", "alice"], "--user=alice "),
        (["--user=-a'\x1b"], "$'--user=-a\\'\\x1b' "),
        (["--client-default"], "--client-default "),
        (["--user", "alice", "--client-id", "etl"], "--user=alice --client-id=etl "),
    ],
)
def test_the_undo_of_a_lift_is_its_end(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], whose: list[str], words: str
) -> None:
    cluster.nodes |= {"users/-a%27%1B": {"producer_byte_rate": "5"}}
    cluster.nodes |= {"users/alice/clients/etl": {"producer_byte_rate": "6"}}
    before = {path: dict(keys) for path, keys in cluster.nodes.items()}
    code, out = run(capsys, *whose, *YES)
    undo = out.splitlines()[-1]
    assert (code, undo) == (0, f"undo: kquota lift --end {words}--yes")
    assert cluster.nodes != before
    command = f"printf '%s\\0' {undo.removeprefix('undo: ')}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    assert main(done.stdout.decode().split("\0")[1:-1]) == 0
    assert cluster.nodes == before


def test_a_second_lift_has_no_undo_of_its_own(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "--user", "alice", *YES)
    assert run(capsys, *YES)[1].splitlines()[-1] == (
        "no undo of this alone: kquota lift --end puts back 2 quotas lifted earlier, too"
    )


def test_the_old_names_do_the_same(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quotas", "disable", *YES]) == 0
    assert cluster.nodes == {"users/alice": {}, "clients/<default>": {}}
    capsys.readouterr()
    assert main(["quotas", "status"]) == 0
    old = capsys.readouterr().out
    assert run(capsys, "--list") == (0, old)
    assert old.endswith("3 quotas lifted; kquota lift --end puts them back\n")
    assert main(["quotas", "enable", "--yes"]) == 0
    assert cluster.nodes == NODES


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--end", "--reason", "r"], "--reason: not with --end"),
        (["--list", "--yes"], "--yes: not with --list"),
        (["--list", "--ticket", "T-1"], "--ticket: not with --list"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_an_option_that_would_do_nothing_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["lift", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[0] == f"kquota lift: {problem}"
