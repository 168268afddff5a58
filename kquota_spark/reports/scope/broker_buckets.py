"""The bucket of a broker, as rows of tables identify it, and its amounts as rates in the unit of the limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.request_replay import US_PER_PERCENT


class BucketKey(NamedTuple):
    """The key of a bucket on a broker; `tags` are a callback's as JSON, empty without one."""

    cluster_id: str
    broker_id: int
    quota_type: str
    user: str
    client_id: str
    tags: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> BucketKey:
        """The key of a row that identifies a bucket."""
        return cls(
            row["cluster_id"],
            row["broker_id"],
            row["quota_type"],
            row["bucket_user"],
            row["bucket_client_id"],
            row["bucket_tags"] or "",
        )


def rate_of(quota_type: str, amount: float, seconds: float) -> float:
    """The mean rate in the unit of the limit: request time is counted in microseconds, and limited in percent."""
    unit = US_PER_PERCENT if quota_type == QuotaType.REQUEST else 1
    return amount / unit / seconds


def amount_per_rate(quota_type: str = "quota_type") -> str:
    """SQL text of the amount per second that is a rate of 1; `quota_type` is SQL text, too."""
    return f"if({quota_type} = '{QuotaType.REQUEST}', {US_PER_PERCENT}, 1)"
