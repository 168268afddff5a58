"""Columns of `decisions` that are taken from a `model.replay.decision.Decision`; importing this needs no pyspark."""

from __future__ import annotations

from dataclasses import fields

from kquota_spark.model.replay.decision import Decision
from kquota_spark.schema.tables import DECISIONS

FROM_DECISION = tuple(field.name for field in fields(Decision) if field.name in DECISIONS.names)
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
