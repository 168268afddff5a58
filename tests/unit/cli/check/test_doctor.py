"""The count equation finds what was planted and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from tests.support.clock import set_clock
from tests.support.tables.audited_tables import NOW_MS
from tests.support.tables.audited_tables import REQUESTS as _REQUESTS
from tests.support.tables.audited_tables import findings as _findings
from tests.support.tables.audited_tables import tables as _tables
from tests.support.tables.table_rows import T0_MS, decision, request, run, second, usage, write_table

pytestmark = pytest.mark.usefixtures("doctors_clock")


def test_a_healthy_run_is_a_count_and_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "--tables", str(_tables(tmp_path))) == 0
    assert capsys.readouterr().out == f"{_AGREEMENT}12 checks are ok (--all shows them)\n{_VERDICT}"
    assert run("doctor", "--all", "--tables", str(tmp_path)) == 0
    assert capsys.readouterr().out == _AGREEMENT + _HEALTHY + _VERDICT
    assert run("doctor", "--tables", str(tmp_path), "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: found[name] for name in ("verdict", "ok", "warn", "fail")} == {
        "verdict": _VERDICT.rstrip(), "ok": 12, "warn": 0, "fail": 0,
    }  # fmt: skip
    assert len(found["rows"]) == 12


def test_what_is_not_ok_comes_first_with_its_fix_and_the_cluster_is_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text(f"cluster_id: demo\ntables: {tmp_path}/tables\n", encoding="utf-8")
    _tables(tmp_path / "tables", (*_REQUESTS, request(7, T0_MS + 6_000), request(5, T0_MS + 300)))
    assert run("doctor", "--config", str(config)) == 2
    printed = capsys.readouterr().out.splitlines()
    assert [line[:43].rstrip() for line in printed if not line.startswith(" " * 27 + "fix: ")] == [
        "agreement 100.00 % of 2 certain verdicts",
        "fail   offsets             log-0: 1 offsets",
        "warn   measured            5 chargeable req",
        "10 checks are ok (--all shows them)",
        "demo: 1 check fails, 1 warns: do not rely o",
    ]
    assert sum(line.startswith(" " * 27 + "fix: ") for line in printed) == 2


_AGREEMENT = "agreement 100.00 % of 2 certain verdicts\n"
_VERDICT = "kafka: every line is counted, and every table is up to date\n"
_HEALTHY = """\
ok     lines               demo: 5 lines = 4 requests + 0 unreadable + 1 heartbeats
ok     duplicates          demo: 0 lines came more than once; each counts once
ok     offsets             demo: log-0: 0 to 4 without a gap
ok     unreadable          demo: 0 of 5 lines (0.000 %)
ok     measured            demo: 3 chargeable requests = 2 in usage + 0 copies + 1 not yet measured + 0 late
ok     judged              demo: 2 requests in usage = 2 in decisions + 0 late + 0 not yet judged
ok     ingest              demo: the newest line is of 2026-11-21 05:40:05 UTC, 5.00 s behind
ok     measure             demo: usage through 2026-11-21 05:40:01 UTC, 4.00 s behind
ok     judge               demo: decisions through 2026-11-21 05:40:01 UTC, 0 ms behind
ok     quota snapshot      demo: quotas are known through 2026-11-21 05:40:09 UTC
ok     agreement produce   demo: 100.00 % of 2 verdicts agree with the broker (0 false alarms, 0 misses); \
not judged: 0 uncertain, 0 inferred, 0 under a request quota
ok     violations          none
"""


def test_the_first_line_states_what_the_agreement_leaves_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_ = decision(2, requests_judged=0, requests_agreeing=0, uncertain=3, inferred=1, excluded=2)
    root = _tables(tmp_path, decisions=(decision(0), decision(1), open_))
    run("doctor", "--tables", str(root))
    # 2 certain verdicts, 3 uncertain ones, 2 under a request quota and a throttled fetch.
    assert capsys.readouterr().out.splitlines()[0] == (
        "agreement 100.00 % of 2 certain verdicts; 5 of 8 verdicts left open, 1 throttled fetch not"
    )
    assert main(["agreement", "--tables", str(root)]) == 0
    assert " ".join(capsys.readouterr().out.split()).startswith(
        "agreement 100.00 % of 2 certain verdicts; 5 of 8 verdicts left open, 1 throttled fetch not comparable broker "
    )
    # Every table of results ends with it.
    assert run("decisions", "--tables", str(root)) == 0
    assert "certain verdicts; 5 of 8 verdicts left open, 1 throttled fetch not comparable " in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_gap_in_the_offsets_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = (*_REQUESTS, request(7, T0_MS + 6_000), request(9, T0_MS + 6_000))
    code, findings = _findings(_tables(tmp_path, requests), capsys)
    assert code == 2
    assert findings == [("fail", "offsets", "demo: log-0: 3 offsets missing, the first 5 to 6")]


def test_lines_without_a_row_are_in_the_equation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # 2,000 produces of the first second, 1 of the second one; 0 and 2,001 have rows. 7 that no quota counts.
    left_out: dict[str, Any] = {"kind": "left_out", "lines": 2_000, "first_offset": 1}
    uncounted: dict[str, Any] = {"kind": "left_out", "lines": 7, "first_offset": 2_002, "quota_type": None}
    requests = (
        request(0), request(2_000, T0_MS + 999, **left_out), request(2_001, T0_MS + 1_000),
        request(2_008, T0_MS + 999, **uncounted),
    )  # fmt: skip
    root = _tables(tmp_path, requests, usages=(usage(0, requests=2_001), usage(1)),
                   decisions=(decision(0, requests=2_001), decision(1)))  # fmt: skip
    assert run("doctor", "--tables", str(root), "--output", "json") == 0
    found = {row["what"]: row["evidence"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert found["lines"] == (
        "demo: 2,009 lines = 2 requests + 0 unreadable + 0 heartbeats + 2,007 left out (tables.requests)"
    )
    assert found["offsets"] == "demo: log-0: 0 to 2008 without a gap"
    assert found["measured"] == (
        "demo: 2,002 chargeable requests = 2,002 in usage + 0 copies + 0 not yet measured + 0 late"
    )
    write_table(root, "requests", request(2_020, **{**left_out, "first_offset": 2_011, "lines": 10}))
    code, findings = _findings(root, capsys)
    assert code == 2
    assert findings[0] == ("fail", "offsets", "demo: log-0: 2 offsets missing, the first 2009 to 2010")
    assert findings[1][:2] == ("warn", "measured")


def test_an_offset_that_was_stored_twice_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = (*_REQUESTS, request(3, T0_MS + 5_000))
    code, findings = _findings(_tables(tmp_path, requests), capsys)
    assert code == 2
    assert ("fail", "offsets", "demo: log-0: 1 of 6 rows repeat an offset") in findings


def test_a_line_that_was_delivered_twice_is_counted_and_is_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = tuple(request(10 + n, T0_MS, correlation_id=n + 10) for n in range(200))
    copy = request(210, T0_MS, correlation_id=10)
    requests = (*(request(n, T0_MS + 100_000) for n in range(10)), *many, copy)
    usages = (usage(0, requests=200, duplicates=1),)
    root = _tables(tmp_path, requests, usages=usages, decisions=(decision(0, requests=200),))
    assert run("doctor", "--all", "--tables", str(root)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ok     duplicates          demo: 1 lines came more than once; each counts once" in lines
    assert (
        "ok     measured            demo: 211 chargeable requests = 200 in usage + 1 copies + "
        "10 not yet measured + 0 late"
    ) in lines


def test_many_copies_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = (*_REQUESTS, request(5, correlation_id=0))
    usages = (usage(0, duplicates=1), usage(1))
    code, findings = _findings(_tables(tmp_path, requests, usages=usages), capsys)
    assert (code, findings) == (
        0,
        [("warn", "duplicates", "demo: 1 lines came more than once; each counts once")],
    )


def test_a_late_line_is_told_from_one_that_is_not_yet_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = (*_REQUESTS, request(5, T0_MS + 300))
    code, findings = _findings(_tables(tmp_path, requests), capsys)
    assert (code, findings) == (
        0,
        [
            (
                "warn",
                "measured",
                (
                    "demo: 4 chargeable requests = 2 in usage + 0 copies + 1 not yet measured + 1 late, "
                    "from 2026-11-21 05:40:00 UTC to 2026-11-21 05:40:01 UTC"
                ),
            )
        ],
    )


def test_a_line_that_only_its_reading_set_aside_is_late_until_it_is_restated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aside = request(5, T0_MS + 300, is_out_of_time=True, kafka_timestamp_ms=T0_MS + 300)
    told = ("warn", "future lines", "demo: 1 lines are ahead of their message or its reading")
    _, findings = _findings(_tables(tmp_path / "before", (*_REQUESTS, aside)), capsys)
    late = (
        "demo: 4 chargeable requests = 2 in usage + 0 copies + 1 not yet measured + 1 late, "
        "from 2026-11-21 05:40:00 UTC to 2026-11-21 05:40:01 UTC"
    )
    assert findings == [told, ("warn", "measured", late)]
    restated = {
        "usages": (usage(0, requests=2), usage(1)),
        "decisions": (decision(0, requests=2), decision(1)),
    }
    _, findings = _findings(_tables(tmp_path / "after", (*_REQUESTS, aside), **restated), capsys)
    assert findings == [told]


def test_a_surplus_does_not_hide_a_late_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = (*_REQUESTS, request(5, T0_MS + 300))
    usages = (usage(0), usage(1), usage(1, client_id="twice"))
    code, findings = _findings(_tables(tmp_path, requests, usages=usages), capsys)
    assert code == 2
    assert findings[0] == (
        "fail",
        "measured",
        (
            "demo: 4 chargeable requests = 3 in usage + 0 copies + 1 not yet measured + 1 late; "
            "usage holds 1 that requests does not, from 2026-11-21 05:40:00 UTC to 2026-11-21 05:40:02 UTC"
        ),
    )


def test_seconds_that_were_never_judged_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _tables(tmp_path, decisions=(decision(1),))
    evidence = (
        "demo: 2 requests in usage = 1 in decisions + 0 late + 0 not yet judged + 1 missing, "
        "from 2026-11-21 05:40:00 UTC to 2026-11-21 05:40:01 UTC"
    )
    assert _findings(root, capsys) == (0, [("warn", "judged", evidence)])  # the job may still be at it
    set_clock(monkeypatch, lambda: NOW_MS + 3_600_000)
    code, findings = _findings(root, capsys)
    assert code == 2
    assert ("fail", "judged", evidence) in findings


def test_late_requests_of_judge_close_the_equation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decisions = (decision(0, requests=0, late=1, requests_judged=0, requests_agreeing=0), decision(1))
    code, findings = _findings(_tables(tmp_path, decisions=decisions), capsys)
    evidence = "demo: 2 requests in usage = 1 in decisions + 1 late + 0 not yet judged"
    assert (code, findings) == (0, [("warn", "judged", evidence)])


def test_a_missing_table_is_a_finding_and_the_rest_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path, "requests", *_REQUESTS)
    code, findings = _findings(tmp_path, capsys)
    assert code == 2
    assert findings == [
        ("fail", f"table {name}", f"table {name} is missing under {tmp_path}")
        for name in ("violations", "decisions", "usage", "quota_rules")
    ]


def test_retention_of_whole_days_is_no_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Midnight is T0 + 18 h 20 min. Offset 2 belonged to the day before, and was deleted with it.
    midnight_ms = T0_MS + 66_000_000
    dates = {0: second(66_000).date(), 1: second(66_000 + 86_400).date()}
    requests = (
        request(1, midnight_ms + 1, event_date=dates[0]),
        request(3, midnight_ms + 2, event_date=dates[0]),
        request(4, midnight_ms + 700_000, event_date=dates[0]),
        request(5, midnight_ms + 86_400_000, event_date=dates[1]),
    )
    write_table(tmp_path, "requests", *requests)
    run("doctor", "--all", "--tables", str(tmp_path))
    assert "ok     offsets             demo: log-0: 4 to 5 without a gap\n" in capsys.readouterr().out
