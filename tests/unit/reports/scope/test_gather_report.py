"""The report as a whole: which period it covers, what it says where there is nothing, and over captured traffic."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark import __version__
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.pages.opening import opening
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.shared_rows import Head, Trust
from kquota_spark.reports.sections.trust import trust_section
from tests.support.reports.gathered_report import gathered, throttled
from tests.support.tables.report_tables import FROM_MS, MADE_AT_MS, TO_MS, write_report_tables
from tests.support.tables.table_rows import T0_MS, decision, rule, second, usage, write_table

MINUTE_MS = 60_000


def _settings(root: Path, cluster: str = "demo") -> Settings:
    return Settings(cluster_id=cluster, tables=str(root))


def _two_minutes(root: Path) -> Settings:
    """Traffic in the second 0 and in the second 119."""
    write_table(root, "usage", usage(0), usage(119))
    write_table(root, "decisions", decision(0), throttled(119, 500))
    return _settings(root)


def test_the_head_says_whose_and_when(tmp_path: Path) -> None:
    settings = write_report_tables(tmp_path)
    page = gather_report(settings, Period(FROM_MS, TO_MS), made_at_ms=MADE_AT_MS)
    assert page.head == Head("demo", FROM_MS, TO_MS, MADE_AT_MS, __version__)
    assert page.confidence.trust is Trust.WITH_CARE


def test_shares_of_time_are_of_what_the_tables_cover(tmp_path: Path) -> None:
    page = gather_report(
        _two_minutes(tmp_path),
        Period(T0_MS - 2 * MINUTE_MS, T0_MS + 6 * MINUTE_MS),
        made_at_ms=T0_MS + 6 * MINUTE_MS,
    )
    # 120 seconds of 480; throttled in one of the 120
    said = "the tables cover 2026-11-21 05:40:00 UTC to 2026-11-21 05:42:00 UTC only, 25.0 % of the period asked for"
    assert page.confidence.reasons == (
        f"{said}: shares of time are of what is covered (trusted from 50 % on)",
    )
    assert page.notes == ()  # once is enough
    assert page.throttled[0].time_throttled_percent == 100 / 120
    assert (
        trust_section(page).lead == "25.0 % of the period is covered. With care: 1 thing speaks against it."
    )
    # 1 of 120 s is less than 1 %, so it is in seconds.
    assert opening(page).worst[0].time == "1 s of the time covered"
    # the newest decision ends at 05:42, the period at 05:46
    assert page.confidence.lag_ms == 4 * MINUTE_MS
    assert page.confidence.trust is Trust.WITH_CARE


def test_two_minutes_of_a_day_are_not_the_day(tmp_path: Path) -> None:
    settings, day = _two_minutes(tmp_path), Period(T0_MS, T0_MS + 24 * 60 * MINUTE_MS)
    page = gather_report(settings, day, made_at_ms=day.to_ms)
    assert not page.head.is_covered
    assert "of the day" not in opening(page).worst[0].time


def test_a_lag_counts_to_the_making_of_the_report_if_that_is_earlier(tmp_path: Path) -> None:
    settings, day = _two_minutes(tmp_path), Period(T0_MS, T0_MS + 24 * 60 * MINUTE_MS)
    early = gather_report(settings, day, made_at_ms=T0_MS + 3 * MINUTE_MS).confidence
    # Two of three minutes are covered: what is to come of the day is not missing.
    assert (early.lag_ms, early.trust) == (MINUTE_MS, Trust.YES)
    told = gather_report(settings, day, made_at_ms=day.to_ms).confidence
    # 24 h less two minutes
    assert told.trust is Trust.WITH_CARE
    assert told.reasons == (
        (
            "the tables cover 2026-11-21 05:40:00 UTC to 2026-11-21 05:42:00 UTC only, 0.1 % of the period asked "
            "for: shares of time are of what is covered (trusted from 50 % on)"
        ),
        "the last 1,438 minutes have no decision: nobody sent anything, or the audit is behind (more than 5 minutes)",
    )


def test_a_period_with_traffic_before_and_after_it_is_covered_as_a_whole(tmp_path: Path) -> None:
    settings = _two_minutes(tmp_path)
    write_table(tmp_path, "usage", usage(60))
    write_table(tmp_path, "decisions", throttled(60))
    page = gather_report(settings, Period(T0_MS + 30_000, T0_MS + 80_000), made_at_ms=T0_MS)
    assert page.notes == ()
    assert page.throttled[0].time_throttled_percent == 100 / 50
    assert page.confidence.lag_ms == 0


def test_a_part_of_a_second_counts_as_one(tmp_path: Path) -> None:
    page = gather_report(_two_minutes(tmp_path), Period(T0_MS + 118_900, T0_MS + 119_100), made_at_ms=T0_MS)
    assert page.throttled[0].time_throttled_percent <= 100
    assert page.talkers[0].total == 1_000


@pytest.mark.parametrize(("from_s", "to_s"), [(600, 1_200), (-1_200, -600), (10, 100)])
def test_a_period_without_traffic_says_what_is_there_and_what_to_ask(
    tmp_path: Path, from_s: int, to_s: int
) -> None:
    settings = _two_minutes(tmp_path)
    with pytest.raises(UserError) as refused:
        gather_report(settings, Period(T0_MS + from_s * 1_000, T0_MS + to_s * 1_000), made_at_ms=T0_MS)
    assert str(refused.value).endswith(
        f"the newest second in the tables under {tmp_path} is 2026-11-21 05:41:59 UTC, ask for "
        "2026-11-21T04:41..2026-11-21T05:42 or another period before it"
    )


def test_empty_tables_and_tables_of_another_cluster_say_so(tmp_path: Path) -> None:
    minute = Period(T0_MS, T0_MS + MINUTE_MS)
    write_table(tmp_path / "empty", "usage")
    write_table(tmp_path / "empty", "decisions")
    with pytest.raises(UserError, match="are empty: has the audit processed anything yet"):
        gather_report(_settings(tmp_path / "empty"), minute, made_at_ms=T0_MS)
    _two_minutes(tmp_path / "demo")
    with pytest.raises(UserError, match=r"of cluster prod from .*, only of demo: set cluster_id"):
        gather_report(_settings(tmp_path / "demo", "prod"), minute, made_at_ms=T0_MS)
    with pytest.raises(UserError, match="does not exist: run the audit first"):
        gather_report(_settings(tmp_path / "nowhere"), minute, made_at_ms=T0_MS)


def test_usage_that_nothing_judged_is_a_page_not_to_be_believed(tmp_path: Path) -> None:
    write_table(tmp_path, "usage", usage(0), usage(9))
    write_table(tmp_path, "decisions")
    page = gather_report(_settings(tmp_path), Period(T0_MS, T0_MS + 10_000), made_at_ms=T0_MS)
    assert (page.confidence.trust, page.confidence.lag_ms) == (Trust.NO, None)
    assert page.confidence.reasons == ("nothing of this period was judged: there is usage, and no decision",)
    assert page.talkers[0].total == 2_000


def test_another_cluster_in_the_same_tables_is_not_counted(tmp_path: Path) -> None:
    other = {"cluster_id": "other"}
    page = gathered(tmp_path, usages=[usage(1), usage(1, **other)], decisions=[throttled(1, 100, **other)])
    assert page.throttled == []
    assert page.talkers[0].total == 1_000


def test_the_limit_of_a_silent_bucket_steps_when_its_quota_was_edited(tmp_path: Path) -> None:
    # The quota of alice is cut from 1,000,000 to 120,000 B/s at 4 s; she is muted until 8 s.
    cut = [
        rule("users/alice", 3, producer_byte_rate=1e6, valid_to=second(0)),
        rule("users/alice", 3, 0, producer_byte_rate=1e6, valid_to=second(4)),
        rule("users/alice", 3, 4, producer_byte_rate=120_000.0),
    ]
    decisions = [decision(1), decision(2), decision(8, limit_per_s=120_000.0)]
    page = gathered(tmp_path, decisions=decisions, quota_rules=cut)
    assert [page.lines[0].slot_ms, page.lines[0].bucket.user] == [1_000, "alice"]
    assert page.lines[0].limit_per_s == (None, 1e6, 1e6, 1e6, *[120_000.0] * 6)


def test_the_limit_of_a_silent_bucket_stays_where_no_history_is_known(tmp_path: Path) -> None:
    # Removed at 3 s: which rule holds then, the next request tells.
    removed = [rule("users/alice", 3, 0, producer_byte_rate=1e6), rule("users/alice", 3, 3)]
    for name, rules in (("none", []), ("removed", removed)):
        page = gathered(tmp_path / name, decisions=[decision(1), decision(8)], quota_rules=rules)
        assert page.lines[0].limit_per_s == (None, *[1e6] * 9)
