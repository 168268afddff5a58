"""JUDGE with a quota callback: the callback's buckets and limits, as of the event, on the workers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.io.audit import reason_of
from kquota_spark.model.quota_types import QuotaKey
from kquota_spark.schema.quota_tables import PARTITION_LEADERS
from tests.support.spark.hops import CLUSTER, WITHIN_S, change, only, rows_of, run_hop, write_rules
from tests.support.tables.table_rows import T0_MS, usage, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITION_BASED = "kquota_spark.model.group_callbacks:PartitionBasedCallback"


def used(
    user: str, *moments_ms: int, broker_id: int = 1, amount: int = 1_000, **changed: Any
) -> dict[str, Any]:
    """A second of one client with requests of so many bytes, none of them throttled by the broker."""
    points = [
        {
            "record_time_ms": T0_MS + moment_ms,
            "log_time_ms": T0_MS + moment_ms,
            "connection_hash": 1,
            "correlation_id": index,
            "amount": amount,
            "observed_throttle_ms": 0,
            "kind": 0,
        }
        for index, moment_ms in enumerate(moments_ms)
    ]
    row = usage(moments_ms[0] // 1_000, points=points, requests=len(points))
    return {**row, "user": user, "client_id": "c", "broker_id": broker_id, **changed}


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


def with_callback(settings: Settings, name: str = PARTITION_BASED) -> Settings:
    return replace(settings, quotas=Quotas(source="file", callback=name))


def tags(**given: str) -> str:
    return json.dumps(given)


def test_groups_share_buckets_that_move_with_the_leaders(spark: SparkSession, settings: Settings) -> None:
    settings = with_callback(settings)
    write_rules(settings, change("pay_", None, 800.0), change("_", None, 90.0, at_ms=T0_MS + 3_500))
    # Broker 1 leads three of four partitions, and from 2.5 s on one of four.
    write_leaders(
        settings, ("pay_x", 0, 1, -50), ("pay_x", 1, 1, -50), ("pay_y", 0, 1, -50), ("pay_y", 1, 2, -50)
    )
    write_leaders(settings, ("pay_x", 0, 2, 2_500), ("pay_x", 1, 2, 2_500))
    write_table(
        _tables(settings),
        "usage",
        used("pay_1", 100),
        used("pay_2", 200),  # the same bucket as pay_1
        used("pay_1", 100, broker_id=2),
        used("pay_1", 2_100, 2_900),  # one before, one after the leaders moved
        used("ops_1", 3_100, 3_900),  # one before, one after the default group got a quota
        used("pay_1", 3_100, quota_type="fetch"),  # has no quota
    )
    run_hop(spark, settings, "judge")
    shown = ("broker_id", "quota_type", "bucket_tags", "second", "limit_per_s", "requests", "users")
    pay, ops, none = tags(group="pay"), tags(group="ops"), tags()
    assert only(rows_of(settings, "decisions"), *shown) == sorted(
        [
            (1, "fetch", none, T0_MS + 3_000, None, 1, ["pay_1"]),
            (1, "produce", pay, T0_MS, 600.0, 2, ["pay_1", "pay_2"]),  # 800 * 3 / 4
            # Rate and limit are those of the request that came nearest to its limit: the one after the move.
            (1, "produce", pay, T0_MS + 2_000, 200.0, 2, ["pay_1"]),  # 800 * 1 / 4
            (2, "produce", pay, T0_MS, 200.0, 1, ["pay_1"]),
            (1, "produce", none, T0_MS + 3_000, None, 1, ["ops_1"]),
            (1, "produce", ops, T0_MS + 3_000, 90.0, 1, ["ops_1"]),
        ],
        key=repr,
    )
    rows = rows_of(settings, "decisions")
    assert {(row["bucket_user"], row["bucket_client_id"], row["level"]) for row in rows} == {("", "", None)}
    assert {row["rule"] for row in rows if row["limit_per_s"]} == {PARTITION_BASED}


def test_a_request_quota_of_the_group_excludes_its_requests(spark: SparkSession, settings: Settings) -> None:
    settings = with_callback(settings)
    write_rules(
        settings, change("pay_", None, 800.0), change("pay_", None, 5.0, key=QuotaKey.REQUEST_PERCENTAGE)
    )
    write_table(_tables(settings), "usage", used("pay_1", 100), used("ops_1", 100))
    run_hop(spark, settings, "judge")
    assert only(rows_of(settings, "decisions"), "users", "excluded") == [(["ops_1"], 0), (["pay_1"], 1)]


def test_a_broken_callback_stops_the_job_with_its_reason(spark: SparkSession, settings: Settings) -> None:
    from kquota_spark.io.hops import start_hop

    settings = with_callback(settings, "tests.support.spark.broken_callback:Broken")
    write_rules(settings, change("pay_", None, 800.0))
    write_table(_tables(settings), "usage", used("pay_1", 100))
    query = start_hop(spark, settings, "judge", is_once=True)
    try:
        with pytest.raises(Exception):  # noqa: B017 - what Spark raises; the reason is what counts
            query.awaitTermination(WITHIN_S)
        reason = reason_of(str(query.exception()))
    finally:
        query.stop()
    assert reason == (
        "kquota_spark.model.quota_callback.CallbackError: quota callback tests.support.spark.broken_callback:Broken: "
        "quota_limit(produce, {'group': 'pay'}) raised KeyError: 'no such group'"
    )
    assert rows_of(settings, "decisions") == []


def _tables(settings: Settings) -> Path:
    return Path(settings.tables)
