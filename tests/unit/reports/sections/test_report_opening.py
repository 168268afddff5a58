"""The answer at the top of the page: one ranking by delay, with cause and action, and links to the sections."""

from __future__ import annotations

from dataclasses import replace

from kquota_spark.reports.advice.quota_command import with_settings
from kquota_spark.reports.pages.headline import headline
from kquota_spark.reports.pages.opening import opening
from kquota_spark.reports.pages.page import page_of
from kquota_spark.reports.pages.page_html import html_page
from kquota_spark.reports.parts.page_parts import Link, Tone, Worst
from kquota_spark.reports.scope.shared_rows import Alternative, Recommendation, ThrottledBucket
from kquota_spark.reports.sections import AuditReport
from kquota_spark.reports.sections.buckets import PeriodBucket
from kquota_spark.reports.sections.limits import limits_section
from kquota_spark.reports.sections.throttled import throttled_section
from kquota_spark.reports.sections.to_do import BucketCause
from kquota_spark.reports.sections.trust import trust_section
from kquota_spark.reports.sections.usage import usage_section
from tests.support.reports.drawn_report import HOSTILE, full_report, name, throttled

LONG_TIME, MOST_DELAY, SHORT = (
    throttled(name("bob"), 90.0, 2_000),
    throttled(name("carol"), 40.0, 9_000),
    # 0.5 % of a day are 432 s, 7 min 12 s.
    throttled(name("dora"), 0.5, 1_000),
)
CARD = Recommendation(
    "users/carol", "producer_byte_rate", 1e6, 1.5e6, "x", "", cause="a steady load above the limit",
    bucket=MOST_DELAY.bucket,
)  # fmt: skip


def page(*throttles: ThrottledBucket) -> AuditReport:
    """Of four buckets the given ones are throttled."""
    buckets = (*(one.bucket for one in (LONG_TIME, MOST_DELAY, SHORT)), name("erin"))
    return replace(
        full_report(), throttled=throttles, throttled_left_out=0, recommendations=(CARD,), changes=(),
        changes_left_out=0, buckets=tuple(PeriodBucket(one, (1,), 1e6, 50.0, 0, 0) for one in buckets),
    )  # fmt: skip


def test_the_worst_are_ranked_by_delay_and_not_by_time_throttled() -> None:
    found = opening(page(LONG_TIME, MOST_DELAY, SHORT))
    # 2 + 9 + 1 s
    assert found.sentence == "3 of 4 buckets were throttled: 12.0 s of delay in all."
    assert [(one.bucket.text, one.delay, one.time) for one in found.worst] == [
        ("user carol, produce", "9.00 s", "40.0 % of the day"),
        ("user bob, produce", "2.00 s", "90.0 % of the day"),
        ("user dora, produce", "1.00 s", "7 min 12 s of the day"),
    ]
    chart = throttled_section(page(LONG_TIME, MOST_DELAY, SHORT)).blocks[0].chart
    assert chart is not None
    assert (chart.data["labels"][0], chart.data["values"]) == ("user carol", [9.0, 2.0, 1.0])


def test_a_bucket_with_an_advice_card_shows_its_cause_and_action_and_leads_to_both() -> None:
    (first,) = opening(page(MOST_DELAY)).worst
    assert first == Worst(
        Link("user carol, produce", "#bucket=produce/carol//"), "9.00 s", "40.0 % of the day",
        "a steady load above the limit", "raise 1.0 MB/s to 1.5 MB/s", "#card-1",
    )  # fmt: skip
    drawn = html_page(page(MOST_DELAY))
    assert '<a href="#bucket=produce/carol//">user carol, produce</a>' in drawn
    assert '<li id="card-1">' in drawn


def test_a_bucket_without_a_card_shows_its_cause_alone() -> None:
    report = replace(page(LONG_TIME), causes=(BucketCause(LONG_TIME.bucket, "bursts"),))
    (first,) = opening(report).worst
    assert (first.cause, first.action, first.card) == ("bursts", "", "")
    assert "bursts" in html_page(report)


def test_the_delay_of_buckets_that_are_left_out_is_in_the_sum() -> None:
    report = replace(page(MOST_DELAY), throttled_left_out=2, delay_left_out_ms=3_000)
    # 9 + 3 s
    assert headline(report)[0] == "3 of 4 buckets were throttled: 12.0 s of delay in all."
    assert opening(report).more == 2


def test_red_begins_above_the_objective() -> None:
    for percent, tone in ((1.0, Tone.PLAIN), (1.01, Tone.OVER)):
        report = page(throttled(name("bob"), percent))
        assert (throttled_section(report).tone, headline(report)[1][0].tone) == (tone, tone)


def test_the_mark_of_near_the_limit_is_that_of_its_tile() -> None:
    full = full_report()
    for near in (0, 2):
        report = replace(full, heat=(replace(full.heat[0], near=near, over=3),))
        assert limits_section(report).tone is headline(report)[1][1].tone


def test_the_badge_names_the_agreement_and_what_is_open_and_leads_to_the_section_on_trust() -> None:
    drawn = page_of(full_report())
    # (25,172 + 1,809) / (25,173 + 1,818) = 99.96 %; 100 - 97.25
    assert drawn.badge == Link("trust: with care, 99.96 % (2.8 % open)", "#trust", Tone.NEAR)
    assert [section.anchor for section in drawn.sections].count("trust") == 1


def test_the_tile_of_certain_seconds_is_not_called_the_total_delay() -> None:
    report = full_report()
    known = replace(report.confidence, certain_delay_ms=1_000, certain_delay_by_replay_ms=1_000)
    titles = [tile.title for tile in trust_section(replace(report, confidence=known)).tiles]
    assert "Delay checked" in titles
    assert "Total delay" not in titles


def test_a_hostile_bucket_is_only_ever_a_fragment() -> None:
    for text in HOSTILE:
        (first,) = opening(page(throttled(name(text), 2.0))).worst
        assert first.bucket.href.startswith("#bucket=produce/")
        assert not set(first.bucket.href) & set('<>"& \n')


def test_commands_name_the_settings_of_their_cluster() -> None:
    other = Alternative("for two hours only", "kquota override set --user=carol")
    card = replace(CARD, command="kquota alter --dry-run", alternatives=(other, Alternative("compress")))
    found = with_settings(card, "conf/my kquota.yaml")
    assert found.command == "kquota alter --dry-run --config 'conf/my kquota.yaml'"
    assert [one.command for one in found.alternatives] == [
        "kquota override set --user=carol --config 'conf/my kquota.yaml'",
        "",
    ]
    assert with_settings(card, "") is card
    assert with_settings(CARD, "kquota.yaml").command == ""


def test_a_section_without_a_measured_broker_is_left_out() -> None:
    report = full_report()
    unknown = replace(report, capacity=(replace(report.capacity[1], used_percent=None),))
    assert "capacity" in [one.anchor for one in page_of(report).sections]
    assert "capacity" not in [one.anchor for one in page_of(unknown).sections]


def test_one_broker_needs_one_sentence_on_the_spread() -> None:
    report = full_report()
    one = replace(report.skew[0], used_per_s={1: 5.0})
    last = usage_section(replace(report, skew=(one,))).blocks[-1]
    assert last.note == "All of it was on broker 1: its limits are those of the cluster."
    assert (last.title, last.chart, last.table) == ("Spread over brokers", None, None)
    # Another bucket of the period was on broker 2.
    elsewhere = PeriodBucket(name("erin"), (2,), 1e6, 50.0, 0, 0)
    assert usage_section(replace(report, skew=(one,), buckets=(elsewhere,))).blocks[-1].table is not None


def test_near_the_limit_has_20_rows_and_counts_the_others() -> None:
    near = tuple(PeriodBucket(name(f"u{number}"), (1,), 1e6, 90.0, 0, 0) for number in range(23))
    blocks = limits_section(replace(full_report(), buckets=near)).blocks
    (table,) = (block.table for block in blocks if block.title == "Near the limit")
    assert table is not None
    assert (len(table.rows), table.left_out) == (20, "and 3 more buckets")
