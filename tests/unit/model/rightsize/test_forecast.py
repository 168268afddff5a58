"""Trends and days to 80 %: found where demand grows, and silent where it does not."""

from __future__ import annotations

import math

import pytest

from kquota_spark.model.rightsize.demand import Interval, bin_of
from kquota_spark.model.rightsize.forecast import (
    Trend,
    day_levels,
    days_to_near,
    growth_of,
    trend_of,
)
from kquota_spark.model.rightsize.target import DayWindows

WEEK = [0.0, 0.1, 0.3, 0.2, 0.1, -0.5, -0.6]
"""How much each weekday differs."""
NOISE = [0.01, -0.02, 0.015, -0.005, 0.02, -0.01, 0.0, -0.015, 0.01, 0.005, -0.01]


def levels(growth: float, days: int = 28, noise: float = 1.0) -> dict[int, float]:
    """The level of each day by its age: a week, a growth per day, and fixed noise."""
    return {age: 10 - growth * age + WEEK[age % 7] + noise * NOISE[age % len(NOISE)] for age in range(days)}


def known(growth: float, noise: float = 1.0) -> Trend:
    found = trend_of(levels(growth, noise=noise), 28)
    assert found is not None
    return found


def test_growth_without_noise_is_found_exactly() -> None:
    found = known(0.01, noise=0.0)
    assert found.slope == pytest.approx(0.01)
    # Six pairs of each of seven weekdays, all of them growing: 42 of sqrt(7 x 4 x 3 x 13 / 18) = 7.79.
    assert found.score == pytest.approx(42 / math.sqrt(7 * 4 * 3 * 13 / 18))
    # The naive forecast is wrong by a week of growth, the trend nearly not at all.
    assert found.mase < 0.6 and found.is_known


def test_a_week_that_repeats_is_no_trend() -> None:
    assert not known(0.0).is_known
    assert growth_of(known(0.0), 30) == 1.0
    assert days_to_near(known(0.0), 100.0, 200.0) is None


def test_less_than_three_weeks_say_nothing() -> None:
    assert trend_of(levels(0.01, 20), 20) is None
    assert trend_of({}, 28) is None


def test_days_to_80_percent_by_the_damped_growth() -> None:
    trend = Trend(0.01, 0.008, 0.012, 0.5, 5.0)
    # 100 reaches 160 of 200: ln 1.6 = 0.47 = 0.01 x (1 - 0.999^d) / 0.001, so d = ln(1 - 0.047) / ln 0.999.
    found = days_to_near(trend, 100.0, 200.0)
    assert found is not None
    assert found.days == pytest.approx(math.log(1 - 0.1 * math.log(1.6)) / math.log(0.999))
    assert found.low < found.days < (found.high or 0)
    assert days_to_near(trend, 170.0, 200.0) == (0, 0, 0)
    # In a year it grows by 0.01 x (1 - 0.999^365) / 0.001 = 3.06 at most, so a limit 30 times as high is not reached.
    assert days_to_near(trend, 100.0, 3_000.0) is None
    assert days_to_near(trend, 100.0, None) is None


def test_a_trend_that_is_no_better_than_last_week_is_not_known() -> None:
    assert not Trend(0.01, 0.008, 0.012, 1.0, 5.0).is_known
    assert not Trend(0.01, 0.008, 0.012, 0.5, 2.9).is_known
    assert days_to_near(Trend(-0.01, -0.02, 0.0, 0.5, -5.0), 100.0, 200.0) is None


def test_the_level_of_a_day_is_of_what_was_served_without_the_odd_day() -> None:
    place = bin_of(1_000)
    windows = [DayWindows(age, Interval(place, place), 100) for age in range(14)]
    odd = [DayWindows(4, Interval(place + 40, None), 100)]
    found = day_levels([*windows, *odd], 14, left_out=4)
    assert sorted(found) == [age for age in range(14) if age != 4]
    # 90 % of the way through the bin.
    assert found[0] == pytest.approx(math.log(1.05) * (place + 0.9))
