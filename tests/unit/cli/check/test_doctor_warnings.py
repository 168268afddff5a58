"""What is told of a run whose counts are right: odd lines, age, quotas, agreement, violations."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.doctor.checks import run_checks
from tests.support.clock import set_clock
from tests.support.tables.audited_tables import DECISIONS as _DECISIONS
from tests.support.tables.audited_tables import NOW_MS
from tests.support.tables.audited_tables import REQUESTS as _REQUESTS
from tests.support.tables.audited_tables import findings as _findings
from tests.support.tables.audited_tables import tables as _tables
from tests.support.tables.table_rows import (
    T0_MS,
    decision,
    request,
    run,
    source,
    unreadable,
    violation,
    write_table,
)

pytestmark = pytest.mark.usefixtures("doctors_clock")


def test_a_line_from_the_future_is_kept_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    future = request(5, T0_MS + 9_000_000, is_out_of_time=True, kafka_timestamp_ms=T0_MS)
    code, findings = _findings(_tables(tmp_path, (*_REQUESTS, future)), capsys)
    assert (code, findings) == (
        0,
        [("warn", "future lines", "demo: 1 lines are ahead of their message or its reading")],
    )


def test_lines_that_shippers_lost_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = request(5, T0_MS + 2_000, kind="gap", quota_type=None, user=None, api_key=None)
    code, findings = _findings(_tables(tmp_path, (*_REQUESTS, lost)), capsys)
    evidence = "shippers reported lost lines 1 times, the last before 2026-11-21 05:40:02 UTC"
    assert (code, findings) == (0, [("warn", "gaps", f"demo: {evidence}")])


def test_unreadable_lines_are_told_with_their_reasons_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _tables(tmp_path, (*_REQUESTS, unreadable(5, "not \x1b[2JJSON"), unreadable(6, "not \x1b[2JJSON")))
    assert run("doctor", "--tables", str(root)) == 0
    assert (
        "warn   unreadable          demo: 2 of 7 lines (28.571 %): 2 not \\x1b[2JJSON\n"
        "                           fix: kept in requests with reason and raw_text: fix what writes them, "
        "or the format\n"
    ) in capsys.readouterr().out


def test_a_finished_run_is_behind_but_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, lambda: NOW_MS + 86_400_000)
    code, findings = _findings(_tables(tmp_path), capsys)
    assert (code, findings) == (
        0,
        [
            ("warn", "ingest", "demo: the newest line is of 2026-11-21 05:40:05 UTC, 24.0 h behind"),
            (
                "warn",
                "quota snapshot",
                "demo: quotas are known through 2026-11-21 05:40:09 UTC, 24.0 h ago",
            ),
        ],
    )


@pytest.mark.parametrize(
    ("rules", "decisions", "status", "evidence"),
    [
        ((), _DECISIONS, "fail", "demo: no source reports how far its quotas are known"),
        ((source(9), source(8)), _DECISIONS, "fail", "demo: quota_rules has 2 sources (level 0), expected 1"),
        (
            (source(9),),
            (decision(0, is_rules_behind=True), decision(1)),
            "warn",
            (
                "demo: quotas are known through 2026-11-21 05:40:09 UTC; 1 decisions were made with older "
                "ones and are marked rules_behind"
            ),
        ),
    ],
)
def test_quotas_that_were_not_known(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    rules: tuple[dict[str, Any], ...],
    decisions: tuple[dict[str, Any], ...],
    status: str,
    evidence: str,
) -> None:
    code, findings = _findings(_tables(tmp_path, decisions=decisions, rules=rules), capsys)
    assert (code, findings) == (2 if status == "fail" else 0, [(status, "quota snapshot", evidence)])


def test_quotas_known_through_the_future_are_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ahead = {**source(9), "known_through": datetime(2099, 1, 1, tzinfo=UTC)}
    code, findings = _findings(_tables(tmp_path, rules=(ahead,)), capsys)
    known = "demo: quotas are known through 2099-01-01 00:00:00 UTC, ahead of this clock"
    assert (code, findings) == (2, [("fail", "quota snapshot", known)])


def test_quotas_that_are_known_longer_while_the_checks_run_are_ok(tmp_path: Path) -> None:
    root = _tables(tmp_path, rules=(source(0),))

    def clock_ms() -> int:
        write_table(root, "quota_rules", source(7))  # the watcher writes while a slow machine reads
        return T0_MS

    checks = run_checks(Settings(cluster_id="demo", tables=str(root)), clock_ms)
    [known] = [check for check in checks if check.what == "quota snapshot"]
    assert (known.status.value, known.evidence) == (
        "ok", "demo: quotas are known through 2026-11-21 05:40:00 UTC"
    )  # fmt: skip


def test_agreement_below_99_percent_names_likely_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = decision(0, requests_judged=100, requests_agreeing=97, false_positive=1, false_negative=2)
    root = _tables(tmp_path, decisions=(wrong, decision(1)))
    assert run("doctor", "--tables", str(root)) == 0
    # 98 of 101: 97.03 %.
    assert (
        "warn   agreement produce   demo: 97.03 % of 101 verdicts agree with the broker (1 false alarm, "
        "2 misses); not judged: 0 uncertain, 0 inferred, 0 under a request quota\n"
        "                           fix: check broker.quota_window_num, quota_window_size_seconds and "
        "version against the brokers, "
        "their clocks and log_time_zone, a request quota, and client.quota.callback.class\n"
    ) in capsys.readouterr().out


def test_open_violations_are_counted_and_one_that_should_have_ended_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _tables(tmp_path, violations=(violation(0), violation(1, None)))
    assert _findings(root, capsys) == (0, [])
    run("doctor", "--all", "--tables", str(root))
    assert "ok     violations          demo: 2 episodes, 1 open\n" in capsys.readouterr().out
    write_table(root, "decisions", decision(600, requests=0))
    _, findings = _findings(root, capsys)
    text = "demo: 2 episodes, 1 open, one without a violated second since 2026-11-21 05:40:01 UTC"
    assert ("warn", "violations", text) in findings
