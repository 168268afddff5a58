"""What a look for gaps reads: the rows that came since the last one, however many there are; and what is no gap."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kquota_spark.audit.gaps import lost_offsets
from kquota_spark.audit.gaps.log_gaps import record_gaps
from kquota_spark.config.settings import Settings
from kquota_spark.schema.gap_tables import EXPIRED_UNREAD, MID_STREAM, SHIPPER_LOST_LINES
from kquota_spark.schema.tables import REQUESTS
from kquota_spark.store.packing import pack, small_files
from kquota_spark.store.reading import Tables
from kquota_spark.store.storage import delta_table
from tests.support.tables.recorded_gaps import FollowedRun, Told, settings_at, stored
from tests.support.tables.table_rows import (
    T0_MS,
    heartbeat,
    request,
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
    files = small_files(delta_table(settings, "requests"))
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
