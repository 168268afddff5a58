"""The sentences about a right size: why there is none, what it rests on, and when a limit is near."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Protocol

from kquota_spark.formats.text.person_units import rate_text
from kquota_spark.model.rightsize.forecast import MOST_DAYS_AHEAD, NEAR_PERCENT, Forecast
from kquota_spark.model.rightsize.target import LEAST_DAYS
from kquota_spark.rightsize.recommended import Recommendation
from kquota_spark.store.dated_files import DAY_MS

TOO_LOW, TOO_HIGH = "too low", "too high"
"""First words of the reason of a limit that does not fit."""
_SIZED_PERCENT = 10.0
"""A limit is too high if it is so much above the upper bound of the demand, percent."""
_ODD_RATIO = 1.1
"""A day is odd if it would make the demand so many times as high."""


class SizeBounds(Protocol):
    """The bounds of a demand; `rows.SizeRow` describes them."""

    @property
    def quota_type(self) -> str:
        """Its unit is that of the rates."""

    @property
    def demand_per_s(self) -> float | None:
        """None if the history is too short."""

    @property
    def lower_per_s(self) -> float | None:
        """None if the history is too short."""

    @property
    def upper_per_s(self) -> float | None:
        """None if throttles hide it."""


def reason_of(one: Recommendation, to_ms: int) -> str:
    """Why a bucket has this target, or none.

    Args:
        one: the recommendation.
        to_ms: end of the history, epoch ms.
    """
    if one.size is None:
        return f"too short: {one.history_days:.1f} of {LEAST_DAYS} days"
    return "; ".join(_parts(one, to_ms))


def _parts(one: Recommendation, to_ms: int) -> Iterator[str]:
    size, limit = one.size, one.limit_per_s
    assert size is not None
    if limit is None:
        yield "no limit"
    elif size.is_at_least:
        yield "throttles hide the demand"
    elif limit < size.target:
        yield TOO_LOW
    elif one.forecast is None and size.upper is not None and limit > size.upper * (1 + _SIZED_PERCENT / 100):
        yield TOO_HIGH
    else:
        yield "fits"
    if size.target != size.uncapped:
        yield "capped by guards.bounds"
    if one.trend is not None and one.trend.is_known:
        yield f"{100 * one.trend.slope:+.1f} % per day"
    if size.left_out is not None and size.odd_ratio >= _ODD_RATIO:
        yield f"without {left_out_day(size.left_out, to_ms)}"


def left_out_day(age: int, to_ms: int) -> str:
    """The day that was left out, by its start, `2026-11-20`.

    Args:
        age: whole days before the end of the history.
        to_ms: that end, epoch ms.
    """
    return datetime.fromtimestamp((to_ms - (age + 1) * DAY_MS) / 1_000, UTC).strftime("%Y-%m-%d")


def days_text(forecast: Forecast | None) -> str:
    """When a limit is near: `12 (9 to 20)`, `now`, or `-` if nothing is known."""
    if forecast is None:
        return "-"
    if forecast.days == 0:
        return "now"
    high = f"{forecast.high:.0f}" if forecast.high is not None else f"over {MOST_DAYS_AHEAD}"
    return f"{forecast.days:.0f} ({forecast.low:.0f} to {high})"


NEAR_TITLE = f"days to {NEAR_PERCENT:.0f} %"


def demand_text(row: SizeBounds) -> str:
    """The bounds of the demand, `375 to 432 kB/s`; `≥ 95.4 kB/s` where throttles hide the upper one."""
    if row.demand_per_s is None or row.lower_per_s is None:
        return "-"
    if row.upper_per_s is None:
        return f"≥ {rate_text(row.quota_type, row.demand_per_s)}"
    lower, upper = (rate_text(row.quota_type, value) for value in (row.lower_per_s, row.upper_per_s))
    number, _, unit = lower.rpartition(" ")
    return f"{number if upper.endswith(f' {unit}') else lower} to {upper}"
