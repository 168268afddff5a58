"""The first line of `kquota status`: whether the audit runs, since when not, and what to start."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.checkpoints.driver_lock import driver_lock, is_driver_running, last_commit_ms
from kquota_spark.cli.options import SettingsPlace
from kquota_spark.cli.status.of_enforcement import HolderQuestion, enforcer_part
from kquota_spark.cli.status.part import Part, State
from kquota_spark.config.loader import load_settings
from kquota_spark.enforce.ports import Holder
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from tests.support.clock import set_clock
from tests.support.places import CONF
from tests.support.programs.command_output import run
from tests.support.tables.table_rows import T0_MS, decision, heartbeat, request, source, usage, write_table

MINUTE_MS = 60_000


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    at(monkeypatch, T0_MS + 14_000)
    path = tmp_path / "kquota.yaml"
    text = "cluster_id: demo\ntables: tables\ncheckpoints: checkpoints\n"
    path.write_text(f"{text}quotas: {{source: file, file: quotas.yaml}}\n", encoding="utf-8")
    return path


def at(monkeypatch: pytest.MonkeyPatch, time_ms: int) -> None:
    set_clock(monkeypatch, lambda: time_ms)


def write_tables(config: Path) -> None:
    root = config.parent / "tables"
    write_table(root, "requests", request(1), heartbeat(2) | {"broker_id": 2})
    write_table(root, "usage", usage())
    write_table(root, "decisions", decision())
    write_table(root, "violations")
    write_table(root, "quota_rules", source(0))


def verdict(config: Path) -> str:
    """The first line; it is the verdict of JSON as well."""
    said = run("status", "--config", str(config))[1]
    first = " ".join(said.partition("\n\n")[0].split("\n"))
    assert as_json(config)["verdict"] == first
    return first


def as_json(config: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("status", "--config", str(config), "--output", "json")[1])
    return found


def parts(config: Path) -> dict[str, dict[str, Any]]:
    return {row["part"]: row for row in as_json(config)["rows"]}


def commit(config: Path, time_ms: int) -> None:
    """A micro-batch of the job that ended then."""
    folder = config.parent / "checkpoints" / "log" / "commits"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "7").touch()
    os.utime(folder / "7", (time_ms / 1_000, time_ms / 1_000))


def start(config: Path) -> str:
    return f"start kquota audit --config {config}"


def test_a_folder_without_tables_says_what_to_start_and_names_one_cause_once(config: Path) -> None:
    code, out, err = run("status", "--config", str(config))
    assert (code, err) == (2, "")
    assert verdict(config) == f"demo: nothing has been audited yet: {start(config)}"
    assert "Errno" not in out and "None" not in out
    assert out.count("not known") == 0
    assert out.count("for the same reason not ok: job, shippers, sources, lag, agreement") == 1
    found = parts(config)
    assert {name for name, row in found.items() if row["follows"] == "tables"} == {
        "job", "shippers", "sources", "lag", "agreement", "freeze",
    }  # fmt: skip
    text = config.read_text(encoding="utf-8").replace("source: file, file: quotas.yaml", "source: admin")
    config.write_text(f"{text}kafka: {{bootstrap_servers: 127.0.0.1:1}}\n", encoding="utf-8")
    assert parts(config)["enforcer"]["figure"] == "not set up: no policy file conf/policy.yaml"


def test_empty_tables_have_no_cluster_called_none(config: Path) -> None:
    root = config.parent / "tables"
    for name in ("requests", "usage", "decisions", "violations"):
        write_table(root, name)
    write_table(root, "quota_rules", source(0))
    assert verdict(config) == f"demo: nothing has been audited yet: {start(config)}"
    assert parts(config)["sources"]["figure"] == "demo: quotas are known through 2026-11-21 05:40:00 UTC"
    assert "None" not in run("status", "--config", str(config))[1]


def test_a_job_that_runs_here_and_reads_is_fourteen_seconds_behind(config: Path) -> None:
    write_tables(config)
    with driver_lock("checkpoints", "log"):
        assert verdict(config) == "demo: running, 14 s behind, everything is ok"
        assert parts(config)["job"]["figure"] == f"reads; process {os.getpid()}"


def test_a_job_that_stopped_here_six_seconds_ago_does_not_run_on_another_machine(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(config)
    with driver_lock("checkpoints", "log"):
        commit(config, T0_MS + 8_000)
    assert verdict(config) == f"demo: not running since 05:40:08 UTC (6 s): {start(config)}"
    assert parts(config)["job"]["figure"] == "has stopped"
    # The newest line is from before that, so nobody else has written since. An hour later:
    at(monkeypatch, T0_MS + 8_000 + 63 * MINUTE_MS)
    assert verdict(config) == f"demo: not running since 05:40:08 UTC (63 min): {start(config)}"
    found = parts(config)
    assert {name: row["follows"] for name, row in found.items() if row["state"] not in ("ok", "off")} == {
        "job": "", "sources": "job", "lag": "job",
    }  # fmt: skip
    # Another day has its date.
    at(monkeypatch, T0_MS + 8_000 + 5 * 86_400_000)
    assert verdict(config) == f"demo: not running since 2026-11-21 05:40:08 UTC (5 days): {start(config)}"


def test_rows_that_are_newer_than_the_last_batch_here_come_from_another_machine(config: Path) -> None:
    write_tables(config)
    with driver_lock("checkpoints", "log"):
        commit(config, T0_MS - MINUTE_MS)
    assert verdict(config) == "demo: running, 14 s behind, everything is ok"
    assert parts(config)["job"]["figure"] == "reads, on another machine"


def test_a_running_audit_with_something_wrong_names_it(config: Path) -> None:
    write_tables(config)
    silent = heartbeat(2) | {"broker_id": 3, "kafka_timestamp_ms": T0_MS - 60_001}
    write_table(config.parent / "tables", "requests", silent)
    assert verdict(config) == "demo: running, 14 s behind; not ok: shippers"
    assert as_json(config)["is_running"] and not as_json(config)["is_ok"]


def test_the_lock_answers_whether_a_driver_runs_and_never_stops_one(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert is_driver_running(root, "log") is None
    with driver_lock(root, "log"):
        assert is_driver_running(root, "log") is True
    assert is_driver_running(root, "log") is False
    assert (last_commit_ms(root, "log"), last_commit_ms("s3a://lake/x", "log")) == (None, None)
    with driver_lock(root, "log"):
        assert is_driver_running(root, "log") is True


class Answered(HolderQuestion):
    """A cluster that has answered."""

    def __init__(self, holder: Holder | None) -> None:
        self._given = holder

    def answer(self) -> tuple[Holder | None, str]:
        return self._given, ""


def enforcer(config: Path, holder: Holder | None) -> Part:
    text = config.read_text(encoding="utf-8").replace("source: file, file: quotas.yaml", "source: admin")
    config.write_text(f"{text}enforcement: {{policy_file: {CONF}/policy.yaml}}\n", encoding="utf-8")
    settings = load_settings(config)
    return enforcer_part(settings, [], Answered(holder), SettingsPlace(config, None), T0_MS)


def test_a_lease_that_a_persons_command_holds_is_no_enforcer(config: Path) -> None:
    held = Holder("host-1:812", T0_MS - 1_000, True, "kquota override set")
    part = enforcer(config, held)
    assert part.state is State.OFF
    assert part.figure == (
        "mode observe, 0 changes in force, 0 waiting; none has run yet; the lease is held by kquota override set on "
        "host-1:812"
    )


@pytest.mark.parametrize(
    ("age_ms", "state", "silent"), [(5_000, State.OK, ""), (3_600_000, State.WARN, " is silent")]
)
def test_behind_a_persons_command_the_enforcers_own_note_counts(
    config: Path, age_ms: int, state: State, silent: str
) -> None:
    write_tables(config)
    FreezeSwitch(load_settings(config)).confirm("host-2:99", T0_MS - age_ms, None)
    part = enforcer(config, Holder("host-1:812", T0_MS - 1_000, True, "kquota override set"))
    assert (part.state, part.figure) == (
        state,
        f"mode observe, 0 changes in force, 0 waiting; host-2:99{silent}",
    )
    assert part.as_of_ms == T0_MS - age_ms


def test_the_holder_of_an_enforcer_counts_by_itself(config: Path) -> None:
    part = enforcer(config, Holder("host-1:812", T0_MS - 1_000, False))
    assert (part.state, part.figure) == (State.OK, "mode observe, 0 changes in force, 0 waiting; host-1:812")
