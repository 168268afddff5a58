"""Rows of usage with a request at each moment, and what GOVERN says of each request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.model.quota_types import QuotaType
from kquota_spark.pipeline.govern import with_governing
from kquota_spark.schema.tables import USAGE
from tests.support.spark.hops import CLUSTER
from tests.support.tables.table_rows import T0_MS, usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOREVER_MS = 2**62
ALWAYS = (0, FOREVER_MS)


def asked(
    *moments_ms: int, user: str = "alice", client_id: str = "etl", quota_type: str = "produce"
) -> dict[str, Any]:
    """A row of usage with a request at each moment of one second."""
    points = [
        {
            "record_time_ms": moment_ms,
            "log_time_ms": moment_ms,
            "connection_hash": 1,
            "correlation_id": index,
            "amount": 1,
            "observed_throttle_ms": 0,
            "kind": 0,
        }
        for index, moment_ms in enumerate(moments_ms)
    ]
    row = usage((moments_ms[0] - T0_MS) // 1_000, points=points)
    return {**row, "user": user, "client_id": client_id, "quota_type": quota_type}


class Found(NamedTuple):
    """What GOVERN says of one request."""

    level: int | None
    limit_per_s: float | None
    rule: str | None
    rule_version: int | None
    bucket: tuple[str, str]
    valid_ms: tuple[int, int]
    has_request_quota: bool


Asked = tuple[str, str, str, int]
"""Quota type, user, client id, time."""


def governed(
    spark: SparkSession,
    settings: Settings,
    rows: Iterable[dict[str, Any]],
    cluster_id: str = CLUSTER,
    static_defaults: Mapping[QuotaType, float] = MappingProxyType({}),
) -> list[tuple[Asked, Found]]:
    """Each request with what governs it, in order."""
    of_table = [tuple(row.get(name) for name in USAGE.names) for row in rows]
    rules = spark.read.format("delta").load(f"{settings.tables}/quota_rules").where(
        f"cluster_id = '{cluster_id}'"
    )  # fmt: skip
    found = []
    usage_rows = spark.createDataFrame(of_table, USAGE.ddl)
    for row in with_governing(usage_rows, rules, static_defaults).collect():
        answer = Found(
            row.level,
            row.limit_per_s,
            row.rule,
            row.rule_version,
            (row.bucket_user, row.bucket_client_id),
            (row.valid_from_ms, row.valid_to_ms),
            row.has_request_quota,
        )
        for point in row.points:
            found.append(((row.quota_type, row.user, row.client_id, point.record_time_ms), answer))
    return sorted(found, key=lambda each: each[0])
