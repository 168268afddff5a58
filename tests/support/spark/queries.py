"""How the tests drive a query: literal rows as commits of a Delta table, the real query over them, what it wrote."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from kquota_spark.checkpoints.checkpoints import JMX, LOG
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Quotas, Settings, Stream
from kquota_spark.model.quotas.entities import Entity, Name
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange
from kquota_spark.store.rules_tables import RulesTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kquota_spark.audit.commit import Sink
    from kquota_spark.audit.queries import Started
    from kquota_spark.checkpoints.lineage import Lineage

WITHIN_S = 400
CLUSTER = "demo"  # the cluster of the rows in tests/support/tables/table_rows.py


def settings_at(root: Path, **stream: int) -> Settings:
    """Settings with five seconds of lateness."""
    return Settings(
        cluster_id=CLUSTER,
        tables=str(root / "tables"),
        checkpoints=str(root / "checkpoints"),
        quotas=Quotas(source="file"),
        stream=Stream(**{"allowed_lateness": Duration(5_000), **stream}),  # type: ignore[arg-type]
    )


MESSAGE = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string, partition int, "
    "offset bigint, timestamp timestamp, timestampType int"
)
"""Columns of the Kafka source."""


def run_log(spark: SparkSession, settings: Settings) -> list[dict[str, Any]]:
    """Let the query of the log work through the rows of `requests`, each commit a micro-batch; its reports.

    All of it but its first stage, which parses lines.
    """
    return run(start_log(spark, settings))


def start_log(
    spark: SparkSession, settings: Settings, lineage: Lineage | None = None, *, is_once: bool = True
) -> Started:
    """Start that query."""
    from kquota_spark.audit.queries import from_charged, start
    from kquota_spark.audit.stages import Stages
    from kquota_spark.checkpoints.known import KnownLoader
    from kquota_spark.checkpoints.lineage import Lineage as NoLineage
    from kquota_spark.pipeline.charges import to_charged

    sink = _sink(spark, settings, LOG)
    charged = to_charged(
        _commits(spark, settings, "requests"), KnownLoader(settings), settings.stream.state_shards
    )
    rows = from_charged(charged, Stages(settings, sink.reports, lineage or NoLineage()))
    return start(rows, sink, is_once=is_once)


def run_judge(spark: SparkSession, settings: Settings) -> list[dict[str, Any]]:
    """Let the end of that query work through the rows of `usage`, each commit a micro-batch; its reports."""
    return run(start_judge(spark, settings))


def start_judge(spark: SparkSession, settings: Settings) -> Started:
    """Start that end."""
    from kquota_spark.audit.queries import from_sharded, start
    from kquota_spark.audit.stages import Stages
    from kquota_spark.checkpoints.known import KnownLoader
    from kquota_spark.pipeline.govern import to_sharded

    sink = _sink(spark, settings, LOG)
    shards = settings.stream.state_shards
    sharded = to_sharded(_commits(spark, settings, "usage"), KnownLoader(settings), shards)
    return start(from_sharded(sharded, Stages(settings, sink.reports)), sink, is_once=True)


def write_topic(
    settings: Settings,
    messages: Sequence[tuple[int, bytes]],
    at_ms: int,
    first_offset: int = 0,
    *,
    is_stamped_by_kafka: bool = False,
) -> None:
    """Messages of a topic with one partition, of (broker, value); they come to `run_topic` as one micro-batch."""
    rows = [
        {
            "key": str(broker_id).encode(),
            "value": value,
            "topic": "log",
            "partition": 0,
            "offset": offset,
            "timestamp": dt.datetime.fromtimestamp(at_ms / 1_000, dt.UTC),
            "timestampType": int(is_stamped_by_kafka),
        }
        for offset, (broker_id, value) in enumerate(messages, first_offset)
    ]
    place = Path(_topic(settings))
    place.mkdir(exist_ok=True)
    time = pa.timestamp("us", tz="UTC")
    types = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), time, pa.int32())
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    schema = pa.schema([pa.field(name, each) for name, each in zip(names, types, strict=True)])
    file = place / f"{first_offset:012}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    # Spark takes files in the order of their times, and several may be written in one millisecond.
    os.utime(file, (first_offset, first_offset))


def run_topic(
    spark: SparkSession, settings: Settings, lineage: Lineage | None = None
) -> list[dict[str, Any]]:
    """Let the whole query of the log work through what `write_topic` wrote; its reports."""
    return run(start_topic(spark, settings, lineage))


def start_topic(spark: SparkSession, settings: Settings, lineage: Lineage | None = None) -> Started:
    """Start that query."""
    from kquota_spark.audit.queries import closings, from_log, start
    from kquota_spark.audit.stages import Stages
    from kquota_spark.checkpoints.lineage import Lineage as NoLineage

    sink = _sink(spark, settings, LOG)
    source = spark.readStream.schema(MESSAGE).option("maxFilesPerTrigger", 1).parquet(_topic(settings))
    stages = Stages(settings, sink.reports, lineage or NoLineage())
    return start(from_log(source, closings(spark, settings), stages), sink, is_once=True)


def run_jmx(spark: SparkSession, settings: Settings, *values: bytes, at_ms: int) -> None:
    """Let the query of JMX work through messages of these values, at the offsets 0, 1, ... of a topic."""
    at = dt.datetime.fromtimestamp(at_ms / 1_000, dt.UTC)
    rows = [(None, value, None, "jmx", 0, offset, at, 0) for offset, value in enumerate(values)]
    spark.createDataFrame(rows, MESSAGE).write.mode("append").parquet(_topic(settings))
    run(start_jmx(spark, settings))


def start_jmx(spark: SparkSession, settings: Settings) -> Started:
    """Start that query."""
    from kquota_spark.audit.queries import from_jmx, start

    sink = _sink(spark, settings, JMX)
    source = spark.readStream.schema(MESSAGE).parquet(_topic(settings))
    return start(from_jmx(source, settings, sink.reports), sink, is_once=True)


def _topic(settings: Settings) -> str:
    return str(Path(settings.tables).parent / "topic")


def _commits(spark: SparkSession, settings: Settings, name: str) -> DataFrame:
    reader = spark.readStream.format("delta").option("startingVersion", 0).option("maxFilesPerTrigger", 1)
    return reader.option("skipChangeCommits", "true").load(f"{settings.tables}/{name}")


def _sink(spark: SparkSession, settings: Settings, query: str) -> Sink:
    from kquota_spark.audit.commit import Sink
    from kquota_spark.audit.task_reports import TaskReports

    return Sink(settings, query, TaskReports(spark.sparkContext), print)


def run(started: Started) -> list[dict[str, Any]]:
    """Wait for the end of a query; its reports."""
    query = started.query
    try:
        assert query.awaitTermination(WITHIN_S), f"{query.name} has not ended after {WITHIN_S} s"
        failure = query.exception()
        assert failure is None, failure
        return [dict(report) for report in query.recentProgress]
    finally:
        query.stop()


def forget_last_commit(settings: Settings, query: str = "log") -> int:
    """Put a checkpoint into the state of a crash after the sink's commit and before Spark's; the batch."""
    commits = Path(settings.checkpoints) / query / "commits"
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
