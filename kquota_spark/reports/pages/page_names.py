"""Names of report files, made from any names of a cluster and perhaps a user, and from a period."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

from kquota_spark.reports.scope.period import Period

_DAY_MS = 86_400_000
_UNSAFE = re.compile(r"[^a-z0-9._-]+")
_MOST = 60


def safe_name(name: str) -> str:
    """The name in characters that every file system and web server accepts, with a digest if that changed it.

    Two names never share a file, not even on a file system that ignores case.
    """
    safe = _UNSAFE.sub("_", name.lower())[:_MOST]
    if safe == name and name[:1].isalnum():
        return name
    return f"{safe.lstrip('._-') or 'user'}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def period_name(period: Period) -> str:
    """The period as text: `2026-11-20` for a day, `2026-11-14_to_2026-11-20` for days, else with times of day."""
    if period.from_ms % _DAY_MS == 0 and period.to_ms % _DAY_MS == 0:
        first, last = (_utc(time_ms, "%Y-%m-%d") for time_ms in (period.from_ms, period.to_ms - 1))
        return first if first == last else f"{first}_to_{last}"
    return "_to_".join(_utc(time_ms, "%Y-%m-%dT%H%M%SZ") for time_ms in period)


def _utc(time_ms: int, form: str) -> str:
    return datetime.fromtimestamp(time_ms // 1_000, UTC).strftime(form)
