"""Limits, rates and amounts for people, in the unit of their quota type."""

from __future__ import annotations

from kquota_spark.cli.render import person_bytes, person_ms, person_rate
from kquota_spark.model.quota_types import BANDWIDTH, QuotaType


def rate_text(quota_type: str, rate: float | None) -> str:
    """`1.2 MB/s`, `25.5 %` of a thread, `5/s`; `none` where there is no limit."""
    if rate is None or quota_type in BANDWIDTH:
        return person_rate(rate)
    return f"{rate:,.4g} %" if quota_type == QuotaType.REQUEST else f"{rate:,.4g}/s"


def amount_text(quota_type: str, amount: int) -> str:
    """`1.2 MB`, `95 ms` of threads, or a number of partitions."""
    if quota_type in BANDWIDTH:
        return person_bytes(amount)
    return person_ms(amount / 1_000) if quota_type == QuotaType.REQUEST else f"{amount:,}"


def type_text(quota_type: str) -> str:
    """The type in few letters."""
    return quota_type.removeprefix("controller_")


def broker_text(broker_id: int) -> str:
    """The id, or `ctl` for the active controller."""
    return "ctl" if broker_id < 0 else str(broker_id)
