"""How the broker combines the throttles of two quotas, and how much it lets a fetch read.

Source: the produce and fetch handlers in Kafka's `KafkaApis`, `RequestHandlerHelper`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kquota_spark.model.measure.broker_version import major_minor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType

_INT_MAX = 2**31 - 1


class Applied(NamedTuple):
    """The throttle of a request, and the quota manager that has it in its delay queue and throttle-time metric."""

    throttle_ms: int
    by: QuotaType | None


NOT_THROTTLED = Applied(0, None)


def combined(own: QuotaType, own_ms: int, request_ms: int) -> Applied:
    """The longer of the own quota's throttle and the request quota's; on a tie, the request quota's."""
    if own_ms > 0 and own_ms > request_ms:
        return Applied(own_ms, own)
    return Applied(request_ms, QuotaType.REQUEST) if request_ms > 0 else NOT_THROTTLED


def does_cap_fetch(version: str) -> bool:
    """Whether a broker caps fetches to what fits in a cold bucket (KAFKA-9677, 2.5.0)."""
    return major_minor(version) >= (2, 5)


def fetch_max_bytes(requested_bytes: int, limit_per_s: float | None, config: RateConfig) -> int:
    """The most bytes that the broker reads for a fetch: (N - 1) windows of its limit, so that one fetch can pass.

    A first record batch larger than that is still sent whole (KIP-74).
    """
    if limit_per_s is None:
        return requested_bytes
    most = limit_per_s * (config.num_samples - 1) * (config.window_ms // 1_000)
    return min(requested_bytes, _to_int(most))


def _to_int(value: float) -> int:
    """Cast a double to int as Java does: NaN becomes 0, a value out of range the nearest int."""
    return 0 if math.isnan(value) else int(max(-_INT_MAX - 1, min(value, _INT_MAX)))
