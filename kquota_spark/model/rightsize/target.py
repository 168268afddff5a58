"""The right size of a limit: a quantile of demand over weeks, with bounds and what throttles would be left.

Recent weeks weigh more: the weight halves every seven days. Each day of the week has the same weight in total, so the
answer does not depend on the day on which it is asked. The day that raises it most is left out, so that a single
unusual day does not set a limit. The bounds have the form of those of Kubernetes' VPA: other quantiles, widened by
1 + 1/days of history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import fsum
from typing import NamedTuple

from kquota_spark.model.rightsize.demand import (
    Interval,
    Mass,
    distribution,
    least_of,
    most_of,
    quantile,
    share_above,
    value_at,
)

LEAST_DAYS, MOST_DAYS = 14, 28
"""Fewest days of history for an answer, and the days that are read at most."""
WEEK = 7
HALF_LIFE_WEEKS = 1.0
TARGET_PERCENT, LOWER_PERCENT, UPPER_PERCENT = 99.0, 98.5, 99.35
"""Percent of windows with no more demand than the target, the lower and the upper bound."""
MARGIN_PERCENT = 10.0
"""The target is so much above the quantile, percent: demand varies from week to week."""
HIDDEN_MARGIN_PERCENT = 40.0
"""The same where throttles hide the quantile, percent: the demand is above what is known."""
MOST_HIDDEN_PERCENT = 10.0
"""Percent of windows with hidden demand from which on the quantile is only a lower bound."""
_WIDEST_BINS = 4
"""Bins of a part of the distribution, from which on a quantile in it is only known to be at least its lower edge."""


class DayWindows(NamedTuple):
    """Windows of one day with their demand in the same bins."""

    age: int
    """Whole days before the end of the history, from 0."""
    interval: Interval
    windows: int


_Points = list[tuple[int, int, int]]
"""Windows with a known demand: age of the day, bin, number of windows."""


class Bounds(NamedTuple):
    """The least and the highest allowed limit, per second; None is not set."""

    least: float | None = None
    most: float | None = None

    def capped(self, value: float) -> float:
        """The nearest allowed value."""
        capped = value if self.most is None else min(value, self.most)
        return capped if self.least is None else max(capped, self.least)


class RightSize(NamedTuple):
    """The limit that fits a bucket. Rates per second, in the unit of the limit."""

    target: float
    """Within the bounds that were asked for."""
    uncapped: float
    """The same without them."""
    is_at_least: bool
    """Whether throttles hide the quantile: the demand is at least this, and how much more is not in the data."""
    quantile: float
    """The quantile of demand without margin."""
    lower: float
    upper: float | None
    """None if throttles hide it."""
    hidden_percent: float
    """Percent of the windows in which a throttle hid a part of the demand."""
    above_percent: float
    """Percent of windows with more demand than the target: those that it would throttle."""
    above_least_percent: float
    above_most_percent: float | None
    """Bounds of it: windows that are surely above, and those that may be. None without an end of the history."""
    left_out: int | None
    """Age of the day that was left out, days."""
    odd_ratio: float
    """How many times as high the quantile would be with that day."""
    days: int
    """Length of the history, days."""


def day_weights(days: int, left_out: int | None = None) -> list[float]:
    """The weight of each day of the history by its age; the days of each weekday add up to 1.

    Args:
        days: length of the history.
        left_out: age of a day without weight.
    """
    raw = [0.0 if age == left_out else 0.5 ** (age // WEEK / HALF_LIFE_WEEKS) for age in range(days)]
    sums = [sum(raw[weekday::WEEK]) for weekday in range(WEEK)]
    return [weight / sums[age % WEEK] if sums[age % WEEK] else 0.0 for age, weight in enumerate(raw)]


def mean_age(days: int, left_out: int | None = None) -> float:
    """The age of the middle of the history by these weights, days."""
    weights = day_weights(days, left_out)
    return sum(weight * (age + 0.5) for age, weight in enumerate(weights)) / sum(weights)


def weighted(windows: Iterable[DayWindows], weights: Sequence[float]) -> dict[Interval, float]:
    """The weights of windows by their interval."""
    found: dict[Interval, float] = defaultdict(float)
    for each in windows:
        if each.age < len(weights):
            found[each.interval] += weights[each.age] * each.windows
    return found


class _OddDay(NamedTuple):
    age: int | None
    without: _Estimate | None = None
    """The estimate without this day; None if it was not needed to find the day."""


def _highest_day(windows: Sequence[DayWindows], days: int, margin_percent: float) -> _OddDay:
    """The day that raises the target most; without windows its age is None.

    Only few days can be it, so not all are tried: the one with the most weight at or above the quantile of all days,
    and if a throttle hides the demand of some windows, two others. The first is that day if hidden demand is above
    everything. The second has the highest known demand, which the hidden windows of all days may share.
    """
    candidates = list(dict.fromkeys(_candidates(windows, days)))
    if len(candidates) < 2:
        return _OddDay(next(iter(candidates), None))
    estimates = {}
    for age in candidates:
        found = weighted(windows, day_weights(days, age))
        if any(found.values()):
            estimates[age] = _estimate(found, margin_percent)
    highest = min(estimates, key=lambda age: estimates[age].uncapped, default=candidates[0])
    return _OddDay(highest, estimates.get(highest))


def _candidates(windows: Sequence[DayWindows], days: int) -> Iterator[int]:
    recent = [each for each in windows if each.age < days]
    if not recent:
        return
    weights = day_weights(days)
    yield _busiest(_at_pace(recent), weights)
    if any(each.interval.high is None for each in recent):
        top = max(each.interval.low if each.interval.high is None else each.interval.high for each in recent)
        yield _busiest(_at_pace(recent, top + 1), weights)
        known = [each for each in recent if each.interval.low == each.interval.high]
        if known:
            yield max(known, key=lambda each: (each.interval.low, -each.age)).age


def _busiest(points: _Points, weights: Sequence[float]) -> int:
    """Age of the day with the most weight at or above the quantile of all days."""
    edge = quantile(_distribution_at(points, weights), TARGET_PERCENT).low
    above: dict[int, float] = defaultdict(float)
    for age, place, windows in points:
        if place >= edge:
            above[age] += weights[age] * windows
    return max(above, key=lambda age: (above[age], -age))


def odd_ratio(windows: Sequence[DayWindows], days: int, left_out: int | None) -> float:
    """How many times as high the quantile would be with the day that is left out.

    Args:
        windows: of the history.
        days: its length.
        left_out: age of the day.
    """
    points = [point for point in _at_pace(windows) if point[0] < days]
    if not points:
        return 1.0
    whole, without = (
        value_at(_distribution_at(points, weights), TARGET_PERCENT)
        for weights in (day_weights(days), day_weights(days, left_out))
    )
    return whole / without


def _at_pace(windows: Iterable[DayWindows], unbounded: int | None = None) -> _Points:
    """The windows with the demand at their pace.

    Args:
        windows: of one bucket of one broker.
        unbounded: the bin of a window without a bound; None for what it got.
    """
    return [
        (age, (low if unbounded is None else unbounded) if high is None else high, count)
        for age, (low, high), count in windows
    ]


def _distribution_at(points: _Points, weights: Sequence[float]) -> list[Mass]:
    """The distribution of demand that is known to be in one bin each."""
    found: dict[int, float] = defaultdict(float)
    for age, place, windows in points:
        found[place] += weights[age] * windows
    return distribution({Interval(place, place): weight for place, weight in found.items()})


def right_size(
    windows: Sequence[DayWindows],
    days: int,
    *,
    bounds: Bounds = Bounds(),  # noqa: B008 - a tuple
    margin_percent: float = MARGIN_PERCENT,
) -> RightSize | None:
    """The right size by the windows of a history; None if it is too short, or without windows.

    Args:
        windows: of one bucket of one broker.
        days: length of the history.
        bounds: of the limit.
        margin_percent: the target is so much above the quantile.
    """
    if days < LEAST_DAYS:
        return None
    left_out, estimate = _highest_day(windows, days, margin_percent)
    if estimate is None:
        found = weighted(windows, day_weights(days, left_out))
        if not any(found.values()):  # it was active on that day only
            left_out, found = None, weighted(windows, day_weights(days))
        if not any(found.values()):
            return None
        estimate = _estimate(found, margin_percent)
    masses, value, uncapped, hidden_percent, is_at_least = estimate
    target = bounds.capped(uncapped)
    widened = 1 + 1 / days
    whole = weighted(windows, day_weights(days))
    return RightSize(
        target, uncapped, is_at_least, value,
        least_of(quantile(masses, LOWER_PERCENT).low) / widened,
        None if is_at_least else _upper(quantile(masses, UPPER_PERCENT), widened),
        hidden_percent,
        100 * share_above(masses, target),
        100 * _share(whole, lambda one: least_of(one.low) > target),
        100 * _share(whole, lambda one: one.high is None or most_of(one.high) > target),
        left_out,
        odd_ratio(windows, days, left_out),
        days,
    )  # fmt: skip


class _Estimate(NamedTuple):
    masses: list[Mass]
    value: float
    """The quantile without margin."""
    uncapped: float
    hidden_percent: float
    is_at_least: bool


def _estimate(found: Mapping[Interval, float], margin_percent: float) -> _Estimate:
    """The target by the weights of windows, which are not all 0."""
    masses = distribution(found)
    at = quantile(masses, TARGET_PERCENT)
    hidden_percent = 100 * _share(found, _is_hidden)
    is_hidden = at.width > _WIDEST_BINS
    value = value_at(masses, TARGET_PERCENT) if not at.width or is_hidden else most_of(at.high or at.low)
    own = value * (1 + margin_percent / 100)
    step = max(value, _step_from(found)) * (1 + HIDDEN_MARGIN_PERCENT / 100)
    part = 1.0 if is_hidden else _ramp(hidden_percent)
    return _Estimate(
        masses,
        value,
        own + part * (step - own),
        hidden_percent,
        is_hidden or hidden_percent > MOST_HIDDEN_PERCENT,
    )


def _upper(at: Mass, factor: float) -> float | None:
    return None if at.high is None else most_of(at.high) * factor


def _ramp(hidden_percent: float) -> float:
    """The part of the step that counts, 0 to 1: a day more or less of hidden windows must not make a jump."""
    first, last = MOST_HIDDEN_PERCENT / 2, MOST_HIDDEN_PERCENT * 1.5
    return min(max((hidden_percent - first) / (last - first), 0.0), 1.0)


def _is_hidden(one: Interval) -> bool:
    """Whether a throttle hides the demand of a window."""
    return one.high is None or one.high - one.low > _WIDEST_BINS


def _step_from(found: Mapping[Interval, float]) -> float:
    """What hidden windows were served on average, times 1 and their share: the more are hidden, the more is missing."""
    hidden = {one: weight for one, weight in found.items() if weight and _is_hidden(one)}
    if not hidden:
        return 0.0
    served = fsum(weight * most_of(one.low) for one, weight in hidden.items()) / fsum(hidden.values())
    return served * (1 + _share(found, _is_hidden))


def _share(found: Mapping[Interval, float], is_meant: Callable[[Interval], bool]) -> float:
    return fsum(weight for one, weight in found.items() if is_meant(one)) / fsum(found.values())
