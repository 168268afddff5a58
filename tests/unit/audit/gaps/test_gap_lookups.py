"""What a look for gaps reads: the rows that came since the last one, however many there are; and what is no gap."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kquota_spark.audit.gaps import gap_rows, lost_offsets
from kquota_spark.audit.gaps.log_gaps import record_gaps
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.gap_tables import CUT_LINE, EXPIRED_UNREAD, MID_STREAM, SHIPPER_LOST_LINES
from kquota_spark.schema.tables import REQUESTS
from kquota_spark.store.creation import create_tables
from kquota_spark.store.packing import pack, small_files
from kquota_spark.store.reading import Tables
from kquota_spark.store.rows import rows_in_ms
from tests.support.tables.recorded_gaps import FollowedRun, Told, settings_at, stored
from tests.support.tables.table_rows import (
    T0_MS,
    heartbeat,
    request,
    second,
    unreadable,
    write_table,
)
from tests.unit.audit.gaps.test_notes import ran


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_at(tmp_path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int | str]:
    """What is read of `requests`: `all` for the table, else how many files."""
    found: list[int | str] = []
    whole, some = Tables.open, Tables.open_files

    def open_whole(self: Tables, name: str, newer_than_ms: int | None = None) -> None:
        if name == "requests":
            found.append("all")
        whole(self, name, newer_than_ms)

    def open_some(self: Tables, name: str, paths: Collection[str]) -> None:
        if name == "requests":
            found.append(len(paths))
        some(self, name, paths)

    monkeypatch.setattr(Tables, "open", open_whole)
    monkeypatch.setattr(Tables, "open_files", open_some)
    return found


def kafka_begins(monkeypatch: pytest.MonkeyPatch, **offsets: int) -> None:
    """What Kafka says of where the partitions of the topic begin now; one that is left out it does not say."""
    begins = {("log", int(partition.removeprefix("p"))): offset for partition, offset in offsets.items()}
    monkeypatch.setattr(lost_offsets, "first_offsets", lambda _settings, places: begins)


def lines(settings: Settings, *offsets: int, **more: Any) -> None:
    rows = [request(offset, T0_MS + offset, connection=f"c{offset}-0", **more) for offset in offsets]
    write_table(Path(settings.tables), "requests", *rows)


def gap(settings: Settings, to_ms: int) -> None:
    """A shipper's word of lost lines."""
    row = {**heartbeat(0, T0_MS + to_ms), "kind": "gap", "log_time_ms": T0_MS}
    write_table(Path(settings.tables), "requests", row)


def test_a_start_reads_no_row_that_a_look_before_has_read(
    settings: Settings, opened: list[int | str]
) -> None:
    lines(settings, 0)
    record_gaps(settings)
    opened.clear()
    assert record_gaps(settings) == []
    assert opened == []
    lines(settings, 1)
    gap(settings, 50)
    assert record_gaps(settings) == ["shippers lost lines: 1 new gaps in log_gaps"]
    assert opened == [2]
    assert (1, 0, 50, SHIPPER_LOST_LINES) in stored(settings)


def beat(settings: Settings, broker_id: int, at_ms: int) -> None:
    write_table(Path(settings.tables), "requests", {**heartbeat(0, T0_MS + at_ms), "broker_id": broker_id})


def test_of_a_broker_that_is_new_only_the_files_of_its_micro_batch_are_read(
    settings: Settings, opened: list[int | str]
) -> None:
    for offset in range(3):
        lines(settings, offset)
    record_gaps(settings)
    said: list[str] = []
    run = FollowedRun(settings, said.append)
    opened.clear()
    # Its shipper was there 90 ms before its first request, in a micro-batch before.
    beat(settings, 5, 0)
    run.follow([Told(beating=[5])], 0)
    assert (opened, said) == ([1], [])
    beat(settings, 5, 50)
    run.follow([Told(beating=[5])], 1)
    assert opened == [1]
    # Two tasks wrote two files.
    lines(settings, 90, broker_id=5, correlation_id=7)
    lines(settings, 91, broker_id=5, correlation_id=8)
    run.follow([Told(brokers=[5]), Told(brokers=[5])], 2)
    assert opened == [1, 2]
    assert said == ["the audit begins in mid-stream of the log of broker 5: 12 s are uncertain"]
    # The heartbeat was logged 1 ms after it.
    assert (5, None, 1, MID_STREAM) in stored(settings)
    lines(settings, 92, broker_id=5, correlation_id=9)
    run.follow([Told(brokers=[5])], 3)
    assert opened == [1, 2]


def test_what_a_shipper_said_before_the_first_request_is_there_after_a_restart(
    settings: Settings, opened: list[int | str]
) -> None:
    # Heard of in one run, by its start or in a micro-batch of it, and requests come in the next one.
    beat(settings, 5, 0)
    record_gaps(settings)
    run = FollowedRun(settings)
    beat(settings, 6, 10)
    run.follow([Told(beating=[6])], 0)
    opened.clear()
    lines(settings, 90, broker_id=5, correlation_id=7)
    lines(settings, 91, broker_id=6, correlation_id=7)
    record_gaps(settings)
    assert opened == [2]
    assert stored(settings) == [(5, None, 1, MID_STREAM), (6, None, 11, MID_STREAM)]


def test_files_that_were_put_together_since_are_read_for_missing_offsets(
    settings: Settings, opened: list[int | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_begins(monkeypatch)
    ran(settings, {"0": 0}, batch=0)
    record_gaps(settings)
    run = FollowedRun(settings)
    lines(settings, 0, 1)
    ran(settings, {"0": 2}, batch=1)
    run.follow([Told([("log", 0, 0, 1, 2)], [1])], 1)
    lines(settings, 2)
    ran(settings, {"0": 3}, batch=2)
    run.follow([Told([("log", 0, 2, 2, 1)], [1])], 2)
    DeltaTable(f"{settings.tables}/requests").optimize.compact()
    opened.clear()
    # Offset 3 has no line, and that of 2 is in a file which is no part of the table any more.
    lines(settings, 4)
    ran(settings, {"0": 5}, batch=3)
    run._seen |= run._paths()
    table = DeltaTable(f"{settings.tables}/requests")
    newest = pa.table(table.get_add_actions(flatten=True)).sort_by("modification_time")["path"][-1].as_py()
    run.watch.follow([Told([("log", 0, 4, 4, 1)], [1])], 3, [newest], table.version)
    assert [row for row in stored(settings) if row[-1] == EXPIRED_UNREAD] == [(1, 2, 4, EXPIRED_UNREAD)]
    # 2 with the offsets, then those and the compacted one with what is around.
    assert opened == [2, 3]


def test_all_rows_are_read_again_where_the_log_of_the_table_does_not_say_what_is_new(
    settings: Settings, opened: list[int | str]
) -> None:
    lines(settings, 0)
    record_gaps(settings)
    gap(settings, 50)
    lines(settings, 1)
    table = DeltaTable(f"{settings.tables}/requests")
    table.create_checkpoint()
    for file in (Path(settings.tables) / "requests" / "_delta_log").glob("*.json"):
        if int(file.stem) < table.version():
            file.unlink()
    opened.clear()
    assert record_gaps(settings) == ["shippers lost lines: 1 new gaps in log_gaps"]
    assert "all" in opened


def test_new_rows_that_were_put_together_meanwhile_are_found(
    settings: Settings, opened: list[int | str]
) -> None:
    lines(settings, 0)
    record_gaps(settings)
    gap(settings, 50)
    lines(settings, 1)
    table = DeltaTable(f"{settings.tables}/requests")
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert record_gaps(settings) == ["shippers lost lines: 1 new gaps in log_gaps"]


def test_new_rows_that_the_job_has_packed_meanwhile_are_read_and_no_others(
    settings: Settings, opened: list[int | str]
) -> None:
    lines(settings, 0)
    record_gaps(settings)
    gap(settings, 50)
    lines(settings, 1)
    files = small_files(DeltaTable(f"{settings.tables}/requests"))
    assert len(files) == 3
    assert pack(settings, REQUESTS, files)
    opened.clear()
    assert record_gaps(settings) == ["shippers lost lines: 1 new gaps in log_gaps"]
    assert opened == [2]


def test_of_offsets_only_files_are_read_that_may_hold_them(
    settings: Settings, opened: list[int | str]
) -> None:
    for offset in range(6):
        lines(settings, offset)
    record_gaps(settings)
    ran(settings, {"0": 6}, batch=0)
    record_gaps(settings)
    lines(settings, 6)
    lines(settings, 7)
    ran(settings, {"0": 8}, batch=1)
    opened.clear()
    assert record_gaps(settings) == []
    # Offsets 6 and 7 are in two files, which are those of the new rows as well.
    assert opened == [2, 2]


def test_the_job_notes_how_far_it_has_looked_without_being_asked(
    settings: Settings, opened: list[int | str]
) -> None:
    run = FollowedRun(settings)
    for number in range(17):
        lines(settings, number)
        told = Told(spans=[("log", 0, number, number, 1)], brokers=[1])
        run.follow([told], number)
    opened.clear()
    record_gaps(settings)
    # The first one brought a new broker, and each 8th after it is a reason by itself: 8, and 16.
    assert opened == []


def test_a_look_that_only_notes_opens_no_file(settings: Settings, opened: list[int | str]) -> None:
    run = FollowedRun(settings)
    for number in range(9):
        lines(settings, number)
        run.follow([Told(spans=[("log", 0, number, number, 1)], brokers=[1])], number)
        if number == 0:
            opened.clear()
    assert opened == []
    # The one of number 8 noted the version with the files of all 9.
    noted = json.loads((Path(settings.checkpoints) / "log.compared.json").read_bytes())
    assert noted["requests"] == DeltaTable(f"{settings.tables}/requests").version()


def cut(settings: Settings, at_ms: int) -> None:
    """A line of broker 1 of which it is not known whose it is."""
    row = {
        **unreadable(0, "cut off"),
        "broker_id": 1,
        "log_time_ms": T0_MS + at_ms,
        "record_time_ms": T0_MS + at_ms,
    }
    write_table(Path(settings.tables), "requests", row)


def test_of_a_cut_line_in_a_gap_that_is_known_the_gaps_are_not_read_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def rows_read(table: pa.Table) -> list[dict[str, Any]]:
        rows = rows_in_ms(table)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(gap_rows, "rows_in_ms", rows_read)
    for at_ms in (0, 9_999, 10_000, 10_001):
        cut(settings, at_ms)
        record_gaps(settings)
    assert stored(settings) == [(1, -1_000, 10_000, CUT_LINE), (1, 9_000, 20_000, CUT_LINE)]
    # For the first gap there was nothing to read. For the second neither: the first one ends before it does.
    assert read == [0, 0]


DAY_MS = 86_400_000


@contextmanager
def damaged(settings: Settings, reason: str) -> Iterator[None]:
    """Meanwhile no file can be read that `log_gaps` has now for a reason."""
    table = DeltaTable(f"{settings.tables}/log_gaps")
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    files = [
        Path(settings.tables) / "log_gaps" / row["path"] for row in actions if row["min.reason"] == reason
    ]
    before = [file.read_bytes() for file in files]
    for file in files:
        file.write_bytes(b"no Parquet")
    yield
    for file, data in zip(files, before, strict=True):
        file.write_bytes(data)


def test_files_of_older_gaps_are_not_opened_when_a_gap_is_found(settings: Settings) -> None:
    lines(settings, 0, correlation_id=7)
    cut(settings, 0)
    record_gaps(settings)
    with damaged(settings, CUT_LINE):
        cut(settings, DAY_MS)
        gap(settings, DAY_MS + 5_000)
        lines(settings, 1)  # how this broker's log begins is known from its own file
        assert record_gaps(settings) == [
            "shippers lost lines: 1 new gaps in log_gaps",
            "lines of broker 1 were cut: verdicts around them are uncertain (log_gaps)",
        ]
        assert record_gaps(settings) == []
    assert stored(settings) == [
        (1, -1_000, 10_000, CUT_LINE),
        (1, 0, DAY_MS + 5_000, SHIPPER_LOST_LINES),
        (1, DAY_MS - 1_000, DAY_MS + 10_000, CUT_LINE),
        (1, None, 1, MID_STREAM),
    ]
    # One that is as old as the file needs it.
    with damaged(settings, CUT_LINE), pytest.raises((UserError, OSError)):
        cut(settings, 5_000)
        record_gaps(settings)


def test_full_files_of_older_gaps_are_not_opened_to_put_newer_ones_together(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gap_rows, "_MOST_FILES", 2)
    monkeypatch.setattr(gap_rows, "_FULL_ROWS", 3)

    def files_after_each(from_ms: int) -> list[int]:
        found = []
        for at_ms in (0, 10_000, 20_000):
            cut(settings, from_ms + at_ms)
            record_gaps(settings)
            found.append(len(DeltaTable(f"{settings.tables}/log_gaps").file_uris()))
        return found

    assert files_after_each(0) == [1, 2, 1]
    with damaged(settings, CUT_LINE):
        assert files_after_each(DAY_MS) == [2, 3, 2]
    times_ms = (0, 10_000, 20_000, DAY_MS, DAY_MS + 10_000, DAY_MS + 20_000)
    expected = [(1, time_ms - 1_000, time_ms + 10_000, CUT_LINE) for time_ms in times_ms]
    assert stored(settings) == sorted(expected, key=repr)


def test_a_table_of_a_release_without_statistics_is_read_whole_until_its_files_are_put_together(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gap_rows, "_MOST_FILES", 2)
    table = DeltaTable(f"{settings.tables}/log_gaps")
    table.alter.set_table_properties({"delta.dataSkippingStatsColumns": ""})
    for at_ms in (0, 10_000):
        cut(settings, at_ms)
        record_gaps(settings)
    create_tables(settings)
    cut(settings, 5_000)
    assert record_gaps(settings) == []
    cut(settings, 20_000)
    record_gaps(settings)
    table.update_incremental()
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert [(row["num_records"], row["min.to_time"], row["max.reason"]) for row in actions] == [
        (3, second(10), CUT_LINE)
    ]


def test_gaps_that_came_one_by_one_are_put_together_to_one_file(settings: Settings) -> None:
    for number in range(50):
        moment = second(10 * number)
        gap_row = {"cluster_id": "other", "broker_id": 1, "from_time": moment, "to_time": moment}
        write_table(Path(settings.tables), "log_gaps", {**gap_row, "reason": CUT_LINE})
    files = []
    for at_ms in (0, 10_000, 20_000):
        cut(settings, at_ms)
        record_gaps(settings)
        files.append(len(DeltaTable(f"{settings.tables}/log_gaps").file_uris()))
    # 51 are too many.
    assert files == [1, 2, 3]
    assert sorted(row for row in stored(settings) if row[2] % 10_000 == 0 and row[1] != row[2]) == [
        (1, -1_000, 10_000, CUT_LINE),
        (1, 9_000, 20_000, CUT_LINE),
        (1, 19_000, 30_000, CUT_LINE),
    ]
    assert len(stored(settings)) == 53


def test_another_driver_that_puts_the_gaps_together_first_does_not_stop_this_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gap_rows, "_MOST_FILES", 1)
    cut(settings, 0)
    record_gaps(settings)
    cut(settings, 10_000)
    write, others = write_deltalake, list[int]()

    def comes_second(table: DeltaTable, rows: pa.Table, *, mode: Any, **options: Any) -> None:
        if mode == "overwrite" and not others:
            others.append(0)
            gap_rows._compact(settings, CUT_LINE)
            others[0] = len(DeltaTable(f"{settings.tables}/log_gaps").file_uris())
        write(table, rows, mode=mode, **options)

    monkeypatch.setattr(gap_rows, "write_deltalake", comes_second)
    assert record_gaps(settings) == [
        "lines of broker 1 were cut: verdicts around them are uncertain (log_gaps)"
    ]
    assert others == [1]
    assert stored(settings) == [(1, -1_000, 10_000, CUT_LINE), (1, 9_000, 20_000, CUT_LINE)]


def test_markers_of_transactions_are_no_expired_lines(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(settings, {"0": 0}, batch=0)
    record_gaps(settings)
    # Each tenth offset is a marker: no line has it, and Kafka holds it still.
    lines(settings, *(offset for offset in range(100) if offset % 10 != 9))
    ran(settings, {"0": 100}, batch=1)
    kafka_begins(monkeypatch, p0=0)
    record_gaps(settings)
    assert [row for row in stored(settings) if row[-1] == EXPIRED_UNREAD] == []


def test_of_what_is_missing_only_what_kafka_does_not_have_any_more_has_expired(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(settings, {"0": 0}, batch=0)
    record_gaps(settings)
    # 0 to 39 were gone when the job came; 59 is a marker.
    lines(settings, *(offset for offset in range(40, 100) if offset != 59))
    ran(settings, {"0": 100}, batch=1)
    kafka_begins(monkeypatch, p0=40)
    (note, _) = record_gaps(settings)
    assert note.startswith("log partition 0: 40 offsets from 0 on expired before they were read")
    assert [row for row in stored(settings) if row[-1] == EXPIRED_UNREAD] == [(1, None, 40, EXPIRED_UNREAD)]


def test_what_kafka_does_not_answer_for_counts_as_expired(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(settings, {"0": 0}, batch=0)
    record_gaps(settings)
    lines(settings, 0, 2)
    ran(settings, {"0": 3}, batch=1)
    kafka_begins(monkeypatch)
    record_gaps(settings)
    assert [row for row in stored(settings) if row[-1] == EXPIRED_UNREAD] == [(1, 0, 2, EXPIRED_UNREAD)]
    assert json.loads((Path(settings.checkpoints) / "log.compared.json").read_bytes())["batch"] == 1
