"""The heat map, the lines and the skew: slots of time, the hottest, the steps of limits, the spread over brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.reports.pages.headline import headline
from kquota_spark.reports.pages.opening import opening
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.report_scope import MOST_SLOTS, slot_length_ms, slots_of
from kquota_spark.reports.sections.limits import limits_section
from tests.support.reports.gathered_report import gathered, throttled
from tests.support.tables.table_rows import T0_MS, decision


@pytest.mark.parametrize(
    ("seconds", "slot_s"),
    # 96 slots of a second; one second more needs two; a day has 96 quarters of an hour
    [(10, 1), (96, 1), (97, 2), (600, 10), (86_400, 900), (7 * 86_400, 7_200), (400 * 86_400, 7 * 86_400)],
)
def test_slots_are_as_short_as_96_of_them_can_be(seconds: int, slot_s: int) -> None:
    midnight_ms = T0_MS - T0_MS % 86_400_000
    period = Period(midnight_ms, midnight_ms + seconds * 1_000)
    assert slot_length_ms(period) == slot_s * 1_000
    assert len(slots_of(period, slot_s * 1_000)) <= MOST_SLOTS


def test_slots_begin_at_round_times_whenever_the_period_does() -> None:
    # From 05:40:07 to 05:40:31 in slots of ten seconds: those of :00, :10, :20 and :30.
    assert [slot - T0_MS for slot in slots_of(Period(T0_MS + 7_000, T0_MS + 31_000), 10_000)] == [
        0,
        10_000,
        20_000,
        30_000,
    ]


def test_a_heat_map_holds_the_highest_percent_of_each_slot_of_the_hottest(tmp_path: Path) -> None:
    rows = [
        decision(0, quota_used_percent=40.0),
        decision(0, broker_id=2, quota_used_percent=70.0),
        decision(2, quota_used_percent=101.0),
        decision(1, bucket_user="bob", quota_used_percent=120.0),
        decision(1, bucket_user="carol", quota_used_percent=5.0),
        decision(1, bucket_user="free", limit_per_s=None, quota_used_percent=None),
        decision(0, quota_type="request", bucket_user="alice", quota_used_percent=9.0),
    ]
    produce, request = gathered(tmp_path, decisions=rows, seconds=4, heat_rows=2).heat
    assert produce.slots == tuple(T0_MS + at_s * 1_000 for at_s in range(4))
    assert [bucket.user for bucket in produce.buckets] == ["bob", "alice"]
    assert produce.quota_used_percent == ((None, 120.0, None, None), (70.0, None, 101.0, None))
    assert (produce.left_out, request.left_out) == (1, 0)
    assert request.quota_used_percent == ((9.0, None, None, None),)


def test_a_second_that_is_not_certain_makes_no_peak_and_is_shown_where_there_is_no_other(
    tmp_path: Path,
) -> None:
    rows = [
        decision(0, quota_used_percent=90.0),
        decision(0, broker_id=2, quota_used_percent=250.0, is_certain=False),
        decision(1, quota_used_percent=104.0, is_certain=False),
        decision(2, bucket_user="bob", quota_used_percent=300.0, is_certain=False),
    ]
    report = gathered(tmp_path, decisions=rows, seconds=3)
    (produce,) = report.heat
    assert [bucket.user for bucket in produce.buckets] == ["alice", "bob"]
    assert produce.quota_used_percent == ((90.0, None, None), (None, None, None))
    assert produce.uncertain_percent == ((None, 104.0, None), (None, None, 300.0))
    assert (produce.near, produce.over) == (1, 0)
    (near,) = (block for block in limits_section(report).blocks if block.title == "Near the limit")
    assert near.table is not None
    assert [[cell.text for cell in row[:4]] for row in near.table.rows] == [
        ["user alice", "produce", "90.0 %", "10.0 %"]
    ]


def test_a_slot_of_two_seconds_holds_the_higher_one(tmp_path: Path) -> None:
    rows = [decision(10, quota_used_percent=70.0), decision(11, quota_used_percent=90.0)]
    (produce,) = gathered(tmp_path, decisions=rows, seconds=100).heat
    assert produce.slot_ms == 2_000
    assert [percent for percent in produce.quota_used_percent[0] if percent is not None] == [90.0]


def test_a_line_is_of_the_worst_broker_and_its_limit_stands_while_the_bucket_is_silent(
    tmp_path: Path,
) -> None:
    rows = [
        throttled(1, 100, broker_id=2, limit_per_s=1e6, rate_per_s=1.2e6),
        throttled(3, 50, broker_id=2, limit_per_s=2e6, rate_per_s=2.1e6),
        decision(0, broker_id=1, limit_per_s=9e6),
    ]
    (line,) = gathered(tmp_path, decisions=rows, seconds=5).lines
    assert line.broker_id == 2
    assert line.rate_per_s == (None, 1.2e6, None, 2.1e6, None)
    assert line.limit_per_s == (None, 1e6, 1e6, 2e6, 2e6)
    assert line.delay_ms == (0, 100, 0, 50, 0)


def test_lines_are_first_of_those_throttled_then_of_the_hottest(tmp_path: Path) -> None:
    rows = [
        decision(0, bucket_user="hot", quota_used_percent=99.0),
        decision(0, bucket_user="warm", quota_used_percent=60.0),
        throttled(0, bucket_user="held", quota_used_percent=50.0),
    ]
    lines = gathered(tmp_path, decisions=rows, top=2).lines
    assert [line.bucket.user for line in lines] == ["held", "hot"]


def test_skew_is_the_highest_broker_by_the_mean_and_limits_add_up_over_brokers(tmp_path: Path) -> None:
    rows = [
        decision(0, rate_per_s=600_000.0, limit_per_s=1e6),
        decision(1, rate_per_s=400_000.0, limit_per_s=1e6),
        decision(0, broker_id=2, rate_per_s=100_000.0, limit_per_s=1e6),
    ]
    (skew,) = gathered(tmp_path, decisions=rows).skew
    # broker 1: (600,000 + 400,000) / 2; mean of 500,000 and 100,000 is 300,000
    assert skew.used_per_s == {1: 500_000.0, 2: 100_000.0}
    assert skew.max_to_mean == 500_000 / 300_000
    assert (skew.cluster_limit_per_s, skew.with_one_more_broker_per_s) == (2e6, 3e6)


def test_those_near_and_over_count_also_where_the_heat_map_has_no_row_for_them(tmp_path: Path) -> None:
    rows = [throttled(0, bucket_user=f"held-{number}", quota_used_percent=150.0) for number in range(3)]
    rows += [decision(0, bucket_user="over", quota_used_percent=101.0)]
    rows += [
        decision(0, bucket_user=f"near-{number}", quota_used_percent=80.0 + number) for number in range(2)
    ]
    rows += [throttled(0, bucket_user="held-near", quota_used_percent=100.0)]
    rows += [decision(0, bucket_user="calm", quota_used_percent=79.9)]
    report = gathered(tmp_path, decisions=rows, heat_rows=2)
    (produce,) = report.heat
    assert (len(produce.buckets), produce.left_out) == (2, 6)
    # near: 80, 81 and the one held at 100; over: three at 150 and one at 101; of these seven, four were throttled
    assert (produce.near, produce.over, produce.near_unthrottled) == (3, 4, 3)
    # eight buckets of the rows
    assert headline(report)[0].startswith("4 of 8 buckets were throttled: ")
    assert dict(opening(report).others)["near a limit"].text == "3 buckets"


def test_who_came_near_is_counted_whether_throttled_or_not(tmp_path: Path) -> None:
    rows = [decision(0, quota_used_percent=95.0)]
    report = gathered(tmp_path, decisions=rows)
    assert headline(report)[0] == "Nobody was throttled."
    assert dict(opening(report).others)["near a limit"].text == "1 bucket"
