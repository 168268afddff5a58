"""Rows of `log_gaps`: which of its files a check reads, and how they are put together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kquota_spark.audit.gaps import gap_rows
from kquota_spark.audit.gaps.log_gaps import record_gaps
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.gap_tables import CUT_LINE, MID_STREAM, SHIPPER_LOST_LINES
from kquota_spark.store.creation import create_tables
from kquota_spark.store.delta import table as stored_table
from kquota_spark.store.rows import rows_in_ms
from tests.support.tables.recorded_gaps import settings_at, stored
from tests.support.tables.table_rows import second, write_table
from tests.unit.audit.gaps.test_gap_lookups import gap, lines
from tests.unit.audit.gaps.test_log_gaps import cut as cut_line


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_at(tmp_path)


def cut(settings: Settings, at_ms: int) -> None:
    """A line of broker 1 of which it is not known whose it is."""
    write_table(Path(settings.tables), "requests", cut_line(1, at_ms))


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

    monkeypatch.setattr(stored_table, "write_deltalake", comes_second)
    assert record_gaps(settings) == [
        "lines of broker 1 were cut: verdicts around them are uncertain (log_gaps)"
    ]
    assert others == [1]
    assert stored(settings) == [(1, -1_000, 10_000, CUT_LINE), (1, 9_000, 20_000, CUT_LINE)]
