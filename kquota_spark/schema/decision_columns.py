"""Columns of `decisions` that are taken from a `model.replay.decision.Decision`; importing this needs no pyspark."""

from __future__ import annotations

FROM_DECISION = (
    "level", "rule", "rule_version", "limit_per_s", "rate_per_s", "rate_at_most_per_s", "quota_used_percent", "amount",
    "requests", "throttle_ms", "observed_throttle_ms", "throttled_requests", "observed_throttled_requests",
    "total_throttle_ms", "late", "users", "client_ids", "observed_total_throttle_ms",
    "unsized_requests",
)  # fmt: skip
"""Columns that are attributes of the decision."""
FROM_AGREEMENT = {
    "requests_judged": "requests_judged",
    "requests_agreeing": "agreeing",
    "false_positive": "false_positive",
    "false_negative": "false_negative",
    "judged_throttled": "throttled_by_broker",
    "judged_near_limit": "near_limit",
    "uncertain": "uncertain",
    "uncertain_wrong": "uncertain_wrong",
    "inferred": "inferred",
    "excluded": "excluded",
    "throttle_errors_ms": "throttle_errors_ms",
    "window_off": "window_off",
    "window_off_false_positive": "window_off_false_positive",
    "window_off_false_negative": "window_off_false_negative",
}
"""Attribute of `Decision.agreement` by column."""
