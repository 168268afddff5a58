"""When the page may be believed, and what it says where it may not."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import parser_for
from kquota_spark.config.settings import Settings
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.shared_rows import Agreement, Trust
from kquota_spark.reports.sections import AuditReport
from tests.support.reports.gathered_report import gathered, jmx
from tests.support.tables.table_rows import T0_MS, decision, request, second, unreadable, usage, write_table


def test_nothing_speaks_against_a_page_of_certain_agreeing_verdicts(tmp_path: Path) -> None:
    rows = [decision(at_s, requests_judged=10, requests_agreeing=10) for at_s in range(8)]
    lines = [request(0), request(1), request(2, quota_type=None, api_key=3)]
    page = gathered(tmp_path, decisions=rows, requests=lines)
    told = page.confidence
    assert (told.trust, told.reasons) == (Trust.YES, ())
    assert told.agreement == (Agreement("produce", 80, 80, 0),)
    assert (told.certain_percent, told.lag_ms, told.lines, told.unreadable_lines) == (100.0, 0, 3, 0)
    assert (told.late_requests, told.gaps, told.sources) == (0, 0, ("log",))


def _reasons(page: AuditReport) -> tuple[Trust, tuple[str, ...]]:
    return page.confidence.trust, page.confidence.reasons


@pytest.mark.parametrize(
    ("agreeing", "trust", "percent"),
    [(9_900, Trust.YES, ""), (9_899, Trust.WITH_CARE, "98.99"), (9_499, Trust.NO, "94.99")],
)
def test_verdicts_that_differ_from_the_brokers(
    tmp_path: Path, agreeing: int, trust: Trust, percent: str
) -> None:
    rows = [decision(0, requests_judged=10_000, requests_agreeing=agreeing)]
    reason = (
        f"produce: {10_000 - agreeing:,} of 10,000 certain verdicts differ from the brokers', agreement {percent} % "
        "(trusted from 99 % on): kquota agreement searches the cause"
    )
    assert _reasons(gathered(tmp_path, decisions=rows)) == (trust, (reason,) if percent else ())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        # the two ends are certain seconds: 2 of 5
        ({"is_certain": False}, "40.0 % of 5 judged seconds are certain (trusted from 50 % on)"),
        (
            {"is_rules_behind": True},
            (
                "60.0 % of the seconds were judged before the quotas of their time were known: kquota restate --from "
                "2026-11-21T05:40:01Z --to 2026-11-21T05:40:04Z judges them again"
            ),
        ),
        # 3 late beside 3 judged
        (
            {"late": 1},
            (
                "50.00 % of the requests came after their second had been judged: kquota restate --from "
                "2026-11-21T05:40:01Z --to 2026-11-21T05:40:04Z counts them"
            ),
        ),
    ],
)
def test_seconds_that_are_not_certain(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    rows = [decision(at_s, **changed) for at_s in (1, 2, 3)]
    assert _reasons(gathered(tmp_path, decisions=rows)) == (Trust.WITH_CARE, (reason,))


def test_commands_in_reasons_name_the_settings_of_the_cluster_and_a_tenant_sees_none(tmp_path: Path) -> None:
    write_table(tmp_path, "usage", usage(0), usage(9))
    rows = [
        decision(at_s, requests_judged=100, requests_agreeing=98, is_rules_behind=True) for at_s in (0, 9)
    ]
    write_table(tmp_path, "decisions", *rows)
    settings = Settings(cluster_id="demo", tables=str(tmp_path), file="conf/my kquota.yaml")
    period, made_at_ms = Period(T0_MS, T0_MS + 10_000), T0_MS + 10_000
    found = gather_report(settings, period, made_at_ms=made_at_ms).confidence.reasons
    own = gather_report(settings, period, made_at_ms=made_at_ms, tenant="alice").confidence.reasons
    commands = [command for reason in found for command in re.findall(r"kquota .*\.yaml'", reason)]
    assert commands == [
        "kquota agreement --config 'conf/my kquota.yaml'",
        "kquota restate --from 2026-11-21T05:40:00Z --to 2026-11-21T05:40:10Z --config 'conf/my kquota.yaml'",
    ]
    words = shlex.split(commands[1])[1:]
    parsed = parser_for(words).parse_args(words)
    assert (parsed.start.time_ms, parsed.end.time_ms) == (T0_MS, T0_MS + 10_000)
    assert len(own) == 2
    assert not [reason for reason in own if "--config" in reason]


def test_a_second_of_late_requests_is_one_that_is_not_certain_and_none_of_its_own(tmp_path: Path) -> None:
    none = dict.fromkeys(("limit_per_s", "rate_per_s", "quota_used_percent", "rule"))
    late = decision(1, requests=0, requests_judged=0, requests_agreeing=0, late=2, is_certain=False, **none)
    page = gathered(tmp_path, decisions=[decision(1), late])
    # The two ends and second 1; of them certain all but second 1.
    assert page.confidence.certain_percent == 100 * 2 / 3
    assert page.confidence.late_requests == 2
    assert page.lines[0].limit_per_s[1] == 1e6
    assert page.skew[0].used_per_s == {1: 250_000.0}


@pytest.mark.parametrize(
    ("replay_ms", "trust", "reason"),
    [
        (20_000, Trust.YES, ""),
        (21_000, Trust.YES, ""),  # 5 %
        (
            21_001,
            Trust.WITH_CARE,
            "in certain seconds the total delay is 20.0 s by brokers and 21.0 s by replay (trusted up to 5 % apart)",
        ),
        (
            0,
            Trust.WITH_CARE,
            "in certain seconds the total delay is 20.0 s by brokers and 0 ms by replay (trusted up to 5 % apart)",
        ),
    ],
)
def test_total_delays_that_differ_in_certain_seconds(
    tmp_path: Path, replay_ms: int, trust: Trust, reason: str
) -> None:
    by_broker = {"observed_total_throttle_ms": 10_000, "observed_throttled_requests": 1}
    rows = [
        decision(1, total_throttle_ms=replay_ms, **by_broker),
        decision(2, total_throttle_ms=0, **by_broker),
        # Uncertain, and of an older release: neither counts.
        decision(3, total_throttle_ms=93_000, **{**by_broker, "is_certain": False}),
        decision(4, total_throttle_ms=7_000),
    ]
    page = gathered(tmp_path, decisions=rows)
    assert _reasons(page) == (trust, (reason,) if reason else ())
    assert (page.confidence.certain_delay_by_replay_ms, page.confidence.certain_delay_ms) == (
        replay_ms,
        20_000,
    )


@pytest.mark.parametrize(("readable", "trust"), [(1_999, Trust.YES), (99, Trust.WITH_CARE), (9, Trust.NO)])
def test_lines_that_could_not_be_read(tmp_path: Path, readable: int, trust: Trust) -> None:
    lines = [request(offset) for offset in range(readable)]
    page = gathered(tmp_path, requests=[*lines, unreadable(readable, "not JSON") | {"record_time_ms": None}])
    assert page.confidence.unreadable_lines == 1
    # 1 of 2,000, of 100, of 10
    share = {Trust.WITH_CARE: "1.00", Trust.NO: "10.00"}.get(trust)
    reason = f"{share} % of the lines of the request log could not be read"
    assert _reasons(page) == (trust, (reason,) if share else ())


def test_gaps_count_where_they_touch_the_period_and_a_brokers_start_is_none(tmp_path: Path) -> None:
    gaps = [(1, -9, -5, "the shipper lost lines"), (1, -3, 2, "the shipper lost lines"),
            (2, -99, 3, "the audit began in mid-stream"), (3, 0, 1, "the log begins with the broker's start"),
            (1, 20, 30, "the shipper lost lines")]  # fmt: skip
    rows = [{"cluster_id": "demo", "broker_id": broker_id, "from_time": second(from_s), "to_time": second(to_s),
             "reason": reason} for broker_id, from_s, to_s, reason in gaps]  # fmt: skip
    page = gathered(tmp_path, decisions=[decision(1)], log_gaps=rows)
    assert page.confidence.gaps == 2
    assert _reasons(page) == (
        Trust.WITH_CARE,
        ("2 periods of the log of 2 brokers are missing: what was used then is not counted",),
    )


def test_jmx_alone_is_taken_with_care(tmp_path: Path) -> None:
    write_table(tmp_path, "usage", usage(0, source="jmx", amount=None), usage(9, source="jmx", amount=None))
    write_table(tmp_path, "decisions", jmx(0), jmx(4), jmx(9))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    page = gather_report(settings, Period(T0_MS, T0_MS + 10_000), made_at_ms=T0_MS)
    assert page.confidence.certain_percent is None
    assert page.confidence.sources == ("jmx",)
    assert _reasons(page) == (
        Trust.WITH_CARE,
        ("all 3 decisions are samples of JMX: what was between two samples is not known",),
    )


def test_a_callback_that_the_audit_does_not_know_is_no_trust_at_all(tmp_path: Path) -> None:
    broker = {"cluster_id": "demo", "broker_id": 1, "quota_callback_class": "com.acme.Quotas"}
    page = gathered(tmp_path, decisions=[decision(1)], broker_configs=[broker])
    assert _reasons(page) == (
        Trust.NO,
        ("the brokers let com.acme.Quotas decide on quotas, and quotas.callback names nothing like it",),
    )
