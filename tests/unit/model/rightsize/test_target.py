"""The right size of histories that the test writes down: weights, the odd day, bounds, and when there is no number."""

from __future__ import annotations

import pytest

from kquota_spark.model.rightsize.demand import Interval
from kquota_spark.model.rightsize.target import (
    Bounds,
    DayWindows,
    RightSize,
    day_weights,
    mean_age,
    right_size,
)

BIN = 100
"""1.05 to the power of 100: 131.5 bytes per second."""


def day(age: int, *bins: tuple[int, int], high: int | None = -1) -> list[DayWindows]:
    """Windows of a day: pairs of bin and count; `high` is the last bin of all of them, -1 for the same one."""
    return [DayWindows(age, Interval(low, low if high == -1 else high), count) for low, count in bins]


def history(days: int = 14, *extra: DayWindows) -> list[DayWindows]:
    """A thousand windows per day in one bin."""
    return [*(each for age in range(days) for each in day(age, (BIN, 1_000))), *extra]


def sized(windows: list[DayWindows], days: int = 14, bounds: Bounds = Bounds()) -> RightSize:  # noqa: B008
    found = right_size(windows, days, bounds=bounds)
    assert found is not None
    return found


def test_the_weight_halves_every_week_and_each_weekday_has_the_same() -> None:
    # Two weeks: 1 and 0.5, of 1.5 in all.
    assert day_weights(14) == [1 / 1.5] * 7 + [0.5 / 1.5] * 7
    # Without yesterday its weekday has only the week before.
    assert [round(weight, 3) for weight in day_weights(14, 0)][::7] == [0.0, 1.0]
    # (0.5 + ... + 6.5) x 2/3 + (7.5 + ... + 13.5) x 1/3 = 24.5 x 2/3 + 73.5 x 1/3, of 7.
    assert mean_age(14) == pytest.approx((24.5 * 2 + 73.5) / 21)


def test_less_than_two_weeks_have_no_number() -> None:
    assert right_size(history(), 13) is None
    assert right_size([], 14) is None


def test_the_target_is_the_quantile_and_the_margin() -> None:
    found = sized(history())
    # All demand is in one bin: 99 % of its way up. The target is 10 % above, and no window is.
    assert found.quantile == pytest.approx(1.05**100.99)
    assert found.target == pytest.approx(1.05**100.99 * 1.1)
    assert (found.is_at_least, found.hidden_percent, found.above_percent) == (False, 0, 0)
    # No day is odd: the one that is left out changes nothing.
    assert found.odd_ratio == 1
    # The bounds of the quantile are the edges of its bin, each 1/14 wider.
    assert found.lower == pytest.approx(1.05**100 / (1 + 1 / 14))
    assert found.upper == pytest.approx(1.05**101 * (1 + 1 / 14))


def test_one_odd_day_does_not_move_the_target() -> None:
    odd = day(3, (BIN + 30, 1_000))
    found = sized(history(14, *odd))
    assert found.left_out == 3
    # 1,000 x 2/3 of 7,667 windows are 8.7 %: with that day the quantile is in its bin, 88.5 % of the way up.
    assert found.odd_ratio == pytest.approx(1.05 ** (130 + 0.885 - 100.99), rel=1e-4)
    assert found.target == sized(history()).target
    # A second such day is not odd any more.
    assert sized(history(14, *odd, *day(5, (BIN + 30, 1_000)))).quantile == pytest.approx(1.05**131, rel=0.05)
    # It still counts in what the target would throttle: 1000 x 2/3 of 7000 + 1000 x 2/3.
    assert found.above_least_percent == pytest.approx(100 * (1_000 * 2 / 3) / (7_000 + 1_000 * 2 / 3))


def test_a_day_that_throttles_hide_is_odd_too() -> None:
    # On day 3 nothing of the demand is known. Day 5 has more known windows at the quantile than any other.
    kept = [each for each in history(14, *day(5, (BIN + 2, 20))) if each.age != 3]
    found = sized([*kept, *day(3, (BIN, 1_000), high=None)])
    assert (found.left_out, found.hidden_percent) == (3, 0)
    # Day 3 hides 1,000 x 2/3 of 7,013 windows, 9.5 %, which would be half of a step up.
    assert found.target == pytest.approx(1.05**100.99 * 1.1, rel=1e-3)


def test_one_known_window_above_all_does_not_draw_the_hidden_ones() -> None:
    hidden = [
        each for age in range(14) for each in [*day(age, (BIN, 10)), *day(age, (BIN, 1_000), high=None)]
    ]
    found = sized([*hidden, *day(5, (BIN + 30, 1))])
    assert found.left_out == 5
    assert found.target == sized(hidden).target


def test_the_bounds_of_the_policy_cap_the_target() -> None:
    found = sized(history(), bounds=Bounds(1_000, 2_000))
    assert (found.target, round(found.uncapped)) == (1_000, 152)
    assert sized(history(), bounds=Bounds(1, 100)).target == 100
    # Under 100 all windows are throttled.
    assert sized(history(), bounds=Bounds(1, 100)).above_percent == 100


def test_demand_behind_too_many_throttles_is_only_at_least() -> None:
    hidden = [each for age in range(14) for each in day(age, (BIN + 5, 50), high=None)]
    found = sized(history(14, *hidden))
    # 50 of 1,050 windows per day are hidden, and beyond the known ones: the quantile is among them.
    assert found.is_at_least and found.upper is None
    assert found.hidden_percent == pytest.approx(100 * 50 / 1_050)
    assert found.quantile == pytest.approx(1.05**105)
    # They were served 1.05 ** 106 at most. That, 5 % more for the hidden share, and 40 % is a step towards the demand.
    assert found.target == pytest.approx(1.05**106 * (1 + 50 / 1_050) * 1.4)
    assert found.above_least_percent == 0
    assert found.above_most_percent == pytest.approx(100 * 50 / 1_050)


def test_more_than_a_tenth_of_hidden_windows_makes_any_quantile_uncertain() -> None:
    wide = [each for age in range(14) for each in day(age, (BIN, 120), high=BIN + 40)]
    found = sized(history(14, *wide))
    # 120 of 1,120 are 10.7 %; the known windows would place them all in one bin.
    assert found.is_at_least and found.upper is None
    few = [each for age in range(14) for each in day(age, (BIN, 100), high=BIN + 40)]
    assert not sized(history(14, *few)).is_at_least


def test_hidden_windows_raise_the_target_without_a_jump() -> None:
    def target(hidden: int) -> float:
        wide = [each for age in range(14) for each in day(age, (BIN, hidden), high=BIN + 40)]
        return sized(history(14, *wide)).target

    # 50 of 1,050 are below 5 %: no step. 100 of 1,100 are 9.1 %: 0.41 of it. 200 of 1,200 are 16.7 %: the whole.
    # The step is from what they were served at most, or the quantile, times 1 and their share.
    plain, part = 1.05**100.99 * 1.1, (100 * 100 / 1_100 - 5) / 10
    assert target(50) == pytest.approx(plain)
    whole = 1.05**101 * (1 + 100 / 1_100) * 1.4
    assert target(100) == pytest.approx(plain + part * (whole - plain))
    assert target(200) == pytest.approx(1.05**101 * (1 + 200 / 1_200) * 1.4)


def test_a_day_that_is_left_out_hides_nothing() -> None:
    found = sized(history(14, *day(3, (BIN + 30, 1_000), high=None)))
    assert (found.left_out, found.hidden_percent, found.is_at_least) == (3, 0, False)
    assert found.target == sized(history()).target


def test_a_single_active_day_is_not_left_out() -> None:
    found = sized(day(3, (BIN, 1_000)))
    assert (found.left_out, found.odd_ratio) == (None, 1)
    assert found.target == sized(history()).target
