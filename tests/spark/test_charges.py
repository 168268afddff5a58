"""CHARGES: what a line adds to the buckets of the four quota types, and whose thread time is measured."""

from __future__ import annotations

import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kquota_spark.checkpoints.known import KnownLoader
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.model.govern.govern import request_coverage
from kquota_spark.model.measure.points import CONTROLLER_ID, PointKind
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.pipeline.charges import CLIENT_KEYS, to_charged, unpacked_charges
from kquota_spark.pipeline.packed_points import points_of
from kquota_spark.schema.tables import REQUESTS
from tests.support.spark.queries import WITHIN_S, change, rows_of, settings_at, start_log, write_rules
from tests.support.tables.table_rows import T0_MS, heartbeat, request, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITION_BASED = "kquota_spark.model.quotas.group_callbacks:PartitionBasedCallback"
OF_REQUESTS = QuotaKey.REQUEST_PERCENTAGE
ACCEPTED = {"topic_hash": 11, "partitions": 3, "point_kind": int(PointKind.CREATE_TOPIC)}
REFUSED = {"topic_hash": 12, "partitions": 0, "point_kind": int(PointKind.REFUSED_MUTATION)}


def line(offset: int, time_ms: int = T0_MS, **changed: Any) -> dict[str, Any]:
    """A produce of alice that took 1.5 ms of a handler thread and at most 0.25 ms of the network's."""
    timed = {"request_time_percent": 0.15, "network_time_us": 250, "observed_throttle_ms": 40}
    return request(offset, time_ms, **{**timed, **changed})


def charged(
    spark: SparkSession,
    root: Path,
    rules: tuple[QuotaChange, ...],
    *lines: dict[str, Any],
    has_callback: bool = False,
) -> list[tuple[Any, ...]]:
    settings = settings_at(root)
    if has_callback:
        settings = replace(settings, quotas=Quotas(source="file", callback=PARTITION_BASED))
    write_rules(settings, *rules)
    for name in ("partition_leaders", "broker_configs", "log_gaps"):
        write_table(Path(settings.tables), name)
    rows = [tuple(row.get(name) for name in REQUESTS.names) for row in lines]
    found = to_charged(spark.createDataFrame(rows, REQUESTS.ddl), KnownLoader(settings), 3).collect()
    clients = [
        client
        for row in found
        for client in (
            [dict.fromkeys([*CLIENT_KEYS, "points"])]
            if row.charges is None
            else unpacked_charges(row.charges).to_pylist()
        )
    ]
    points = ((row, points_of(row["points"]) if row["points"] else [()]) for row in clients)
    return sorted(
        (row["user"], row["quota_type"], row["broker_id"], *point[2:])
        for row, of_row in points
        for point in of_row
    )


def test_a_line_counts_for_each_quota_that_could_be_asked(spark: SparkSession, tmp_path: Path) -> None:
    c1 = zlib.crc32(b"c1")
    metadata: dict[str, Any] = {"quota_type": None, "point_kind": None, "charged_bytes": None, "api_key": 3}
    found = charged(
        spark,
        tmp_path,
        (change("alice", None, 1.0, key=OF_REQUESTS), change("bob", None, 9.0)),
        line(0),
        line(1, **metadata),
        line(2, **metadata, mutations=[ACCEPTED, REFUSED]),
        line(3, network_time_us=None),  # acks=0
        line(4, user="bob"),
        line(5, **metadata, user="bob"),
        line(6, is_out_of_time=True),
    )
    alice, bob = "alice", "bob"
    assert found == sorted([
        (alice, "produce", 1, c1, 0, 1_000, 40, PointKind.PRODUCE, 0),
        (alice, "request", 1, c1, 0, 1_500, 40, PointKind.SHARED_REQUEST, 250),
        (alice, "request", 1, c1, 1, 1_500, 40, PointKind.REQUEST, 250),
        (alice, "request", 1, c1, 2, 1_500, 40, PointKind.SHARED_REQUEST, 250),
        # The throttle is that of the topic that was refused.
        (alice, "controller_mutation", CONTROLLER_ID, 11, 2, 3, 0, PointKind.CREATE_TOPIC, 0),
        (alice, "controller_mutation", CONTROLLER_ID, 12, 2, 0, 40, PointKind.REFUSED_MUTATION, 0),
        (alice, "produce", 1, c1, 3, 1_000, 40, PointKind.PRODUCE, 0),
        (bob, "produce", 1, c1, 4, 1_000, 40, PointKind.PRODUCE, 0),
    ])  # fmt: skip


CLIENTS = (("alice", "etl"), ("alice", ""), ("bob", "etl"), ("bob", ""), ("carol", "web"))
COVERING = (
    (),
    (change("alice", None, 1.0, key=OF_REQUESTS),),
    (change("alice", "other", 1.0, key=OF_REQUESTS),),
    (change(None, "etl", 1.0, key=OF_REQUESTS),),
    (change("bob", None, 1.0, key=OF_REQUESTS), change("bob", None, None, T0_MS, OF_REQUESTS)),
    (change("carol", None, 7.0),),
)


@pytest.mark.parametrize("rules", COVERING)
def test_the_same_clients_are_measured_as_offline(
    spark: SparkSession, tmp_path: Path, rules: tuple[QuotaChange, ...]
) -> None:
    lines = [line(index, user=user, client_id=client_id) for index, (user, client_id) in enumerate(CLIENTS)]
    found = charged(spark, tmp_path, rules, *lines)
    coverage = request_coverage(RuleBook(rule_periods(rules)))
    expected = sorted(user for user, client_id in CLIENTS if coverage.covers(user, client_id))
    assert [row[0] for row in found if row[1] == "request"] == expected


def test_with_a_callback_one_quota_is_enough_to_measure_everybody(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [line(0, user="alice"), line(1, user="bob")]
    rules = (change("pay_", None, 1.0, key=OF_REQUESTS),)
    found = charged(spark, tmp_path, rules, *lines, has_callback=True)
    assert [row[0] for row in found if row[1] == "request"] == ["alice", "bob"]


def test_the_first_quota_is_picked_up_while_the_job_runs(spark: SparkSession, tmp_path: Path) -> None:
    from kquota_spark.store.creation import create_tables

    settings = settings_at(tmp_path, trigger=Duration(100))
    create_tables(settings)
    write_rules(settings)
    query = start_log(spark, settings, is_once=False).query
    try:
        _commit(settings, line(0), heartbeat(1, T0_MS + 20_000))
        assert _measured_types(settings, seconds=1) == [("produce", 0)]
        write_rules(settings, change("alice", None, 1.0, key=OF_REQUESTS))
        _commit(settings, line(2, T0_MS + 21_000), heartbeat(3, T0_MS + 40_000))
        assert _measured_types(settings, seconds=3) == [("produce", 0), ("produce", 21), ("request", 21)]
    finally:
        query.stop()


def _commit(settings: Settings, *rows: dict[str, Any]) -> None:
    write_table(Path(settings.tables), "requests", *rows)


def _measured_types(settings: Settings, seconds: int) -> list[tuple[str, int]]:
    """Types and seconds of `usage`, as soon as there are so many rows."""
    give_up_s = time.monotonic() + WITHIN_S
    while True:
        rows = rows_of(settings, "usage")
        if len(rows) >= seconds or time.monotonic() > give_up_s:
            return sorted((row["quota_type"], (row["second"] - T0_MS) // 1_000) for row in rows)
        time.sleep(0.2)
