"""The looks of the job, one after the other: what it sends, ends, leaves alone and says, on a cluster in memory."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.enforce.plan_page import event_line
from kquota_spark.cli.main import main
from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Event, LogEntry, Proposal
from kquota_spark.enforce.guards import Situation
from kquota_spark.enforcement import job as enforce
from kquota_spark.enforcement.assembly import Enforcing
from kquota_spark.enforcement.job import Checks, run_enforcement
from kquota_spark.errors import UserError
from tests.support.clock import set_clock
from tests.support.enforcement.enforcement_cluster import NOW_MS, InMemoryCluster
from tests.support.places import ROOT
from tests.support.programs.command_output import run

MINUTE_MS = 60_000
JOB = ROOT / "jobs" / "enforce.py"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemoryCluster:
    made = InMemoryCluster(tmp_path, monkeypatch, "enforce")
    monkeypatch.setattr("kquota_spark.enforcement.job.enforcement_edges", made.edges)
    return made


class Job:
    """The looks of one job, and the rows that it told."""

    def __init__(self, cluster: InMemoryCluster) -> None:
        self.settings: Settings = load_settings(cluster.config)
        self.told: list[LogEntry] = []
        self._edges = cluster.edges(self.settings)
        self.edges = self._edges.__enter__()
        self.checks = Checks(
            self.settings, self.edges, None, self.told.append, lambda: cluster.now_ms, lambda: 0.0
        )

    def events(self) -> list[Event]:
        """What was told since the last call."""
        found = [entry.event for entry in self.told]
        self.told.clear()
        return found


def test_an_offender_is_limited_at_once_and_told_line_by_line(cluster: InMemoryCluster) -> None:
    job = Job(cluster)
    job.checks.check()
    assert cluster.of_alice == "500000.0"
    line = event_line(job.told[-1])
    assert line.startswith(
        "2026-11-21T05:42:01Z applied: users/alice producer_byte_rate 1.0 MB/s -> 500 kB/s (-50 %), until 2026-11-21 "
        "05:57:01 UTC; repeat-offenders: took 200 % of its limit"
    )
    assert job.events() == [Event.PLANNED, Event.SENDING, Event.APPLIED]
    assert cluster.leases.holder is None  # a person's command has its turn


def test_what_expires_ends_while_the_log_is_silent(cluster: InMemoryCluster) -> None:
    job = Job(cluster)
    job.checks.check()
    cluster.now_ms = NOW_MS + 15 * MINUTE_MS - 1
    job.checks.check()
    assert cluster.of_alice == "500000.0"
    cluster.now_ms += 1  # nothing new was decided for 15 min
    job.told.clear()
    job.checks.check()
    assert cluster.of_alice == "1000000"
    assert job.events()[:2] == [Event.RESTORING, Event.RESTORED]


@pytest.mark.parametrize("broken", ["policy.yaml", "tables/decisions/_delta_log"])
def test_what_expires_ends_although_policies_or_decisions_cannot_be_read(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    job = Job(cluster)
    job.checks.check()
    (cluster.root / broken).rename(cluster.root / "away")
    cluster.now_ms = NOW_MS + 15 * MINUTE_MS
    job.checks.try_to_check()
    assert cluster.of_alice == "1000000"
    assert "enforce: stopped until the next check: " in capsys.readouterr().err


def test_a_long_look_is_followed_by_a_rest_in_which_only_what_is_over_ends(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, passed_s, checked = Job(cluster), [0.0], []
    job.checks = Checks(
        job.settings, job.edges, None, job.told.append, lambda: cluster.now_ms, lambda: passed_s[0]
    )
    propose = Enforcing.proposals

    def slowly(run: Enforcing, now_ms: int) -> Sequence[Proposal]:
        checked.append(passed_s[0])
        passed_s[0] += 20.0
        return propose(run, now_ms)

    monkeypatch.setattr(Enforcing, "proposals", slowly)
    job.checks.try_to_check()  # until 20 s; the rest of 9 x 20 s until 200 s
    cluster.now_ms = NOW_MS + 15 * MINUTE_MS
    for second in (30.0, 199.0, 200.0):
        passed_s[0] = second
        job.checks.try_to_check()
        assert cluster.of_alice == "1000000", "the penalty is over"
    assert checked == [0.0, 200.0]


def test_tables_that_change_while_a_long_look_reads_them_are_not_ahead_of_the_clock(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, know = Job(cluster), Enforcing.situation

    def slowly(run: Enforcing, now_ms: int) -> Situation:
        cluster.now_ms += 8_000  # the watcher writes every second, and clocks may differ by 5 s
        return replace(know(run, now_ms), rules_known_through_ms=cluster.now_ms - 1_000)

    monkeypatch.setattr(Enforcing, "situation", slowly)
    job.checks.check()
    assert job.events() == [Event.PLANNED, Event.SENDING, Event.APPLIED]


def test_while_it_is_frozen_nothing_is_sent_and_nothing_ends(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(cluster)
    run("freeze", "--reason", "incident", "--config", str(cluster.config))
    job.checks.check()
    job.checks.check()
    assert capsys.readouterr().err == "enforce: frozen by 'eve': 'incident'\n"
    assert (job.events(), cluster.of_alice) == ([], "1000000")
    run("unfreeze", "--config", str(cluster.config))
    job.checks.check()
    assert cluster.of_alice == "500000.0"
    assert capsys.readouterr().err == "enforce: continues\n"
    run("freeze", "--reason", "incident", "--config", str(cluster.config))
    cluster.now_ms = NOW_MS + 20 * MINUTE_MS
    job.checks.check()
    assert cluster.of_alice == "500000.0"
    assert capsys.readouterr().err == "enforce: frozen by 'eve': 'incident'; overdue: 1\n"
    run("unfreeze", "--config", str(cluster.config))
    job.checks.check()
    assert cluster.of_alice == "1000000"


def test_the_policy_file_is_read_at_each_look(cluster: InMemoryCluster) -> None:
    job = Job(cluster)
    cluster.set_mode("observe")
    job.checks.check()
    assert (job.events(), cluster.of_alice) == ([Event.PLANNED], "1000000")
    run("exempt", "add", "--user", "alice", "--config", str(cluster.config))
    cluster.set_mode("enforce")
    run("exempt", "add", "--user", "alice", "--config", str(cluster.config))
    job.checks.check()
    assert cluster.of_alice == "1000000"


def test_what_a_person_approved_is_sent_at_the_next_look(cluster: InMemoryCluster) -> None:
    cluster.set_mode("approve")
    job = Job(cluster)
    job.checks.check()
    plan = job.told[0].step_id.plan_id
    assert cluster.of_alice == "1000000"
    run("enforce", "approve", plan, "--yes", "--config", str(cluster.config))
    job.checks.check()
    assert cluster.of_alice == "500000.0"
    assert job.events() == [Event.PLANNED, Event.SENDING, Event.APPLIED]


def test_another_enforcer_is_let_alone(cluster: InMemoryCluster) -> None:
    job = Job(cluster)
    cluster.leases.take("another")
    job.checks.check()
    assert (job.events(), cluster.of_alice, cluster.leases.holder) == ([], "1000000", "another")


def test_a_look_that_fails_is_said_once_and_the_next_one_goes_on(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(cluster)
    good = cluster.policy_file.read_text(encoding="utf-8")
    cluster.policy_file.write_text("mode: full\n", encoding="utf-8")
    job.checks.try_to_check()
    job.checks.try_to_check()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"enforce: stopped until the next check: {cluster.policy_file}: mode: 'full'")
    assert cluster.of_alice == "1000000"
    cluster.policy_file.write_text(good, encoding="utf-8")
    job.checks.try_to_check()
    assert (capsys.readouterr().err, cluster.of_alice) == ("enforce: continues\n", "500000.0")
    cluster.policy_file.write_text("mode: full\n", encoding="utf-8")
    monkeypatch.setattr(enforce, "_GIVE_UP_S", -1.0)
    with pytest.raises(UserError, match="'full'"):
        job.checks.try_to_check()


def test_after_the_end_no_look_begins(cluster: InMemoryCluster) -> None:
    job = Job(cluster)
    ending = threading.Thread(target=job.checks.end)
    ending.start()
    ending.join(10)
    job.checks.check()
    assert (job.events(), cluster.of_alice) == ([], "1000000")


@pytest.mark.parametrize("way", ["kquota enforce run", "jobs/enforce.py"])
def test_once_looks_once_without_spark(
    way: str, cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_spark(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("kquota_spark.cli.enforce.run.prepare_spark", no_spark)
    monkeypatch.setattr(enforce, "_run_on", no_spark)
    set_clock(monkeypatch, lambda: cluster.now_ms)
    options = ["--config", str(cluster.config), "--once"]
    if way == "jobs/enforce.py":
        monkeypatch.setattr("sys.argv", ["enforce.py", *options])
        assert runpy.run_path(str(JOB))["main"]() == 0
    else:
        assert main(["enforce", "run", *options]) == 0
    assert cluster.of_alice == "500000.0"
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in out] == ["planned:", "sending:", "applied:"]


def test_only_what_runs_under_spark_submit_names_the_script() -> None:
    product = [path for folder in ("kquota_spark", "conf") for path in (ROOT / folder).rglob("*")]
    texts = {".py", ".md", ".yaml", ".service", ".example"}
    naming = {
        str(path.relative_to(ROOT))
        for path in product
        if path.suffix in texts and path.is_file() and "jobs/enforce.py" in path.read_text(encoding="utf-8")
    }
    assert naming == {"kquota_spark/cli/enforce/run.py", "conf/kubernetes/kquota-enforce.yaml"}


def test_a_second_job_on_the_same_checkpoints_is_refused(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(cluster.config)
    refused: list[int] = []

    def beside(*_: Any) -> None:
        monkeypatch.setattr("sys.argv", ["enforce.py", "--config", str(cluster.config)])
        refused.append(runpy.run_path(str(JOB))["main"]())

    monkeypatch.setattr(enforce, "_run_on", beside)
    run_enforcement(settings, lambda _: None, is_once=False)
    assert refused == [1]
    assert (
        f"enforce: checkpoints {settings.checkpoints} are in use by another driver" in capsys.readouterr().err
    )


def test_a_start_with_a_wrong_policy_file_ends_what_has_expired_and_then_fails(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(cluster).checks.check()
    cluster.policy_file.write_text("mode: full\n", encoding="utf-8")
    set_clock(monkeypatch, lambda: NOW_MS + 15 * MINUTE_MS)
    with pytest.raises(UserError, match="'full'"):
        run_enforcement(load_settings(cluster.config), lambda _: None, is_once=True)
    assert cluster.of_alice == "1000000"


def test_an_exempt_name_that_nobody_has_is_warned_of(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("exempt", "add", "--user", "alcie", "--force", "--config", str(cluster.config))
    set_clock(monkeypatch, lambda: cluster.now_ms)
    run_enforcement(load_settings(cluster.config), lambda _: None, is_once=True)
    assert capsys.readouterr().err == (
        "enforce: warning: exempt.users: 'alcie' is not known, did you mean 'alice'?\n"
    )
