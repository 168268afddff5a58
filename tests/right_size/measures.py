"""What the recommender and its rivals make of the same windows, and how good that is against the known demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kquota_spark.enforce.policies.context import demand_per_s
from kquota_spark.enforce.policies.observations import UsedSeconds
from kquota_spark.model.rightsize.demand import BIN_GROWTH, interval_of, is_natural, most_of
from kquota_spark.model.rightsize.target import DayWindows
from tests.right_size.tenants import DAY, Array

_LOG = np.log(BIN_GROWTH)
_NO_BOUND = -1
_VPA_HALF_LIFE_DAYS, _VPA_MARGIN = 1.0, 1.15


class Autopilot(NamedTuple):
    """The parameters of Autopilot's argmin. Source: Rzadca et al., "Autopilot", EuroSys 2020."""

    half_life_days: float
    over: float
    """Weight of what the limit would have thrown away; that of slack is 1."""
    change: float
    """Cost of a change of the limit, as multiple of what was served."""
    margin: float


AUTOPILOT = Autopilot(half_life_days=0.5, over=99.0, change=0.02, margin=1.7)
"""The least pinball loss on a grid, of 40 tenants of each of the seeds 1 to 3."""


def bins_of(rates: Array) -> Array:
    """The bins of rates."""
    found: Array = np.maximum(0, np.floor(np.log(np.maximum(rates, 1.0)) / _LOG + 1e-12)).astype(int)
    return found


def catch_up_ratio(pace: Array, is_throttled: Array) -> float | None:
    """The pace in the second window of a throttle, as multiple of that in its first: the median."""
    first = is_throttled[:-1] & ~np.concatenate([[False], is_throttled[:-2]]) & is_throttled[1:]
    at = first & np.isfinite(pace[:-1]) & np.isfinite(pace[1:])
    return float(np.median(pace[1:][at] / pace[:-1][at])) if at.any() else None


def windows_of(rate: Array, pace: Array, is_throttled: Array) -> list[DayWindows]:
    """The windows of a history of whole days as the recommender reads them, newest day first by age."""
    days = len(rate) // DAY
    natural = is_natural(catch_up_ratio(pace, is_throttled))
    age = days - 1 - np.arange(len(rate)) // DAY
    known = np.isfinite(pace)
    own = np.where(known, bins_of(np.where(known, pace, 1.0)), _NO_BOUND)
    active = (rate > 0) | is_throttled
    # One number per row is sorted faster than rows.
    base = 1_000
    keys = ((age * base + bins_of(rate)) * base + own - _NO_BOUND) * 3 + is_throttled
    keys += is_throttled & ~np.concatenate([[False], is_throttled[:-1]])
    cells, counts = np.unique(keys[active], return_counts=True)
    found = []
    for key, count in zip(cells.tolist(), counts.tolist(), strict=True):
        rest, kind = divmod(key, 3)
        rest, own_place = divmod(rest, base)
        age_days, low = divmod(rest, base)
        place = None if own_place + _NO_BOUND == _NO_BOUND else own_place + _NO_BOUND
        interval = interval_of(low, place, is_throttled=kind > 0, is_natural=natural or kind == 2)
        found.append(DayWindows(age_days, interval, count))
    return found


def vpa(rate: Array, percent: float) -> float:
    """The recommendation of VPA on what was served: a quantile with a half-life of a day, and 15 %."""
    place = bins_of(rate)
    weight = 0.5 ** ((len(rate) - 1 - np.arange(len(rate))) / DAY / _VPA_HALF_LIFE_DAYS) * (rate > 0)
    sums = np.cumsum(np.bincount(place, weight))
    return most_of(int(np.searchsorted(sums, percent / 100 * sums[-1]))) * _VPA_MARGIN


@dataclass(frozen=True, slots=True)
class _Use(UsedSeconds):
    seconds: int
    throttled_seconds: int
    p95_rate_per_s: float
    throttled_rate_per_s: float


def autopilot(rate: Array) -> float:
    """The recommendation of Autopilot on what was served: each day the limit with the least cost, and a margin.

    The cost adds up what the limit would have thrown away, the slack below it, and a change of the limit. Days count
    less the older they are. It does not know what throttles hide.
    """
    places = bins_of(rate)
    edges = np.exp(np.arange(places.max() + 2) * _LOG)[1:]
    middles = edges / np.sqrt(BIN_GROWTH)
    counts = np.zeros(len(edges))
    chosen = None
    for day, active in zip(
        np.split(places, len(rate) // DAY), np.split(rate > 0, len(rate) // DAY), strict=True
    ):
        counts = counts * 0.5 ** (1 / AUTOPILOT.half_life_days) + np.bincount(day, active, len(edges))
        if not counts.any():
            continue
        below, amount = np.cumsum(counts), np.cumsum(counts * middles)
        over = np.maximum(amount[-1] - amount - edges * (below[-1] - below), 0.0)
        slack = np.maximum(edges * below - amount, 0.0)
        cost = (AUTOPILOT.over * over + slack) / amount[-1]
        if chosen is not None:
            cost += AUTOPILOT.change * (np.arange(len(edges)) != chosen)
        chosen = int(np.argmin(cost))
    assert chosen is not None
    return float(edges[chosen]) * AUTOPILOT.margin


def todays(rate: Array, is_throttled: Array, limit: float) -> float:
    """Today's estimate of advice and policies."""
    active = (rate > 0) | is_throttled
    free = rate[active & ~is_throttled]
    use = _Use(
        int(active.sum()), int(is_throttled.sum()),
        float(np.quantile(free, 0.95)) if len(free) else 0.0,
        float(rate[is_throttled].mean()) if is_throttled.any() else 0.0,
    )  # fmt: skip
    return demand_per_s(use, limit)


def pinball(demand: Array, value: float, percent: float) -> float:
    """The mean pinball loss of a quantile, as multiple of the true one."""
    wanted = demand[demand > 0]
    over = wanted - value
    share = percent / 100
    return float(np.mean(np.where(over > 0, share * over, (share - 1) * over)) / np.quantile(wanted, share))
