"""Values of a default against what ten buckets need: whom it fits, whom it throttles, which overrides it saves."""

from __future__ import annotations

from kquota_spark.model.rightsize.defaults import DefaultQuality, Need, grid, quality

NEEDS = [
    Need(100.0, is_override=False), Need(400.0, is_override=False), Need(900.0, is_override=False),
    Need(300.0, is_override=True), Need(2_000.0, is_override=True),
]  # fmt: skip


def test_a_lower_default_throttles_those_that_need_more() -> None:
    # In force is 500: 100 and 400 fit it, 900 does not. Under 200 only 400 is newly throttled.
    assert quality(NEEDS, 200.0, 500.0) == DefaultQuality(200.0, 1, 5, 1, 0, 2)
    assert quality(NEEDS, 500.0, 500.0) == DefaultQuality(500.0, 3, 5, 0, 1, 2)
    assert quality(NEEDS, 500.0, 500.0).coverage_percent == 60.0
    # Without a default in force nobody is throttled now.
    assert quality(NEEDS, 200.0, None).collateral == 2


def test_the_grid_holds_what_all_need_and_the_value_in_force() -> None:
    assert grid(NEEDS, 450.0) == [100.0, 200.0, 450.0, 500.0, 1_000.0, 2_000.0]
    assert grid([], None) == []
