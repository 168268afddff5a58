"""Which lines have a row in `requests`, and what the rows say that stand for the others."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from kquota_spark.pipeline.kept_requests import Kept, kept_requests
from kquota_spark.schema.tables import REQUESTS
from tests.support.tables.table_rows import T0_MS, heartbeat, request, unreadable

DAY = date(2026, 11, 21)
BEGUN = {1, 2}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    data = [{name: row.get(name) for name in REQUESTS.names} for row in rows]
    [found] = pa.Table.from_pylist(data, schema=REQUESTS.arrow_schema()).combine_chunks().to_batches()
    return found


def kept(mode: Kept, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows that are kept, with the columns that are not null."""
    found = kept_requests(batch(*rows), mode, BEGUN)
    assert found.schema == REQUESTS.arrow_schema()
    return [{name: value for name, value in row.items() if value is not None} for row in found.to_pylist()]


def offsets(mode: Kept, *rows: dict[str, Any]) -> list[int]:
    """Offsets of the rows that are kept as they are; the others must be as in the input."""
    given = {row["kafka_offset"]: row for row in batch(*rows).to_pylist()}
    found = [row for row in kept_requests(batch(*rows), mode, BEGUN).to_pylist() if row["kind"] != "left_out"]
    assert all(row == given[row["kafka_offset"]] for row in found)
    return [row["kafka_offset"] for row in found]


ROWS = (
    request(0),
    request(1, observed_throttle_ms=40),
    request(2, observed_throttle_ms=None),
    heartbeat(3),
    unreadable(4, "not a request"),
    request(5, is_out_of_time=True),
    request(6, api_key=49, quota_type=None, altered_quotas="[]"),
    request(7, broker_id=3),  # of a broker that nothing is known of
    request(8, kind="gap", quota_type=None),
)


@pytest.mark.parametrize(
    ("mode", "rows"),
    [("all", list(range(9))), ("throttled", [1, 3, 4, 5, 6, 7, 8]), ("unreadable", [3, 4, 5, 6, 7, 8])],
)
def test_what_is_kept(mode: Kept, rows: list[int]) -> None:
    assert offsets(mode, *ROWS) == rows


def test_a_row_stands_for_the_lines_of_one_broker_second_and_quota_type() -> None:
    # Two seconds of broker 1, one of broker 2, and requests that no bandwidth quota counts; 13 is throttled.
    rows = (
        request(10, T0_MS + 100, charged_bytes=1),
        request(11, T0_MS + 900, charged_bytes=20),
        request(12, T0_MS + 950, charged_bytes=300, broker_id=2),
        request(13, T0_MS + 960, charged_bytes=4_000, observed_throttle_ms=7),
        request(14, T0_MS + 800, charged_bytes=50_000),
        request(15, T0_MS + 1_000, charged_bytes=600_000),
        request(16, T0_MS + 990, charged_bytes=None, quota_type=None),
    )
    found = kept("throttled", *rows)
    common = {"cluster_id": "demo", "event_date": DAY, "kind": "left_out", "topic": "log", "partition": 0}
    common["is_out_of_time"] = False

    def left_out(
        broker_id: int, first: int, last: int, lines: int, newest: int, **more: Any
    ) -> dict[str, Any]:
        time_ms = T0_MS + newest
        times = {"record_time_ms": time_ms, "log_time_ms": time_ms + 1, "kafka_timestamp_ms": time_ms + 5}
        place = {"broker_id": broker_id, "first_offset": first, "kafka_offset": last, "lines": lines}
        return {**common, **place, **times, **more}

    assert found[0]["kafka_offset"] == 13
    assert sorted(found[1:], key=lambda row: row["kafka_offset"]) == [
        left_out(2, 12, 12, 1, 950, quota_type="produce", charged_bytes=300),
        # 1 + 20 + 50,000 bytes; the newest time is that of 11
        left_out(1, 10, 14, 3, 900, quota_type="produce", charged_bytes=50_021),
        left_out(1, 15, 15, 1, 1_000, quota_type="produce", charged_bytes=600_000),
        left_out(1, 16, 16, 1, 990),
    ]
    assert sum(row.get("lines", 1) for row in found) == len(rows)


def test_no_row_reaches_over_an_offset_that_is_missing_or_into_another_partition() -> None:
    rows = (
        request(10), request(11), request(13), request(14),
        request(15, partition=1), request(16, partition=1), request(17, topic="other", partition=1),
    )  # fmt: skip
    found = sorted(kept("unreadable", *rows), key=lambda row: row["kafka_offset"])
    assert [(row["first_offset"], row["kafka_offset"], row["lines"]) for row in found] == [
        (10, 11, 2), (13, 14, 2), (15, 16, 2), (17, 17, 1),
    ]  # fmt: skip


def test_where_every_line_is_kept_the_rows_are_the_same() -> None:
    rows = batch(heartbeat(0), heartbeat(1))
    assert kept_requests(rows, "unreadable", BEGUN) is rows
    assert kept_requests(rows.slice(0, 0), "throttled", BEGUN).num_rows == 0
