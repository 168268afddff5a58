"""The causes of one bucket as rows, the same in all outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.attribution.precision import confidence
from kquota_spark.reports.why.answers import Reasons
from kquota_spark.reports.why.sentences import CURES, cure_of, evidence_text, main_sentence

CAUSE_COLUMNS = (
    "rank", "cause", "is_named", "share_percent", "share_ms", "delay_without_ms", "confidence", "sentence", "cure",
    "evidence",
)  # fmt: skip


def cause_rows(found: Reasons) -> Iterator[dict[str, Any]]:
    """One row per cause, and one for the rest: their parts add up to the delay by replay.

    Args:
        found: the bucket with its causes.
    """
    attribution = found.attribution
    for rank, part in enumerate(attribution.parts, 1):
        yield {
            "rank": rank,
            "cause": part.cause.value,
            "is_named": part.is_named,
            "share_percent": part.share_percent,
            "share_ms": part.share_ms,
            "delay_without_ms": part.without_ms,
            "confidence": part.confidence,
            "sentence": evidence_text(part, found.bucket.quota_type),
            "cure": cure_of(part),
            "evidence": dict(part.facts),
        }
    is_steady = attribution.main is Cause.STEADY
    yield {
        "rank": len(attribution.parts) + 1,
        "cause": Cause.STEADY.value,
        "is_named": is_steady,
        "share_percent": attribution.rest_percent,
        "share_ms": attribution.rest_ms,
        "delay_without_ms": attribution.delay_ms - attribution.rest_ms,
        "confidence": confidence(Cause.STEADY, attribution.rest_percent),
        "sentence": main_sentence(found) if is_steady else "the delay without all causes",
        "cure": CURES[Cause.STEADY] if is_steady else "",
        "evidence": {},
    }
