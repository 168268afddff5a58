"""MEASURE: literal rows of `requests` in, rows of `usage` out."""

from __future__ import annotations

import datetime as dt
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota_spark.config.settings import Settings
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.rules import RuleBook
from kquota_spark.pipeline.charges import to_charged
from kquota_spark.pipeline.known import BrokerWindows, Known
from kquota_spark.pipeline.measure import to_seconds, to_usage
from kquota_spark.schema.tables import REQUESTS, USAGE
from tests.support.spark.queries import only, rows_of, run_log
from tests.support.tables.table_rows import DAY, T0_MS, heartbeat, request, unreadable, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

C1 = zlib.crc32(b"c1")


def measured(spark: SparkSession, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    """The transforms on a finite table: the watermark plays no part."""
    rows = [tuple(row.get(name) for name in REQUESTS.names) for row in requests]
    charged = to_charged(spark.createDataFrame(rows, REQUESTS.ddl), no_rules, 3)
    found = to_usage(to_seconds(charged, "5 seconds"), "demo").collect()
    return sorted((row.asDict(recursive=True) for row in found), key=lambda row: (row["second"], row["tile"]))


def no_rules() -> Known:
    return Known(RuleGovernor(RuleBook(()), {}), None, BrokerWindows(RateConfig()), {})


def point(record_time_ms: int, correlation_id: int, amount: int = 1_000, **changed: int) -> dict[str, int]:
    """A request of `table_rows.request` as the replay sees it."""
    return {
        "record_time_ms": record_time_ms,
        "log_time_ms": record_time_ms + 1,
        "connection_hash": C1,
        "correlation_id": correlation_id,
        "amount": amount,
        "observed_throttle_ms": 0,
        "kind": 0,
        "network_time_us": 0,
        **changed,
    }


def second(offset_s: int) -> dt.datetime:
    """As Spark gives a timestamp back: without a zone, in the session's, which the tests run in."""
    return dt.datetime.fromtimestamp(T0_MS / 1_000 + offset_s)  # noqa: DTZ006


def test_one_row_a_second_with_its_sums_and_sorted_points(spark: SparkSession) -> None:
    found = measured(
        spark,
        request(0, T0_MS + 999, charged_bytes=30),
        request(1, T0_MS, charged_bytes=7, observed_throttle_ms=40),
        request(2, T0_MS + 1_000, charged_bytes=5),
        # One millisecond: the connection decides, then the correlation id, never the offset.
        request(4, T0_MS + 500, charged_bytes=100, connection="c2"),
        request(3, T0_MS + 500, charged_bytes=200, observed_throttle_ms=2),
    )
    c2 = zlib.crc32(b"c2")
    row = {
        "cluster_id": "demo",
        "event_date": DAY,
        "broker_id": 1,
        "quota_type": "produce",
        "principal_type": "User",
        "user": "alice",
        "client_id": "etl",
        "second": second(0),
        "tile": 0,
        "amount": 7 + 100 + 200 + 30,
        "requests": 4,
        "duplicates": 0,
        "rate_per_s": 337.0,
        "observed_throttle_ms": 42,
        "points": [
            point(T0_MS, 1, 7, observed_throttle_ms=40),
            *sorted(
                [
                    point(T0_MS + 500, 3, 200, observed_throttle_ms=2),
                    point(T0_MS + 500, 4, 100, connection_hash=c2),
                ],
                key=lambda each: each["connection_hash"],
            ),
            point(T0_MS + 999, 0, 30),
        ],
        "source": "log",
        "unsized_requests": 0,
    }
    after = {
        **row,
        "second": second(1),
        "amount": 5,
        "requests": 1,
        "rate_per_s": 5.0,
        "observed_throttle_ms": 0,
        "points": [point(T0_MS + 1_000, 2, 5)],
    }
    assert found == [row, after]


def test_principals_of_one_name_and_two_types_are_kept_apart(spark: SparkSession) -> None:
    # Kafka's own quotas put both into one bucket; a callback may tell them apart.
    found = measured(spark, request(0), request(1, principal_type="Group"))
    assert only(found, "principal_type", "user", "requests") == [
        ("Group", "alice", 1),
        ("User", "alice", 1),
    ]


def test_every_part_of_the_key_makes_a_row_of_its_own(spark: SparkSession) -> None:
    others: list[dict[str, Any]] = [
        {"broker_id": 2},
        {"quota_type": "fetch", "point_kind": 1},
        {"user": "bob"},
        {"client_id": ""},
    ]
    found = measured(spark, request(0), *(request(index, **other) for index, other in enumerate(others)))
    keys = ("cluster_id", "broker_id", "quota_type", "user", "client_id", "requests")
    assert only(found, *keys) == sorted(
        [
            ("demo", 1, "produce", "alice", "etl", 1),
            ("demo", 2, "produce", "alice", "etl", 1),
            ("demo", 1, "fetch", "alice", "etl", 1),
            ("demo", 1, "produce", "bob", "etl", 1),
            ("demo", 1, "produce", "alice", "", 1),
        ],
        key=repr,
    )


def test_copies_of_a_line_count_once_and_are_counted(spark: SparkSession) -> None:
    # A shipper sent offsets 0 to 2 again as 10 to 12, in another order.
    lines = [request(0), request(1, T0_MS + 10), request(2, T0_MS + 20)]
    again = [{**line, "kafka_offset": 12 - line["kafka_offset"]} for line in lines]
    # The same request at the same time over another connection, or with another id, is another request.
    others = [request(3, T0_MS, correlation_id=0, connection="c9"), request(4, T0_MS)]
    [row] = measured(spark, *lines, *again, *again[:1], *others)
    assert (row["requests"], row["duplicates"], row["amount"]) == (5, 4, 5_000)
    assert len(row["points"]) == 5


def test_a_copy_in_another_micro_batch_counts_once(spark: SparkSession, settings: Settings) -> None:
    # The first batch's points come back out of the state store; the copy has to equal the one among them.
    root = Path(settings.tables)
    write_table(root, "requests", request(0), request(1, T0_MS + 10, charged_bytes=7))
    run_log(spark, settings)
    write_table(root, "requests", {**request(0), "kafka_offset": 12}, request(2, T0_MS + 20))
    write_table(root, "requests", heartbeat(13, T0_MS + 6_000))
    run_log(spark, settings)
    found = only(rows_of(settings, "usage"), "second", "requests", "duplicates", "amount")
    assert found == [(T0_MS, 3, 1, 1_000 + 7 + 1_000)]


def test_a_second_above_10_000_requests_is_cut_into_tiles(spark: SparkSession) -> None:
    lines = [request(index, T0_MS + index // 30, charged_bytes=index) for index in range(20_001)]
    lines.append({**lines[0], "kafka_offset": 99_999})
    tiles = measured(spark, *lines)
    assert [(row["tile"], row["requests"], row["duplicates"], row["amount"]) for row in tiles] == [
        (0, 10_000, 1, sum(range(10_000))),
        (1, 10_000, 0, sum(range(10_000, 20_000))),
        (2, 1, 0, 20_000),
    ]
    ids = [each["correlation_id"] for row in tiles for each in row["points"]]
    assert ids == list(range(20_001))  # the order goes on over the tiles


def test_exactly_10_000_requests_are_one_tile(spark: SparkSession) -> None:
    tiles = measured(spark, *(request(index, T0_MS + index // 30) for index in range(10_000)))
    assert [(row["tile"], row["requests"]) for row in tiles] == [(0, 10_000)]


def test_what_no_quota_counts_is_left_out(spark: SparkSession) -> None:
    found = measured(
        spark,
        request(0, T0_MS, quota_type=None, point_kind=None, charged_bytes=None, api_key=3),
        unreadable(1, "why"),
        heartbeat(2),
        request(3, T0_MS + 9_000_000, is_out_of_time=True),
    )
    assert found == []


def test_heartbeats_move_the_watermark_and_make_no_row(spark: SparkSession, settings: Settings) -> None:
    root = Path(settings.tables)
    write_table(root, "requests", request(0), heartbeat(1, T0_MS + 5_999))
    run_log(spark, settings)
    # The watermark is 5 s behind, at T0 + 999: the second is still open.
    assert rows_of(settings, "usage") == []
    write_table(root, "requests", heartbeat(2, T0_MS + 6_000))
    reports = run_log(spark, settings)
    assert only(rows_of(settings, "usage"), "second", "requests") == [(T0_MS, 1)]
    assert reports[-1]["eventTime"]["watermark"] == "2026-11-21T05:40:01.000Z"


def test_a_line_behind_the_watermark_is_in_requests_only(spark: SparkSession, settings: Settings) -> None:
    root = Path(settings.tables)
    write_table(root, "requests", request(0), heartbeat(1, T0_MS + 6_000))
    run_log(spark, settings)
    # Second 0 is closed now. Second 1 is not: whatever comes of it within the lateness counts.
    write_table(root, "requests", request(2, T0_MS + 500), request(3, T0_MS + 1_500))
    write_table(root, "requests", request(4, T0_MS + 1_000), heartbeat(5, T0_MS + 20_000))
    run_log(spark, settings)
    found = only(rows_of(settings, "usage"), "second", "requests", "amount")
    assert found == [(T0_MS, 1, 1_000), (T0_MS + 1_000, 2, 2_000)]
    assert len(rows_of(settings, "requests")) == 6


def test_a_line_of_the_year_2099_closes_nothing(spark: SparkSession, settings: Settings) -> None:
    root = Path(settings.tables)
    in_2099_ms = 4_070_908_800_000
    write_table(root, "requests", request(0), request(1, in_2099_ms, is_out_of_time=True))
    write_table(root, "requests", heartbeat(2, in_2099_ms) | {"is_out_of_time": True})
    write_table(root, "requests", request(3, T0_MS + 100), heartbeat(4, T0_MS + 7_000))
    run_log(spark, settings)
    assert only(rows_of(settings, "usage"), "second", "requests") == [(T0_MS, 2)]


def test_a_micro_batch_over_midnight_is_one_commit(spark: SparkSession, settings: Settings) -> None:
    midnight_ms = 1_795_305_600_000  # 2026-11-22 00:00 UTC
    moments_ms = [midnight_ms - 500, *(midnight_ms + 1_000 * index for index in range(40))]
    lines = [request(index, moment_ms) for index, moment_ms in enumerate(moments_ms)]
    write_table(Path(settings.tables), "requests", *lines, heartbeat(99, midnight_ms + 60_000))
    run_log(spark, settings)
    [commit] = [
        log
        for log in sorted(Path(settings.tables, "usage", "_delta_log").glob("*.json"))
        if '"add"' in log.read_text(encoding="utf-8")
    ]
    actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
    dates = {action["add"]["partitionValues"]["event_date"] for action in actions if "add" in action}
    assert dates == {"2026-11-21", "2026-11-22"}
    rows = [(row["second"], str(row["event_date"])) for row in rows_of(settings, "usage")]
    assert min(rows) == (midnight_ms - 1_000, "2026-11-21")
    assert len(rows) == 41


def test_a_restart_goes_on_with_the_open_second(spark: SparkSession, settings: Settings) -> None:
    root = Path(settings.tables)
    for index, moment_ms in enumerate((T0_MS, T0_MS + 900)):
        write_table(root, "requests", request(index, moment_ms))
        run_log(spark, settings)
        assert rows_of(settings, "usage") == []
    write_table(root, "requests", heartbeat(2, T0_MS + 6_000))
    run_log(spark, settings)
    [row] = rows_of(settings, "usage")
    assert [each["correlation_id"] for each in row["points"]] == [0, 1]
    assert list(row) == USAGE.names
