"""The recommender against its rivals on generated tenants: one outcome per tenant, and the lines of acceptance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from kquota_spark.model.rightsize.forecast import Forecast, day_levels, days_to_near, growth_of, trend_of
from kquota_spark.model.rightsize.target import TARGET_PERCENT, RightSize, mean_age, right_size
from tests.right_size.measures import autopilot, pinball, todays, vpa, windows_of
from tests.right_size.tenants import (
    DAY,
    HISTORY_DAYS,
    Array,
    Served,
    Tenant,
    demand_of,
    draw,
    serve,
    with_odd_day,
)

RIVALS = ("VPA (p90)", "VPA (p99)", "Autopilot", "the other estimate")
"""VPA as it is shipped, and at the same quantile; Autopilot; the estimate by the share of throttled seconds."""
_AT_ONCE = 50
"""Tenants in memory."""
_END = HISTORY_DAYS * DAY
_WEEK = 7 * DAY
_MOST_DAYS = 365


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of one tenant. Rates are multiples of the true quantile of the held-back week."""

    tenant: Tenant
    throttled_share: float
    """Throttled windows of the history, as share of all."""
    size: RightSize
    truth: float
    """The quantile, bytes per second."""
    moved: float
    """How much the odd day moves the target, as share of it."""
    losses: tuple[float, ...]
    """Pinball loss: the recommender, and its rivals in the order of `RIVALS`."""
    throttled_after: float
    """Share of windows that the target throttles in the held-back week."""
    forecast: Forecast | None
    true_days: float | None
    """Days until the demand reaches 80 % of the limit; None if it does not grow."""

    @property
    def is_covered(self) -> bool:
        """Whether the bounds hold the quantile."""
        upper = math.inf if self.size.upper is None else self.size.upper
        return self.size.lower <= self.truth <= upper

    @property
    def days_error(self) -> float | None:
        """The error of the forecast as share of the truth; None where one of them has no days ahead."""
        if self.forecast is None or self.true_days is None or not 0 < self.true_days <= _MOST_DAYS:
            return None
        return abs(self.forecast.days - self.true_days) / self.true_days


def outcomes(seed: int, tenants: int) -> Iterator[Outcome]:
    """The outcomes of the tenants 0, 1, 2, ... of a seed."""
    for first in range(0, tenants, _AT_ONCE):
        yield from _outcomes([draw(seed, number) for number in range(first, min(first + _AT_ONCE, tenants))])


class _Estimate(NamedTuple):
    size: RightSize
    forecast: Forecast | None


def _outcomes(tenants: list[Tenant]) -> Iterator[Outcome]:
    demand = np.stack([demand_of(tenant) for tenant in tenants], 1)
    last = demand[_END - _WEEK : _END]
    limits = np.array([_quantile(week) for week in last.T]) * [tenant.limit_ratio for tenant in tenants]
    odd = np.stack(
        [with_odd_day(tenant, column) for tenant, column in zip(tenants, demand.T, strict=True)], 1
    )
    seen = serve(tenants, odd[:_END], limits)
    plain = serve(tenants, demand[:_END], limits)
    estimates = [_estimate(seen, place, limit) for place, limit in enumerate(limits)]
    targets = np.array([one.size.target for one in estimates])
    after = serve(tenants, demand[_END:], targets)
    for place, (tenant, one) in enumerate(zip(tenants, estimates, strict=True)):
        week, limit = demand[_END:, place], float(limits[place])
        rate, throttled = seen.rate[:, place], seen.is_throttled[:, place]
        rivals = (vpa(rate, 90), vpa(rate, TARGET_PERCENT), autopilot(rate), todays(rate, throttled, limit))
        losses = tuple(pinball(week, value, TARGET_PERCENT) for value in (one.size.target, *rivals))
        yield Outcome(
            tenant,
            float(throttled.sum() / ((rate > 0) | throttled).sum()),
            one.size,
            _quantile(week),
            abs(one.size.target / _estimate(plain, place, limit).size.target - 1),
            losses,
            float(after.is_throttled[:, place].sum() / ((week > 0) | after.is_throttled[:, place]).sum()),
            one.forecast,
            _true_days(tenant, _quantile(last[:, place]), _quantile(week), limit),
        )


def _quantile(week: Array) -> float:
    return float(np.quantile(week[week > 0], TARGET_PERCENT / 100))


def _estimate(seen: Served, place: int, limit: float) -> _Estimate:
    windows = windows_of(seen.rate[:, place], seen.pace[:, place], seen.is_throttled[:, place])
    size = right_size(windows, HISTORY_DAYS)
    assert size is not None
    trend = trend_of(day_levels(windows, HISTORY_DAYS, size.left_out), HISTORY_DAYS)
    present = size.quantile * growth_of(trend, mean_age(HISTORY_DAYS, size.left_out))
    return _Estimate(size, days_to_near(trend, present, limit))


def _true_days(tenant: Tenant, before: float, after: float, limit: float) -> float | None:
    """From the quantiles of the weeks before and after the end of the history, which are half a week away from it."""
    if tenant.is_flat:
        return None
    return math.log(0.8 * limit / math.sqrt(before * after)) / math.log(1 + tenant.growth)


class Line(NamedTuple):
    """A line of acceptance."""

    name: str
    wanted: str
    found: str
    is_reached: bool


def lines(found: Sequence[Outcome]) -> list[Line]:
    """The lines of acceptance of these outcomes."""
    spoken = [one for one in found if not one.size.is_at_least]
    own, *rivals = (fmean(losses) for losses in zip(*(one.losses for one in found), strict=True))
    errors = [one.days_error for one in found if one.days_error is not None]
    flat = [one for one in found if one.tenant.is_flat]
    return [
        *(
            Line(f"pinball loss below that of {name}", ">= 20 %", f"{100 * (1 - own / loss):.1f} %", own <= 0.8 * loss)
            for name, loss in zip(RIVALS, rivals, strict=True)
        ),
        _share("bounds hold the quantile", found, lambda one: one.is_covered, 0.85, 0.95),
        _share("the same, without 'at least'", spoken, lambda one: one.is_covered, 0.85, 0.95),
        _share("throttled <= 2 % of windows after, all", found, lambda one: one.throttled_after <= 0.02, 0.95),
        _share("the same, without 'at least'", spoken, lambda one: one.throttled_after <= 0.02, 0.95),
        _share("moved < 5 % by one odd day", found, lambda one: one.moved < 0.05, 1.0),
        Line(
            f"median error of days to 80 %, {len(errors)} spoken", "<= 20 %",
            f"{100 * median(errors):.1f} %" if errors else "-", bool(errors) and median(errors) <= 0.2,
        ),
        _share("silent about flat tenants", flat, lambda one: one.forecast is None, 0.95),
        Line("tenants with 'at least'", "", f"{len(found) - len(spoken)} of {len(found)}", is_reached=True),
    ]  # fmt: skip


def _share(
    name: str, found: Sequence[Outcome], is_good: Callable[[Outcome], bool], least: float, most: float = 1.0
) -> Line:
    share = sum(map(is_good, found)) / max(1, len(found))
    wanted = f">= {least:.0%}" if most == 1.0 else f"{least:.0%} to {most:.0%}"
    return Line(name, wanted, f"{100 * share:.1f} %", least <= share <= most)
