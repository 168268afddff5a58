"""Times that say something only up to now: one of the future was written while a clock was wrong."""

from __future__ import annotations

from kquota_spark.model.quotas.rules import END_MS

MOST_SKEW_MS = 5_000
"""Largest difference between the clocks of two hosts of the audit, ms."""


def is_ahead(time_ms: int, now_ms: int) -> bool:
    """Whether a time lies further ahead than clocks differ; the end of time, of a quota file, does not.

    Args:
        time_ms: what was written, epoch ms.
        now_ms: this clock.
    """
    return time_ms != END_MS and time_ms > now_ms + MOST_SKEW_MS
