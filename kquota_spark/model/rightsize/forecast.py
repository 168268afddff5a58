"""When the demand of a bucket reaches 80 % of its limit, by a damped trend; no answer where nothing is known.

A day has one level: the quantile of what it served. Only days of the same weekday are compared, so the week is no
trend. The slope is the median of such pairs. The forecast has an answer only if three things hold:

* The trend differs from chance, by the seasonal test of Kendall.
* On a held-back week it is better than the seasonal naive forecast, the same weekday of the week before: its mean
  absolute scaled error (MASE) is below 1.
* The demand grows, and reaches 80 % within a year.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import NamedTuple

from kquota_spark.model.rightsize.demand import Interval, distribution, value_at
from kquota_spark.model.rightsize.target import WEEK, DayWindows

NEAR_PERCENT = 80.0
"""Percent of the limit that the forecast is about."""
LEAST_WEEKS = 3
"""Fewest weeks of a forecast: the trend needs two, and the newest one tests it."""
MOST_DAYS_AHEAD = 365
DAMPING = 0.999
"""Ratio of the growth of a day to that of the day before: no trend lasts."""
LEAST_SCORE = 3.0
"""Smallest score of Kendall's test, standard deviations from no trend."""
_SURE_SCORE = 1.645
"""Standard deviations of the interval of the slope: it holds 90 %."""
LEVEL_PERCENT = 90.0

Levels = Mapping[int, float]
"""The natural logarithm of the level of each day, by age in days."""


class Trend(NamedTuple):
    """The growth of a bucket's demand: natural logarithms per day."""

    slope: float
    low: float
    high: float
    """Bounds of the slope, 90 %."""
    mase: float
    """Error on the held-back week, as multiple of that of the seasonal naive forecast."""
    score: float
    """Standard deviations from no trend."""

    @property
    def is_known(self) -> bool:
        """Whether the trend is better than the naive forecast, and differs from chance."""
        return self.mase < 1 and abs(self.score) >= LEAST_SCORE


class Forecast(NamedTuple):
    """Days until the demand reaches 80 % of the limit, with bounds; None is beyond a year."""

    days: float
    low: float
    high: float | None


def day_levels(windows: Sequence[DayWindows], days: int, left_out: int | None) -> dict[int, float]:
    """The level of each day with windows: a quantile of what was served.

    Args:
        windows: of one bucket of one broker.
        days: length of the history.
        left_out: age of the day that the right size leaves out.
    """
    found: dict[int, dict[Interval, float]] = {}
    for each in windows:
        if each.age < days and each.age != left_out:
            served = Interval(each.interval.low, each.interval.low)
            of_day = found.setdefault(each.age, {})
            of_day[served] = of_day.get(served, 0.0) + each.windows
    return {age: math.log(value_at(distribution(of_day), LEVEL_PERCENT)) for age, of_day in found.items()}


def trend_of(levels: Levels, days: int) -> Trend | None:
    """The trend of whole weeks; None if they are fewer than three, or too few of their days have a level.

    Args:
        levels: of the days; days without traffic have none.
        days: length of the history.
    """
    weeks = days // WEEK
    whole = {age: level for age, level in levels.items() if age < weeks * WEEK}
    if weeks < LEAST_WEEKS or not whole:
        return None
    slopes = _slopes(whole)
    mase = _mase(whole)
    if mase is None or len(slopes) < WEEK:
        return None
    deviation = math.sqrt(_variance(whole))
    signs = sum((slope > 0) - (slope < 0) for slope in slopes)
    spread = _SURE_SCORE * deviation
    last = len(slopes) - 1
    low = slopes[max(0, math.floor((len(slopes) - spread) / 2))]
    high = slopes[min(last, math.ceil((len(slopes) + spread) / 2))]
    return Trend(median(slopes), low, high, mase, signs / deviation)


def _slopes(levels: Levels) -> list[float]:
    """The growth per day of each pair of days with the same weekday, in order."""
    return sorted(
        (levels[newer] - levels[older]) / (older - newer)
        for newer, older in combinations(sorted(levels), 2)
        if (older - newer) % WEEK == 0
    )


def _variance(levels: Levels) -> float:
    """The variance of the sum of signs without a trend.

    Source: Hirsch, Slack and Smith, "Techniques of Trend Analysis for Monthly Water Quality Data", 1982.
    """
    counts = [sum(age % WEEK == weekday for age in levels) for weekday in range(WEEK)]
    return sum(count * (count - 1) * (2 * count + 5) for count in counts) / 18


def _mase(levels: Levels) -> float | None:
    """The error of the trend on the newest week, as multiple of that of the naive forecast; None if too few days."""
    known = {age: level for age, level in levels.items() if age >= WEEK}
    slopes = _slopes(known)
    naive = [abs(levels[age] - levels[age + WEEK]) for age in levels if age < WEEK and age + WEEK in levels]
    if not slopes or not naive:
        return None
    slope = median(slopes)
    errors = []
    for age in (age for age in levels if age < WEEK):
        same = [
            level + _growth(slope, older - age) for older, level in known.items() if (older - age) % WEEK == 0
        ]
        if same:
            errors.append(abs(levels[age] - median(same)))
    return fmean(errors) / max(fmean(naive), 1e-9) if errors else None


def _growth(slope: float, days: float) -> float:
    """The damped growth in so many days, natural logarithm."""
    return slope * (1 - math.pow(DAMPING, days)) / (1 - DAMPING)


def growth_of(trend: Trend | None, days: float) -> float:
    """The factor by which demand grows in so many days; 1 if no trend is known, or if it falls."""
    return (
        math.exp(_growth(trend.slope, days))
        if trend is not None and trend.is_known and trend.slope > 0
        else 1.0
    )


def days_to_near(trend: Trend | None, present: float, limit: float | None) -> Forecast | None:
    """When the demand reaches 80 % of the limit; None if nothing is known of it, or not within a year.

    Args:
        trend: of the demand.
        present: the quantile of demand now.
        limit: in force, in the same unit.
    """
    if limit is None or trend is None or not trend.is_known or trend.slope <= 0:
        return None
    left = math.log(NEAR_PERCENT / 100 * limit / present)
    days = _reached(trend.slope, left)
    if days is None:
        return None
    low = _reached(trend.high, left)
    return Forecast(days, days if low is None else low, _reached(trend.low, left))


def _reached(slope: float, left: float) -> float | None:
    """Days until the damped growth is as much as what is left; None if it is not within a year."""
    if left <= 0:
        return 0.0
    part = 1 - left * (1 - DAMPING) / slope if slope > 0 else 0.0
    days = math.log(part) / math.log(DAMPING) if part > 0 else math.inf
    return days if days <= MOST_DAYS_AHEAD else None
