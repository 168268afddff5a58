"""The worst buckets side by side: percent of their own limits on the same axes, with the edits of those limits."""

from __future__ import annotations

from dataclasses import replace

from kquota_spark.reports.parts.page_parts import Chart
from kquota_spark.reports.scope.shared_rows import BucketName, Change
from kquota_spark.reports.sections import AuditReport
from kquota_spark.reports.sections.rates import Line
from kquota_spark.reports.sections.throttled import throttled_section
from tests.support.reports.drawn_report import full_report

BOB, CAROL, DAVE = (BucketName("produce", user, "", "") for user in ("bob", "carol", "dave"))


def line(bucket: BucketName, throttled_ms: tuple[int, ...], *, rule: str = "users/bob") -> Line:
    rates, limits = (100.0, None, 330.0), (200.0, 200.0, 300.0)
    return Line(bucket, 1, 60_000, (0, 60_000, 120_000), rates, (True,) * 3, limits, throttled_ms, (rule,))


def chart(report: AuditReport) -> Chart | None:
    charts = [block.chart for block in throttled_section(report).blocks if block.chart is not None]
    return next((one for one in charts if one.anchor == "chart-worst"), None)


def test_the_most_delayed_come_first_in_percent_of_their_limits() -> None:
    edits = [
        Change(60_500, "users/bob", "producer_byte_rate", 200.0, 300.0, "edit", ""),
        Change(61_000, "users/bob", "consumer_byte_rate", 200.0, 300.0, "edit", ""),  # of the other type
    ]
    lines = [
        line(BOB, (0, 0, 1_000)),
        line(CAROL, (0, 0, 2_500), rule="users/carol"),
        line(DAVE, (0, 0, 0)),  # not throttled
    ]
    found = chart(replace(full_report(), lines=lines, changes=edits))
    assert found is not None
    assert found.data["panels"] == [
        {
            "label": "user carol, produce", "percent": [50.0, None, 110.0], "throttled": ["", "", "2.50 s"],
            "edits": [],
        },
        {
            "label": "user bob, produce", "percent": [50.0, None, 110.0], "throttled": ["", "", "1.00 s"],
            "edits": [60_500],
        },
    ]  # fmt: skip
    # A tenth above the highest, 1.1 x 110.
    assert round(found.data["most"], 6) == 121.0
    assert (found.data["slots"], found.data["slot_ms"]) == ((0, 60_000, 120_000), 60_000)


def test_nine_at_most_and_none_for_one_alone() -> None:
    names = [BucketName("produce", f"user-{number}", "", "") for number in range(12)]
    lines = [line(bucket, (number + 1, 0, 0)) for number, bucket in enumerate(names)]
    found = chart(replace(full_report(), lines=lines, changes=[]))
    assert found is not None
    assert [panel["label"] for panel in found.data["panels"]] == [
        f"user user-{number}, produce" for number in range(11, 2, -1)
    ]
    assert chart(replace(full_report(), lines=lines[:1], changes=[])) is None
