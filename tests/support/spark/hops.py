"""How the tests drive a hop: literal rows as commits of a Delta table, the real query over them, the table it wrote."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from kquota_spark.config.settings import Duration, Quotas, Settings, Stream
from kquota_spark.io.rules_tables import RulesTables
from kquota_spark.model.entities import Entity, Name
from kquota_spark.model.quota_types import QuotaKey
from kquota_spark.model.rules import QuotaChange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHIN_S = 400
CLUSTER = "demo"  # the cluster of the rows in tests/support/tables/table_rows.py


def settings_at(root: Path, **stream: int) -> Settings:
    """Settings with five seconds of lateness, and one commit a micro-batch."""
    return Settings(
        cluster_id=CLUSTER,
        tables=str(root / "tables"),
        checkpoints=str(root / "checkpoints"),
        quotas=Quotas(source="file"),
        stream=Stream(**{"allowed_lateness": Duration(5_000), "max_files_per_trigger": 1, **stream}),  # type: ignore[arg-type]
    )


def run_hop(spark: SparkSession, settings: Settings, hop: str) -> list[dict[str, Any]]:
    """Start the query of a hop, let it work through what is there; its progress reports."""
    from kquota_spark.io.hops import start_hop

    query = start_hop(spark, settings, hop, is_once=True)
    try:
        assert query.awaitTermination(WITHIN_S), f"{hop} has not ended after {WITHIN_S} s"
        failure = query.exception()
        assert failure is None, failure
        return [dict(report) for report in query.recentProgress]
    finally:
        query.stop()


def forget_last_commit(settings: Settings, hop: str) -> int:
    """Put a checkpoint into the state of a crash after the sink's commit and before Spark's; the batch."""
    commits = Path(settings.checkpoints) / hop / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


def rows_of(settings: Settings, name: str) -> list[dict[str, Any]]:
    """All rows of a table as Python values, times in epoch ms, in a fixed order."""
    found = DeltaTable(f"{settings.tables}/{name}").to_pyarrow_table().to_pylist()
    rows = [{column: _plain(value) for column, value in row.items()} for row in found]
    return sorted(rows, key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1_000)
    return value


def only(rows: Iterable[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of rows, as sorted tuples."""
    return sorted((tuple(row[column] for column in columns) for row in rows), key=repr)


def change(
    user: Name,
    client_id: Name,
    value: float | None,
    at_ms: int = 0,
    key: QuotaKey = QuotaKey.PRODUCER_BYTE_RATE,
) -> QuotaChange:
    """One edit; at 0 it has always been in force. Its version is its time, as in a quota file."""
    return QuotaChange(Entity(user, client_id), key, value, None, at_ms, at_ms)


def write_rules(settings: Settings, *changes: QuotaChange, cluster_id: str = CLUSTER) -> None:
    """`quota_rules` as the watcher writes them from a quota file."""
    RulesTables(settings.tables, cluster_id, source="file", apply_lag_ms=0).write_file(changes, 0)
