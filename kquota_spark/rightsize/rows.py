"""A right size as a row: the columns of `kquota rightsize` and of the report's file."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kquota_spark.model.rightsize.forecast import Forecast
from kquota_spark.rightsize.recommended import Recommendation
from kquota_spark.rightsize.sentences import left_out_day, reason_of


@dataclass(frozen=True, slots=True)
class SizeRow:
    """The right size of a bucket on its broker with the highest target; None is not known. Rates per second."""

    quota_type: str
    bucket_user: str
    bucket_client_id: str
    rule: str | None
    worst_broker_id: int
    limit_per_s: float | None
    target_per_s: float | None = None
    is_at_least: bool | None = None
    demand_per_s: float | None = None
    lower_per_s: float | None = None
    upper_per_s: float | None = None
    uncapped_per_s: float | None = None
    hidden_percent: float | None = None
    above_percent: float | None = None
    above_least_percent: float | None = None
    above_most_percent: float | None = None
    growth_percent_per_day: float | None = None
    days_to_80: float | None = None
    days_to_80_low: float | None = None
    days_to_80_high: float | None = None
    history_days: float = 0.0
    left_out_day: str | None = None
    left_out_ratio: float | None = None
    reason: str = ""

    @property
    def forecast(self) -> Forecast | None:
        """When the demand reaches 80 % of the limit."""
        if self.days_to_80 is None or self.days_to_80_low is None:
            return None
        return Forecast(self.days_to_80, self.days_to_80_low, self.days_to_80_high)


def row_of(one: Recommendation, to_ms: int) -> SizeRow:
    """The row of a recommendation.

    Args:
        one: the recommendation.
        to_ms: end of the history, epoch ms.
    """
    place, size, forecast, trend = one.place, one.size, one.forecast, one.trend
    is_known = trend is not None and trend.is_known
    row = SizeRow(
        place.quota_type, place.user, place.client_id, one.rule, place.broker_id, one.limit_per_s,
        growth_percent_per_day=100 * trend.slope if trend is not None and is_known else None,
        days_to_80=forecast and forecast.days,
        days_to_80_low=forecast and forecast.low,
        days_to_80_high=forecast and forecast.high,
        history_days=round(one.history_days, 2),
        reason=reason_of(one, to_ms),
    )  # fmt: skip
    if size is None:
        return row
    return replace(
        row,
        target_per_s=size.target,
        is_at_least=size.is_at_least,
        demand_per_s=size.quantile,
        lower_per_s=size.lower,
        upper_per_s=size.upper,
        uncapped_per_s=size.uncapped,
        hidden_percent=size.hidden_percent,
        above_percent=size.above_percent,
        above_least_percent=size.above_least_percent,
        above_most_percent=size.above_most_percent,
        left_out_day=None if size.left_out is None else left_out_day(size.left_out, to_ms),
        left_out_ratio=size.odd_ratio,
    )
