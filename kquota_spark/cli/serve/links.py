"""Addresses of what a page shows of one bucket: its row in a report, and its timeline."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from kquota_spark.cli.text.render import Row
from kquota_spark.model.quotas.quota_types import CONNECTION, QuotaType
from kquota_spark.reports.parts.words import bucket_href
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.scope.shared_rows import BucketName

LAST_DAY = "last:24h"
"""The period of the first screen, and of a report without a period."""
WEEK = "week"
_DAY_MS = 86_400_000
_TYPES = frozenset({CONNECTION, *(one.value for one in QuotaType)})


def period_with(newest_ms: int, now_ms: int, *, is_operator: bool) -> str | None:
    """The period of a report that has the newest second; None if a tenant may not ask for one.

    Args:
        newest_ms: start of the newest second, epoch ms.
        now_ms: epoch ms.
        is_operator: whether every period may be asked for, not only those of the links.
    """
    if newest_ms > now_ms - _DAY_MS:
        return LAST_DAY
    if is_operator:
        return f"{_moment(newest_ms + 1_000 - _DAY_MS)}..{_moment(newest_ms + 1_000)}"
    midnight_ms = now_ms - now_ms % _DAY_MS
    return WEEK if newest_ms >= midnight_ms - 7 * _DAY_MS else None


def report_address(period: str) -> str:
    """The address of a report; parts of the page follow it as `#limits`."""
    return f"/report?period={quote(period, safe=':')}"


def bucket_address(row: Row, period: str) -> str:
    """The address of a bucket's row in a report.

    Args:
        row: with the columns that identify a bucket.
        period: of the report.
    """
    name = BucketName(
        row["quota_type"], row["bucket_user"], row["bucket_client_id"], row["bucket_tags"] or ""
    )
    return report_address(period) + bucket_href(name)


def timeline_address(row: Row) -> str:
    """The address of a bucket's timeline on one broker; `row` has the columns that identify both."""
    key = BucketKey.of(row)
    parts = {
        "cluster": key.cluster_id, "broker": key.broker_id, "type": key.quota_type, "user": key.user,
        "client": key.client_id, "tags": key.tags,
    }  # fmt: skip
    given = {name: part for name, part in parts.items() if part != ""}
    return f"/timeline?{urlencode(given, errors='replace')}"


def asked_bucket(argument: Callable[[str, str], str], cluster_id: str) -> BucketKey | None:
    """The bucket of a timeline's address; None if it names no broker or no quota type.

    Args:
        argument: value of an argument of the address by its name, or the second value if it is missing.
        cluster_id: the cluster if the address names none.
    """
    try:
        broker_id = int(argument("broker", ""))
    except ValueError:
        return None
    quota_type = argument("type", "")
    if quota_type not in _TYPES or abs(broker_id) >= 2**31:
        return None
    names = (argument(name, "") for name in ("user", "client", "tags"))
    return BucketKey(argument("cluster", cluster_id), broker_id, quota_type, *names)


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
