"""JUDGE reads what it judges by from the tables: its own cluster's quotas, the brokers' windows, the callback."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.audit.progress import reason_of
from kquota_spark.checkpoints.known import KnownLoader
from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.pipeline.govern import to_governed
from kquota_spark.pipeline.sent import received
from kquota_spark.schema.quota_tables import PARTITION_LEADERS
from kquota_spark.schema.tables import USAGE
from kquota_spark.store.creation import create_tables
from tests.support.spark.judged_usage import judged, settings_with_rules, used
from tests.support.spark.queries import (
    CLUSTER,
    WITHIN_S,
    change,
    only,
    rows_of,
    run_judge,
    settings_at,
    start_judge,
    write_rules,
)
from tests.support.tables.table_rows import T0_MS, usage, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ONE_POINT = (
    f"array(struct({T0_MS}L AS record_time_ms, {T0_MS}L AS log_time_ms, 1L AS connection_hash, 1 AS correlation_id, "
    "1000L AS amount, 0 AS observed_throttle_ms, 0 AS kind, 0L AS network_time_us))"
)
PARTITION_BASED = "kquota_spark.model.quotas.group_callbacks:PartitionBasedCallback"


def test_each_broker_is_replayed_with_its_own_windows(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_with_rules(tmp_path)
    write_table(
        tmp_path / "tables",
        "broker_configs",
        told(None, "<=3.7", 2, 1),  # of the configuration file: the settings say the same themselves
        told(1, "3.8+", 5, 1),
        told(3, "<=3.7", 11, 1, valid_to=T0_MS + 2_000),
        told(3, "3.8+", 6, 2, valid_from=T0_MS + 2_000),
        {**told(2, "3.8+", 3, 1), "cluster_id": "another"},
    )
    found = judged(
        spark,
        settings,
        [used("alice", (100, 20_000, 0), broker_id=broker_id) for broker_id in (1, 2, 3)],
        [used("alice", (2_100, 5_000, 0), broker_id=broker_id) for broker_id in (1, 2, 3)],
    )
    told_by = ("model_variant", "rate_per_s", "throttle_ms")
    verdicts = {
        (row["broker_id"], (row["second"] - T0_MS) // 1_000): tuple(row[name] for name in told_by)
        for row in found
    }
    assert verdicts == {
        # Four of five windows count as gone: 20,000 B / 4 s; (5,000 - 1,000) / 1,000 * 4,000 ms.
        (1, 0): ("3.8+/5x1000ms", 5_000.0, 16_000),
        (1, 2): ("3.8+/5x1000ms", 6_250.0, 21_000),  # 25,000 B / 4 s
        (2, 0): ("3.8+/11x1000ms", 2_000.0, 10_000),
        (2, 2): ("3.8+/11x1000ms", 2_500.0, 15_000),
        (3, 0): ("<=3.7/11x1000ms", 2_000.0, 10_000),
        # Restarted with other settings, and so with empty rings: 5,000 B / ((6 - 1) * 2 s).
        (3, 2): ("3.8+/6x2000ms", 500.0, 0),
    }


def told(broker_id: int | None, ring: str, num: int, size_s: int, **times_ms: int) -> dict[str, Any]:
    times = {name: datetime.fromtimestamp(time_ms / 1_000, UTC) for name, time_ms in times_ms.items()}
    windows = {"quota_window_num": num, "quota_window_size_seconds": size_s}
    return {"cluster_id": CLUSTER, "broker_id": broker_id, "sample_ring": ring, **windows, **times}


def test_the_quotas_of_another_cluster_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    # Two clusters share one root of tables; a quote in a name is data.
    settings = replace(settings_at(tmp_path), cluster_id="it's \\ one")
    write_rules(settings, change("alice", None, 1.0), cluster_id=settings.cluster_id)
    write_rules(settings, change("alice", None, 2.0), cluster_id="other")
    row = used("alice", (100, 10, 0), cluster_id=settings.cluster_id)
    write_table(Path(settings.tables), "usage", row)
    create_tables(settings)
    run_judge(spark, settings)
    assert [row["limit_per_s"] for row in rows_of(settings, "decisions")] == [1.0]


def test_a_task_judges_by_the_versions_of_its_micro_batch_as_long_as_they_are_there(
    spark: SparkSession, settings: Settings
) -> None:
    write_rules(settings, change("alice", None, 500.0))
    rules = DeltaTable(f"{settings.tables}/quota_rules")
    then = rules.version()
    write_rules(settings, change("alice", None, 900.0))
    rows = [tuple(usage(0).get(name) for name in USAGE.names)]
    measured = spark.createDataFrame(rows, USAGE.ddl).withColumn("points", F.expr(_ONE_POINT))

    def limits() -> list[float | None]:
        governed = to_governed(measured, KnownLoader(settings)).collect()
        return [received(bytes(row.sent)).limit_per_s for row in governed]

    context = spark.sparkContext
    try:
        rules.update_incremental()
        for version, limit in ((then, 500.0), (rules.version(), 900.0)):
            context.setLocalProperty("kquota.pinned", json.dumps([{"quota_rules": version}, 0]))
            assert limits() == [limit]
        # The watcher removes replaced files after some minutes; a job may have stood for longer.
        rules.vacuum(0, dry_run=False, enforce_retention_duration=False)
        context.setLocalProperty("kquota.pinned", json.dumps([{"quota_rules": then}, 0]))
        assert limits() == [900.0]
    finally:
        context.setLocalProperty("kquota.pinned", None)  # type: ignore[arg-type]
    assert limits() == [900.0]


def test_a_callback_is_asked_with_the_leaders_and_quotas_of_the_tables(
    spark: SparkSession, settings: Settings
) -> None:
    settings = with_callback(settings)
    write_rules(settings, change("pay_", None, 800.0))
    # Broker 1 leads three of four partitions, and from 2.5 s on one of four.
    leaders = (("pay_x", 0, 1), ("pay_x", 1, 1), ("pay_y", 0, 1), ("pay_y", 1, 2))
    write_leaders(settings, *((*leader, -50) for leader in leaders))
    write_leaders(settings, ("pay_x", 0, 2, 2_500), ("pay_x", 1, 2, 2_500))
    rows = [used("pay_1", (100, 1_000, 0)), used("pay_2", (200, 1_000, 0))]
    found = judged(spark, settings, [*rows, used("pay_1", (2_100, 1_000, 0), (2_900, 1_000, 0))])
    pay = json.dumps({"group": "pay"})
    shown = ("bucket_tags", "second", "limit_per_s", "requests", "users", "rule", "level")
    assert only(found, *shown) == [
        (pay, T0_MS, 600.0, 2, ["pay_1", "pay_2"], PARTITION_BASED, None),  # 800 * 3 / 4
        # Rate and limit are those of the request that came nearest to its limit: the one after the move.
        (pay, T0_MS + 2_000, 200.0, 2, ["pay_1"], PARTITION_BASED, None),  # 800 * 1 / 4
    ]


def test_a_broken_callback_stops_the_job_with_its_reason(spark: SparkSession, settings: Settings) -> None:
    settings = with_callback(settings, "tests.support.spark.broken_callback:Broken")
    write_rules(settings, change("pay_", None, 800.0))
    write_table(Path(settings.tables), "usage", used("pay_1", (100, 1_000, 0)))
    query = start_judge(spark, settings).query
    try:
        with pytest.raises(Exception):  # noqa: B017 - what Spark raises; the reason is what counts
            query.awaitTermination(WITHIN_S)
        reason = reason_of(str(query.exception()))
    finally:
        query.stop()
    assert reason == (
        "kquota_spark.model.quotas.quota_callback.CallbackError: quota callback "
        "tests.support.spark.broken_callback:Broken: quota_limit(produce, {'group': 'pay'}) raised "
        "KeyError: 'no such group'"
    )
    assert rows_of(settings, "decisions") == []


def with_callback(settings: Settings, name: str = PARTITION_BASED) -> Settings:
    return replace(settings, quotas=Quotas(source="file", callback=name))


def write_leaders(settings: Settings, *changes: tuple[str, int, int | None, int]) -> None:
    rows = [
        {
            "cluster_id": CLUSTER,
            "topic": topic,
            "partition": number,
            "leader": leader,
            "is_deleted": False,
            "observed_at": (T0_MS + at_ms) * 1_000,
        }
        for topic, number, leader, at_ms in changes
    ]
    table = pa.Table.from_pylist(rows, schema=PARTITION_LEADERS.arrow_schema())
    write_deltalake(f"{settings.tables}/{PARTITION_LEADERS.name}", table, mode="append")
