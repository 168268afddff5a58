"""Rows of `shadow_decisions`: the seconds in which the shadow quotas differ from the enforced ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kquota_spark.model.loops.shadow_bucket import ShadowSecond
from kquota_spark.schema.shadow_tables import SHADOW_DECISIONS

_SCHEMA = SHADOW_DECISIONS.arrow_schema()


class Enforced(NamedTuple):
    """One second of one bucket under the enforced quotas, by replay."""

    limit_per_s: float | None = None
    throttled_requests: int = 0
    total_throttle_ms: int = 0
    throttle_ms: int = 0
    """The longest throttle."""


class ShadowRow(NamedTuple):
    """One second of one bucket, and how it differs."""

    place: tuple[str, int, str]
    """Cluster, broker, quota type."""
    bucket: tuple[str, str, str | None]
    shadow: ShadowSecond
    enforced: Enforced
    is_warm: bool


def has_row(shadow: ShadowSecond, enforced: Enforced) -> bool:
    """Whether a second is in the table: another verdict, or under another limit one that throttles or may throttle."""
    verdict = shadow.throttled_requests, shadow.total_throttle_ms, shadow.throttle_ms
    if verdict != enforced[1:]:
        return True
    return shadow.limit_per_s != enforced.limit_per_s and bool(
        shadow.throttled_requests or shadow.unknown_requests or shadow.is_near
    )


def rows_of(rows: Sequence[ShadowRow], name: str, version: str) -> pa.RecordBatch:
    """Rows of the table for one version of the shadow quotas."""
    seconds = [row.shadow for row in rows]
    enforced = [row.enforced for row in rows]
    in_ms = pa.array([each.second_ms for each in seconds], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    columns: dict[str, Any] = {
        "event_date": in_ms.cast(pa.date32()),
        "second": in_ms.cast(_SCHEMA.field("second").type),
        "shadow": [name] * len(rows),
        "shadow_version": [version] * len(rows),
        "level": [each.limit and each.limit.level for each in seconds],
        "rule": [each.limit and each.limit.rule for each in seconds],
        "is_warm": [row.is_warm for row in rows],
        "enforced_limit_per_s": [each.limit_per_s for each in enforced],
        "enforced_throttled_requests": [each.throttled_requests for each in enforced],
        "enforced_total_throttle_ms": [each.total_throttle_ms for each in enforced],
    }
    for place, key in enumerate(("cluster_id", "broker_id", "quota_type")):
        columns[key] = [row.place[place] for row in rows]
    for place, key in enumerate(("bucket_user", "bucket_client_id", "bucket_tags")):
        columns[key] = [row.bucket[place] for row in rows]
    for field in _SCHEMA:
        if field.name not in columns:
            columns[field.name] = [getattr(each, field.name) for each in seconds]
    arrays = [pa.array(columns[field.name], field.type) for field in _SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
