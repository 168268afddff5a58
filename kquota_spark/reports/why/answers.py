"""The answer about one bucket in one period: its causes, and who slowed whom."""

from __future__ import annotations

from dataclasses import dataclass

from kquota_spark.model.attribution.causes import Attribution
from kquota_spark.model.attribution.sharing import Fairness, Sharing
from kquota_spark.reports.scope.shared_rows import BucketName


@dataclass(frozen=True, slots=True)
class Reasons:
    """One bucket in one period; times are epoch ms."""

    bucket: BucketName
    from_ms: int
    to_ms: int
    limit_per_s: float | None
    """The limit at the end of the period, on each broker."""
    delay_ms: int
    """Total delay by brokers."""
    attribution: Attribution
    clients: int = 1
    """Number of clients that sent its requests."""
    sharing: Sharing | None = None
    """None for a bucket with one client, and beyond `Bounds.of_sharing`."""
    fairness: tuple[Fairness, ...] = ()
    """One row per hour of a shared bucket."""
