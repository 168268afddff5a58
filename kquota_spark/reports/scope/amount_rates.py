"""Amounts as rates in the unit of the limit: request time is counted in microseconds, and limited in percent."""

from __future__ import annotations

from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.request_replay import US_PER_PERCENT


def rate_of(quota_type: str, amount: float, seconds: float) -> float:
    """A mean rate in the unit of the limit."""
    unit = US_PER_PERCENT if quota_type == QuotaType.REQUEST else 1
    return amount / unit / seconds


def amount_per_rate(quota_type: str = "quota_type") -> str:
    """SQL: the amount in a second that is a rate of 1; the quota type is SQL too."""
    return f"if({quota_type} = '{QuotaType.REQUEST}', {US_PER_PERCENT}, 1)"
