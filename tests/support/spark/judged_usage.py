"""Literal rows of `usage` under a few rules, and the `decisions` that JUDGE makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota_spark.config.settings import Settings
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.store.creation import create_tables
from tests.support.spark.queries import change, rows_of, run_judge, settings_at, write_rules
from tests.support.tables.table_rows import T0_MS, usage, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = (
    change("alice", None, 1_000.0),
    change("carol", None, 1_000.0, key=QuotaKey.CONSUMER_BYTE_RATE),
    change("dave", None, 1_000.0),
    change("dave", None, 50.0, key=QuotaKey.REQUEST_PERCENTAGE),
    change("erin", None, 1_000.0),
)


def used(
    user: str, *points: tuple[int, int, int], client_id: str = "etl", kind: int = 0, **changed: Any
) -> dict[str, Any]:
    """A row of usage: requests as (ms after T0, bytes, logged throttle), all of one second."""
    rows = [
        {
            "record_time_ms": T0_MS + offset_ms,
            "log_time_ms": T0_MS + offset_ms + 1,
            "connection_hash": 1,
            "correlation_id": index,
            "amount": amount,
            "observed_throttle_ms": throttle_ms,
            "kind": kind,
        }
        for index, (offset_ms, amount, throttle_ms) in enumerate(points)
    ]
    row = usage(points[0][0] // 1_000, user=user, client_id=client_id, points=rows, requests=len(rows))
    return {**row, **changed}


def judged(spark: SparkSession, settings: Settings, *commits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write each list as one commit, which is one micro-batch; all decisions so far."""
    for rows in commits:
        write_table(Path(settings.tables), "usage", *rows)
    run_judge(spark, settings)
    return rows_of(settings, "decisions")


def settings_with_rules(root: Path, **stream: int) -> Settings:
    settings = settings_at(root, **stream)
    write_rules(settings, *RULES)
    create_tables(settings)
    return settings
