"""What a shipper told of lost lines: read by INGEST, copied to `log_gaps` once, heeded by the replay."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kquota_spark.audit.gaps.log_gaps import record_gaps
from kquota_spark.config.settings import Settings
from kquota_spark.model.replay.log_beginning import BrokerLines, StartSign
from kquota_spark.schema.gap_tables import (
    BROKER_RESTART,
    BROKER_START,
    CUT_LINE,
    MID_STREAM,
    SHIPPER_LOST_LINES,
)
from kquota_spark.schema.tables import REQUESTS
from kquota_spark.store.delta import table as stored_table
from tests.support.tables.recorded_gaps import FollowedRun, Told, settings_at, stored
from tests.support.tables.table_rows import T0_MS, heartbeat, request, unreadable, write_table

MOMENT = dt.datetime.fromtimestamp(T0_MS / 1_000, dt.UTC)


def told(settings: Settings, broker_id: int, from_ms: int, to_ms: int, **more: Any) -> None:
    row = {
        "cluster_id": settings.cluster_id, "event_date": MOMENT.date(), "kind": "gap", "broker_id": broker_id,
        "log_time_ms": T0_MS + from_ms, "record_time_ms": T0_MS + to_ms, "is_out_of_time": False, **more,
    }  # fmt: skip
    write_deltalake(
        f"{settings.tables}/requests",
        pa.Table.from_pylist([row], schema=REQUESTS.arrow_schema()),
        mode="append",
    )


def test_each_gap_is_recorded_once(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    assert record_gaps(settings) == []
    told(settings, 1, 0, 5_000)
    told(settings, 1, 0, 5_000)  # told again after a crash of the shipper
    told(settings, 2, 0, 5_000, is_out_of_time=True)
    told(settings, 2, 0, 5_000, cluster_id="other")
    told(settings, 2, 0, 5_000, kind="heartbeat")
    assert record_gaps(settings) == ["shippers lost lines: 1 new gaps in log_gaps"]
    assert record_gaps(settings) == []
    told(settings, 2, 1_500, 2_000)
    assert record_gaps(settings) == ["shippers lost lines: 1 new gaps in log_gaps"]
    rows = DeltaTable(f"{settings.tables}/log_gaps").to_pyarrow_table().sort_by("broker_id").to_pylist()
    ms = dt.timedelta(milliseconds=1)
    assert rows == [
        {
            "cluster_id": "demo", "broker_id": 1, "from_time": MOMENT, "to_time": MOMENT + 5_000 * ms,
            "reason": "the shipper lost lines",
        },
        {
            "cluster_id": "demo", "broker_id": 2, "from_time": MOMENT + 1_500 * ms,
            "to_time": MOMENT + 2_000 * ms, "reason": "the shipper lost lines",
        },
    ]  # fmt: skip


def test_a_gap_that_only_a_clock_behind_set_aside_is_recorded(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)  # clocks differ by 2,500 ms at most
    told(settings, 1, 0, 5_000, is_out_of_time=True, kafka_timestamp_ms=T0_MS + 2_500)
    told(settings, 2, 0, 5_001, is_out_of_time=True, kafka_timestamp_ms=T0_MS + 2_500)
    assert record_gaps(settings) == ["shippers lost lines: 1 new gaps in log_gaps"]
    rows = DeltaTable(f"{settings.tables}/log_gaps").to_pyarrow_table().to_pylist()
    assert [row["broker_id"] for row in rows] == [1]


def line(broker_id: int, at_ms: int, connection: str, **more: Any) -> dict[str, Any]:
    """A request, logged 1 ms later."""
    row = request(0, T0_MS + at_ms, broker_id=broker_id, correlation_id=3)
    return {**row, "connection": f"10.0.0.1:9092-10.0.0.9:{connection}", **more}


def test_how_each_log_begins_is_recorded_once(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    tables = Path(settings.tables)
    write_table(
        tables,
        "requests",
        line(1, 500, "5000-0", correlation_id=0),
        line(2, 500, "5000-7", correlation_id=900),
        line(2, 501, "5001-0", correlation_id=0),
        # The shipper said before that there was nothing, and the controller's copy is no sign.
        {**heartbeat(0, T0_MS + 99), "broker_id": 3},
        line(3, 700, "5001-0", is_forwarded=True),
        line(3, 800, "5001-7"),
        {**heartbeat(0, T0_MS), "broker_id": 4},
        line(4, 0, "5001-0", cluster_id="another"),
        line(4, 0, "5001-0", is_out_of_time=True),
        {**unreadable(0, "cut off"), "broker_id": 5, "log_time_ms": None, "record_time_ms": None},
        line(6, 500, "5001-0", is_forwarded=True),
    )
    found = record_gaps(settings)
    assert stored(settings) == [
        (1, 501, 501, BROKER_START),
        (2, None, 501, MID_STREAM),
        (3, None, 100, MID_STREAM),
        (6, None, 501, MID_STREAM),
    ]
    assert found == ["the audit begins in mid-stream of the log of broker 2, 3, 6: 12 s are uncertain"]
    write_table(tables, "requests", line(1, 400, "5000-7", correlation_id=900), line(4, 60_000, "5001-7"))
    assert record_gaps(settings) == [
        "the audit begins in mid-stream of the log of broker 4: 12 s are uncertain"
    ]
    assert stored(settings)[-1] == (6, None, 501, MID_STREAM)
    assert (4, None, 1, MID_STREAM) in stored(settings)
    assert record_gaps(settings) == []


def cut(broker_id: int, at_ms: int, **more: Any) -> dict[str, Any]:
    row = {**unreadable(0, "cut off"), "broker_id": broker_id}
    return {**row, "log_time_ms": T0_MS + at_ms, "record_time_ms": T0_MS + at_ms, **more}


def test_lines_that_were_cut_leave_a_gap_of_ten_seconds_each_recorded_once(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    tables = Path(settings.tables)
    write_table(
        tables,
        "requests",
        cut(1, 3_000),
        cut(1, 9_999),
        cut(1, 10_000),
        # Ahead of its message too; clocks differ by 2,500 ms at most.
        cut(2, 0, is_out_of_time=True, kafka_timestamp_ms=T0_MS - 2_501),
        cut(2, 0, cluster_id="another"),
        # Of these it is known whose they are, and when this one was nobody knows.
        cut(2, 0, api_key=0, quota_type="produce"),
        {**unreadable(0, "no log time"), "broker_id": 2, "log_time_ms": None, "record_time_ms": None},
    )
    assert record_gaps(settings) == [
        "lines of broker 1 were cut: verdicts around them are uncertain (log_gaps)"
    ]
    # From a second before the first line of ten seconds to their end.
    assert stored(settings) == [(1, 2_000, 10_000, CUT_LINE), (1, 9_000, 20_000, CUT_LINE)]
    write_table(tables, "requests", cut(1, 12_000))
    assert record_gaps(settings) == []
    said: list[str] = []
    run = FollowedRun(settings, said.append)
    write_table(tables, "requests", cut(3, 500))
    run.follow([Told(counts={"cut": 0})], 0)
    assert said == []
    write_table(tables, "requests", cut(3, 600))
    run.follow([Told(counts={"cut": 1})], 1)
    assert said == ["lines of broker 3 were cut: verdicts around them are uncertain (log_gaps)"]


def test_cut_lines_leave_the_same_gap_whatever_the_micro_batches(tmp_path: Path) -> None:
    # A gap reaches back by a second only: seconds before it may be judged before the line is read.
    ways: list[list[list[int]]] = [[[6_400, 8_000]], [[6_400], [8_000]]]
    for number, batches in enumerate(ways):
        settings = settings_at(tmp_path / str(number))
        for times_ms in batches:
            write_table(Path(settings.tables), "requests", *(cut(1, at_ms) for at_ms in times_ms))
            record_gaps(settings)
        assert stored(settings) == [(1, 5_000, 10_000, CUT_LINE)]


def test_a_cut_line_that_only_a_clock_behind_set_aside_leaves_its_gap(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)  # clocks differ by 2,500 ms at most
    of_message = {"is_out_of_time": True, "kafka_timestamp_ms": T0_MS + 2_500}
    write_table(Path(settings.tables), "requests", cut(1, 5_000, **of_message), cut(2, 5_001, **of_message))
    record_gaps(settings)
    assert stored(settings) == [(1, 4_000, 10_000, CUT_LINE)]


def test_a_restart_of_a_broker_is_recorded_once_and_its_settings_are_asked_for(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    asked: list[int] = []
    said: list[str] = []
    run = FollowedRun(settings, said.append)
    run.watch.on_restart = lambda: asked.append(len(stored(settings)))
    before = BrokerLines(1, T0_MS + 900, ["10.0.0.1:9092"], [])
    after = BrokerLines(1, T0_MS + 5_000, [], [StartSign(T0_MS + 4_000, None, "10.0.0.1:9092", False)])
    run.follow([Told(lines=[before])], 0)
    assert (stored(settings), asked) == ([], [])
    run.follow([Told(lines=[after])], 1)
    assert stored(settings) == [(1, 901, 4_000, BROKER_RESTART)]
    assert (asked, said) == ([1], ["broker 1 was restarted: 12 s are uncertain"])
    # A micro-batch that runs again after a crash tells the same.
    again = FollowedRun(settings, said.append)
    again.follow([Told(lines=[before]), Told(lines=[after])], 1)
    again.follow([Told(lines=[before])], 2)
    assert len(stored(settings)) == 1


def test_the_driver_looks_when_a_task_tells_of_a_new_broker_or_of_a_shipper(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    said: list[str] = []
    run = FollowedRun(settings, said.append)
    write_table(Path(settings.tables), "requests", line(1, 500, "5000-7"))
    run.follow([Told()], 0)
    assert stored(settings) == []
    write_table(Path(settings.tables), "requests", line(1, 501, "5000-7"))
    run.follow([Told(brokers=[1]), Told()], 1)
    assert said == ["the audit begins in mid-stream of the log of broker 1: 12 s are uncertain"]
    run.follow([Told(brokers=[1])], 2)
    assert len(stored(settings)) == 1
    write_table(Path(settings.tables), "requests", line(65, 900, "5000-7"))
    told(settings, 1, 600, 800)
    run.follow([Told(brokers=[1, 65], counts={"gaps": 1})], 3)
    assert said[1:] == [
        "shippers lost lines: 1 new gaps in log_gaps",
        "the audit begins in mid-stream of the log of broker 65: 12 s are uncertain",
    ]
    run.follow([Told(brokers=[1, 65])], 4)
    assert len(said) == 3


def test_two_recorders_at_once_write_each_gap_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_at(tmp_path)
    told(settings, 1, 0, 5_000)
    write_table(Path(settings.tables), "requests", line(1, 500, "5000-7"))
    write, heard = write_deltalake, list[list[str]]()

    def writes_after_the_other(*args: Any, **options: Any) -> None:
        if not heard:  # between the look at the table and the commit
            heard.append([])
            heard[0] = record_gaps(settings)
        write(*args, **options)

    monkeypatch.setattr(stored_table, "write_deltalake", writes_after_the_other)
    assert record_gaps(settings) == []
    assert heard == [
        [
            "shippers lost lines: 1 new gaps in log_gaps",
            "the audit begins in mid-stream of the log of broker 1: 12 s are uncertain",
        ]
    ]
    assert stored(settings) == [(1, 0, 5_000, SHIPPER_LOST_LINES), (1, None, 501, MID_STREAM)]


def test_a_compaction_at_that_moment_does_not_stop_the_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_at(tmp_path)
    for number in (0, 1):
        told(settings, number, 0, 5_000)
        assert record_gaps(settings) == ["shippers lost lines: 1 new gaps in log_gaps"]
    told(settings, 2, 0, 5_000)
    write, compacted = write_deltalake, list[Any]()

    def writes_after_a_compaction(*args: Any, **options: Any) -> None:
        if not compacted:
            compacted.append(DeltaTable(f"{settings.tables}/log_gaps").optimize.compact())
        write(*args, **options)

    monkeypatch.setattr(stored_table, "write_deltalake", writes_after_a_compaction)
    assert record_gaps(settings) == ["shippers lost lines: 1 new gaps in log_gaps"]
    assert compacted[0]["numFilesRemoved"] == 2
    assert [row[0] for row in stored(settings)] == [0, 1, 2]
