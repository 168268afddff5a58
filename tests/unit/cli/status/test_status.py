"""`kquota status`: one line for each part, the next command where it is not well, and an exit code that says so."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.checkpoints.driver_lease import lease_holder
from kquota_spark.checkpoints.lease_table import LeaseTable
from kquota_spark.checkpoints.notes import write_note
from kquota_spark.config.loader import load_settings
from kquota_spark.enforce.ports import Frozen
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from tests.support.clock import set_clock
from tests.support.programs.command_output import run
from tests.support.programs.s3_server import s3_server
from tests.support.tables.table_rows import T0_MS, decision, heartbeat, request, source, usage, write_table

PARTS = ["job", "shippers", "sources", "tables", "lag", "agreement", "enforcer", "freeze", "lifted"]
NOW_MS = T0_MS + 10_000


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    set_clock(monkeypatch, lambda: NOW_MS)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "kquota.yaml"
    text = f"cluster_id: demo\ntables: tables\ncheckpoints: {tmp_path}/checkpoints\n"
    path.write_text(f"{text}quotas: {{source: file, file: {tmp_path}/quotas.yaml}}\n", encoding="utf-8")
    return path


def write_tables(config: Path, **changed: dict[str, Any]) -> None:
    root = config.parent / "tables"
    write_table(root, "requests", request(1), heartbeat(2) | {"broker_id": 2} | changed.get("heartbeat", {}))
    write_table(root, "usage", usage())
    write_table(root, "decisions", decision(**changed.get("decision", {})))
    write_table(root, "violations")
    write_table(root, "quota_rules", source(0) | changed.get("source", {}))


def rows(config: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    code, out, err = run("status", "--config", str(config), "--output", "json")
    assert err == ""
    found = json.loads(out)["rows"]
    assert [row["part"] for row in found] == PARTS
    return code, {row["part"]: row for row in found}


WELL = "demo: running, 10 s behind, everything is ok\n\n"
WELL_TABLES = (
    "job        ok     10.0 s   reads, on another machine\n"
    "shippers   ok     10.0 s   2 of 2 brokers send\n"
    "sources    ok     10.0 s   demo: quotas are known through 2026-11-21 05:40:00 UTC\n"
    "tables     ok     10.0 s   5 tables in tables\n"
    "lag        ok     10.0 s   demo: the newest line is of 2026-11-21 05:40:00 UTC, 10.0 s behind\n"
    "agreement  ok     10.0 s   100.00 % of 1 certain verdicts in the last day\n"
)
WELL_ENFORCEMENT = (
    "enforcer   off         -   quotas of a file are not enforced\n"
    "freeze     ok          -   not frozen\n"
    "lifted     ok          -   no quota is lifted\n"
)


def test_an_installation_that_is_well_has_a_figure_and_an_age_and_exit_code_0(config: Path) -> None:
    write_tables(config)
    code, out, err = run("status", "--config", str(config))
    assert (code, err) == (0, "")
    assert out == WELL + WELL_TABLES + WELL_ENFORCEMENT


@pytest.mark.parametrize(
    ("changed", "part", "state", "figure", "then"),
    [
        ({"heartbeat": {"kafka_timestamp_ms": T0_MS - 60_001}}, "shippers", "warn",
         "1 of 2 brokers send; silent: broker 2 since 2026-11-21 05:38:59 UTC", "kquota doctor --before"),
        ({"decision": {"requests_judged": 200, "requests_agreeing": 197}}, "agreement", "warn",
         "98.50 % of 200 certain verdicts in the last day", "kquota agreement"),
        ({"source": source(-3_600)}, "sources", "warn",
         "demo: quotas are known through 2026-11-21 04:40:00 UTC, 60.2 min ago", "kquota watch"),
        ({"decision": {"second": decision(-3_600)["second"]}}, "lag", "warn",
         "demo: decisions through 2026-11-21 04:40:00 UTC, 60.0 min behind", "kquota doctor"),
    ],
)  # fmt: skip
def test_a_part_that_is_not_well_names_the_next_command_and_the_exit_code_is_2(
    config: Path, changed: dict[str, Any], part: str, state: str, figure: str, then: str
) -> None:
    write_tables(config, **changed)
    code, found = rows(config)
    assert code == 2
    assert {name for name, row in found.items() if row["state"] not in ("ok", "off")} == {part}
    row = found[part]
    assert (row["state"], row["figure"], row["next"]) == (state, figure, f"{then} --config {config}")


def test_tables_that_change_while_a_slow_machine_reads_them_are_not_ahead_of_the_clock(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(config, source=source(17))  # 7 s after NOW; clocks may differ by 5 s
    clock = count(NOW_MS, 8_000)
    set_clock(monkeypatch, lambda: next(clock))
    code, found = rows(config)
    assert (code, found["sources"]["state"]) == (0, "ok")


def test_a_job_that_stands_still_is_named_with_the_way_to_start_it(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, lambda: NOW_MS + 3_600_000)
    write_tables(config)
    _, found = rows(config)
    assert (found["job"]["state"], found["job"]["next"]) == (
        "fail",
        f"kquota audit --config {config}",
    )
    assert found["job"]["age_ms"] == 3_610_000


def test_a_frozen_enforcement_says_by_whom_and_how_it_ends(config: Path) -> None:
    write_tables(config)
    FreezeSwitch(load_settings(config)).freeze(Frozen(T0_MS, "eve", "incident \x1b[2J 7"))
    code, found = rows(config)
    assert code == 2
    assert found["freeze"]["figure"].startswith("frozen since 2026-11-21 05:40:00 UTC by eve: incident")
    assert "\x1b" not in run("status", "--config", str(config))[1]
    assert found["freeze"]["next"] == f"kquota unfreeze --config {config}"


def test_without_tables_and_with_a_silent_cluster_every_line_is_there_within_seconds(config: Path) -> None:
    text = config.read_text(encoding="utf-8").replace("source: file", "source: admin")
    config.write_text(f"{text}kafka: {{bootstrap_servers: 127.0.0.1:1}}\n", encoding="utf-8")
    began_s = time.monotonic()
    code, found = rows(config)
    assert code == 2
    assert time.monotonic() - began_s < 5.0  # 2 s, and a busy machine
    assert found["tables"]["figure"] == "tables path tables does not exist"
    assert all(found[name]["next"] for name in PARTS[:6])
    assert found["enforcer"]["state"] == "off"
    assert max(map(len, run("status", "--config", str(config))[1].splitlines())) <= 100


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def on_s3(config: Path, endpoint: str) -> str:
    """The root of checkpoints on an object store, in the settings."""
    root = f"s3a://lake/{config.parent.name}"
    lines = config.read_text(encoding="utf-8").splitlines()
    lines = [f"checkpoints: {root}" if line.startswith("checkpoints:") else line for line in lines]
    lines.append(
        f"storage_options: {{AWS_ENDPOINT_URL: '{endpoint}', AWS_REGION: us-east-1, AWS_ALLOW_HTTP: 'true', "
        "AWS_ACCESS_KEY_ID: key, AWS_SECRET_ACCESS_KEY: secret}"
    )
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


NOTE = {
    "number": 1,
    "count": 7,
    "host": "host-1",
    "pid": 812,
    "since_ms": T0_MS - 3_600_000,
    "renewed_ms": NOW_MS - 6_000,
}
SINCE = "since 2026-11-21 04:40:00 UTC"


def take_lease(config: Path, root: str, name: str, note: Mapping[str, Any] | None) -> None:
    settings = load_settings(config)
    assert LeaseTable(settings, f"{root}/leases").take(name, 0)
    if note is not None:
        write_note(settings, f"{root}/{name}.lease.json", json.dumps(note).encode())


def test_on_an_object_store_a_row_says_who_holds_the_lease_and_how_long_ago_it_was_renewed(
    config: Path, on_s3: str
) -> None:
    write_tables(config)
    assert rows(config)[0] == 0  # never taken: no row
    take_lease(config, on_s3, "log", NOTE)
    take_lease(config, on_s3, "jmx", NOTE | {"renewed_ms": NOW_MS - 8_000})
    code, out, err = run("status", "--config", str(config))
    assert (code, err) == (0, "")
    lease = f"lease      ok     8.00 s   log, jmx: held by process 812 on host-1 {SINCE}\n"
    assert out == WELL + WELL_TABLES + lease + WELL_ENFORCEMENT


@pytest.mark.parametrize(
    ("log", "jmx", "state", "figure", "age_ms"),
    [
        pytest.param(
            NOTE | {"renewed_ms": NOW_MS - 60_000}, {**NOTE, "pid": 9, "host": "host-2"}, "ok",
            f"log: held by process 812 on host-1 {SINCE}; jmx: held by process 9 on host-2 {SINCE}", 60_000,
            id="two drivers",
        ),
        pytest.param(
            NOTE | {"renewed_ms": NOW_MS - 60_001}, NOTE | {"is_released": True}, "warn",
            f"log: held by process 812 on host-1 {SINCE}; not renewed in time", 60_001, id="silent",
        ),
        pytest.param(
            NOTE | {"is_released": True, "renewed_ms": NOW_MS - 90_000}, NOTE | {"is_released": True, "pid": 9}, "off",
            "released by process 9 on host-1", 6_000, id="released",
        ),
        pytest.param(
            None, NOTE | {"is_released": True}, "warn",
            "log: a driver that has not written its note; not renewed in time", None, id="taken, no note",
        ),
        pytest.param(
            {"number": 0, "count": 7, "host": "host-1", "pid": 812}, NOTE | {"is_released": True}, "warn",
            "log: a driver that has not written its note; not renewed in time", None, id="note of an older lease",
        ),
        pytest.param(
            {"number": 1, "count": 7, "host": "host-1", "pid": 812}, NOTE | {"is_released": True}, "warn",
            "log: held by process 812 on host-1; not renewed in time", None, id="note without times",
        ),
    ],
)  # fmt: skip
def test_the_row_of_the_lease_is_well_while_its_holder_renews_it(
    config: Path,
    on_s3: str,
    log: Mapping[str, Any] | None,
    jmx: Mapping[str, Any],
    state: str,
    figure: str,
    age_ms: int | None,
) -> None:
    take_lease(config, on_s3, "log", log)
    take_lease(config, on_s3, "jmx", jmx)
    _, out, _ = run("status", "--config", str(config), "--output", "json")
    row = next(row for row in json.loads(out)["rows"] if row["part"] == "lease")
    assert (row["state"], row["figure"], row["age_ms"]) == (state, figure, age_ms)
    assert row["next"] == (f"kquota audit --config {config}" if state == "warn" else "")


def test_on_an_object_store_a_released_lease_says_since_when_nothing_runs(config: Path, on_s3: str) -> None:
    write_tables(config)
    released = NOTE | {"is_released": True, "renewed_ms": NOW_MS - 2_000}
    take_lease(config, on_s3, "log", released)
    code, out, _ = run("status", "--config", str(config))
    assert code == 2
    [first, *_] = out.split(": start ")
    assert first == "demo: not running since 05:40:08 UTC (2 s)"


def test_on_a_local_disk_no_lease_is_asked_for(config: Path) -> None:
    settings = load_settings(config)
    assert lease_holder(settings, settings.checkpoints, "log") is None
