"""Small files of a date become few, whoever reads, replaces or packs them at that moment; no row is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from kquota_spark.audit import upkeep as of_job
from kquota_spark.audit.upkeep import Upkeep
from kquota_spark.checkpoints.checkpoints import LOG
from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import DECISIONS, VIOLATIONS
from kquota_spark.store import commits, packing, storage
from kquota_spark.store.commits import BatchCommits, MicroBatch, replace_rows
from kquota_spark.store.creation import create_tables
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.files import dataset_of
from kquota_spark.store.following import DeltaCommits
from kquota_spark.store.packing import bins, due, pack, small_files
from kquota_spark.store.reading import Tables
from tests.support.spark.queries import only, rows_of
from tests.support.tables.table_rows import DAY, T0_MS, decision, violation, write_table
from tests.support.tables.written_parts import written


def commit(settings: Settings, first: int, count: int, **changed: Any) -> None:
    """So many micro-batches of one decision each: seconds `first`, `first` + 1, ..."""
    table = BatchCommits(settings, DECISIONS)
    for number in range(first, first + count):
        table.add(written(settings, decision(number, **changed)), MicroBatch("q", number))


def table_of(settings: Settings) -> StoredTable:
    return storage.delta_table(settings, "decisions")


def packed(settings: Settings) -> bool:
    """Pack what is due once."""
    files = due(small_files(table_of(settings)))
    return bool(files) and pack(settings, DECISIONS, files)


def seconds(settings: Settings) -> list[int]:
    return [(row["second"] - T0_MS) // 1_000 for row in rows_of(settings, "decisions")]


def levels(settings: Settings) -> list[int]:
    return sorted(file.level for file in small_files(table_of(settings)))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files are many."""
    monkeypatch.setattr(packing, "_MANY", 4)
    monkeypatch.setattr(packing, "_MOST_FILES", 4)


def test_sixty_files_of_a_date_become_one_with_the_same_rows_and_bounds(settings: Settings) -> None:
    commit(settings, 0, 59)
    assert not packed(settings)
    commit(settings, 59, 1)
    before = rows_of(settings, "decisions")
    assert packed(settings)
    assert rows_of(settings, "decisions") == before
    [row] = table_of(settings).files().as_arrow().to_pylist()
    assert row["num_records"] == 60
    bounds = [round(row[f"{end}.second"].timestamp() * 1_000) - T0_MS for end in ("min", "max")]
    assert bounds == [0, 59_000]
    assert not packed(settings)


@pytest.mark.usefixtures("few")
def test_files_of_a_date_stay_few_however_many_micro_batches_there_are(settings: Settings) -> None:
    most = 0
    for number in range(100):
        commit(settings, number, 1)
        while packed(settings):
            pass
        most = max(most, len(levels(settings)))
    # 100 = 1 x 64 + 2 x 16 + 1 x 4: four files of one level become one of the next. At 63 there are three of each.
    assert levels(settings) == [1, 2, 2, 3]
    assert most == 9
    assert seconds(settings) == list(range(100))


@pytest.mark.usefixtures("few")
def test_files_of_two_dates_stay_apart(settings: Settings) -> None:
    commit(settings, 0, 3)
    commit(settings, 3, 4, event_date=DAY + timedelta(days=1))
    assert packed(settings)
    assert not packed(settings)
    assert levels(settings) == [0, 0, 0, 1]


@pytest.mark.usefixtures("few")
def test_a_follower_reads_each_row_once_across_it(settings: Settings) -> None:
    follower, read = DeltaCommits(settings, "decisions"), list[int]()
    found = follower.unread()
    assert found is not None
    follower.read(found)

    def look() -> None:
        found = follower.unread()
        assert found is not None
        assert not found.is_fresh
        with Tables(settings) as tables:
            tables.open_files("decisions", found.paths)
            read.extend(
                row[0] for row in tables.query("select epoch_ms(second) from decisions order by 1").rows
            )
        follower.read(found)

    commit(settings, 0, 2)
    look()
    commit(settings, 2, 3)
    assert packed(settings)  # two that were read, and two that were not
    commit(settings, 5, 1)
    look()
    look()
    assert [(time_ms - T0_MS) // 1_000 for time_ms in read] == [0, 1, 2, 3, 4, 5]


Race = Callable[[Settings], None]


@pytest.mark.usefixtures("few")
def test_files_that_were_packed_are_read_on_an_object_store_too(settings: Settings) -> None:
    """There Arrow reads them, by way of the table."""
    commit(settings, 0, 5)
    paths = [file.path for file in small_files(table_of(settings))]
    assert packed(settings)
    rows = dataset_of(f"{settings.tables}/decisions", None, DECISIONS, paths[3:]).to_table(
        columns=["event_date", "second"]
    )
    assert [row["event_date"] for row in rows.to_pylist()] == [DAY, DAY]
    assert sorted(row["second"].timestamp() * 1_000 - T0_MS for row in rows.to_pylist()) == [3_000, 4_000]


def restated(settings: Settings) -> None:
    """Second 1 is replaced by a row with 7 requests."""
    replace_rows(
        settings, DECISIONS, written(settings, decision(1, requests=7)), "second = '2026-11-21 05:40:01Z'"
    )


def test_rows_that_are_restated_meanwhile_stay_restated(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading of the small files and the commit of the one that takes their place."""
    commit(settings, 0, 4)
    files, replaced = small_files(table_of(settings)), packing._replaced

    def after_the_restatement(*given: Any) -> bool:
        restated(settings)
        return replaced(*given)

    monkeypatch.setattr(packing, "_replaced", after_the_restatement)
    assert not pack(settings, DECISIONS, files)
    assert only(rows_of(settings, "decisions"), "requests") == [(1,), (1,), (1,), (7,)]
    assert list((Path(settings.tables) / "decisions").rglob("pack*")) == []


def test_a_restatement_begun_before_it_replaces_the_packed_rows(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(settings, 0, 4)
    opened, files = storage.delta_table, [small_files(table_of(settings))]

    def opened_before(*given: Any) -> StoredTable:
        table = opened(*given)
        if files:
            assert pack(settings, DECISIONS, files.pop())
        return table

    monkeypatch.setattr(commits, "delta_table", opened_before)
    restated(settings)
    assert files == []
    assert only(rows_of(settings, "decisions"), "requests") == [(1,), (1,), (1,), (7,)]


@pytest.mark.parametrize("at", ["before the first commit", "before each commit but the last"])
def test_micro_batches_that_come_at_that_moment_do_not_stop_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    commit(settings, 0, 4)
    write, numbers = (
        DeltaTable.create_write_transaction,
        iter(range(4, 5 if at.endswith("first commit") else 20)),
    )

    def after_a_micro_batch(table: DeltaTable, actions: Any, **options: Any) -> None:
        is_packing = len(actions) > 1
        if is_packing and (number := next(numbers, None)) is not None:
            commit(settings, number, 1)
        write(table, actions, **options)

    files = small_files(table_of(settings))
    monkeypatch.setattr(DeltaTable, "create_write_transaction", after_a_micro_batch)
    assert pack(settings, DECISIONS, files)
    assert seconds(settings) == list(range(5 if at.endswith("first commit") else 20))


def test_of_two_that_pack_the_same_files_one_does(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(settings, 0, 4)
    files, replaced = small_files(table_of(settings)), packing._replaced
    rivals = [files]

    def after_the_other(*given: Any) -> bool:
        if rivals:
            assert pack(settings, DECISIONS, rivals.pop())
        return replaced(*given)

    monkeypatch.setattr(packing, "_replaced", after_the_other)
    assert not pack(settings, DECISIONS, files)
    assert seconds(settings) == [0, 1, 2, 3]


def test_of_two_that_commit_the_same_files_at_once_one_does(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(settings, 0, 4)
    files = small_files(table_of(settings))
    write, rivals = DeltaTable.create_write_transaction, [files]

    def writes_after_the_other(*given: Any, **options: Any) -> None:
        if rivals:  # between the look at the table and the commit
            assert pack(settings, DECISIONS, rivals.pop())
        write(*given, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", writes_after_the_other)
    assert not pack(settings, DECISIONS, files)
    assert seconds(settings) == [0, 1, 2, 3]


def test_a_commit_whose_answer_is_lost_is_made_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(settings, 0, 4)
    write, lost = DeltaTable.create_write_transaction, [CommitFailedError("the answer is lost")]

    def writes_and_loses_the_answer(*given: Any, **options: Any) -> None:
        write(*given, **options)
        if lost:
            raise lost.pop()

    files = small_files(table_of(settings))
    monkeypatch.setattr(DeltaTable, "create_write_transaction", writes_and_loses_the_answer)
    assert pack(settings, DECISIONS, files)
    assert levels(settings) == [1]
    assert seconds(settings) == [0, 1, 2, 3]


def test_a_kill_before_the_commit_leaves_the_table_and_a_file_for_maintain(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(settings, 0, 4)
    before, version = rows_of(settings, "decisions"), table_of(settings).version()
    packing._written(settings, DECISIONS, small_files(table_of(settings)))  # and no more
    assert table_of(settings).version() == version
    assert rows_of(settings, "decisions") == before
    assert pack(settings, DECISIONS, small_files(table_of(settings)))
    assert rows_of(settings, "decisions") == before
    table_of(settings).remove_old_files(0, is_full=True)
    assert rows_of(settings, "decisions") == before


def test_a_file_with_fewer_rows_than_its_log_says_is_not_packed(settings: Settings) -> None:
    commit(settings, 0, 4)
    files = small_files(table_of(settings))
    with pytest.raises(OSError, match="another number of rows than the log of the table has"):
        pack(settings, DECISIONS, [files[0]._replace(rows=2), *files[1:]])
    assert levels(settings) == [0, 0, 0, 0]


def test_groups_are_bounded_and_one_file_is_none() -> None:
    mb = 1 << 20
    files = [
        packing.File(f"event_date=d/part-{i}", "d", size * mb, i, 1) for i, size in enumerate([60, 60, 60, 1])
    ]
    # 128 MiB at most: two of 60, then one of 60 and one of 1.
    assert [[file.size // mb for file in group] for group in bins(files, 500)] == [[60, 60], [60, 1]]
    assert [len(group) for group in bins(files, 2)] == [2, 2]
    assert [*bins(files[:1], 9)] == []


@pytest.mark.usefixtures("few")
def test_files_of_open_episodes_are_left_alone(settings: Settings) -> None:
    for number in range(4):
        write_table(Path(settings.tables), "violations", violation(number, None))
        write_table(Path(settings.tables), "violations", violation(10 + number, 5))
    files = small_files(storage.delta_table(settings, "violations"))
    assert len(files) == 4
    assert pack(settings, VIOLATIONS, due(files))
    assert len(rows_of(settings, "violations")) == 8


@pytest.mark.usefixtures("few")
def test_the_job_packs_and_trims_beside_its_queries_and_rests_in_between(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_tables(settings)
    commit(settings, 0, 9)
    now_s = 100.0

    def slow_pack(*given: Any) -> bool:
        nonlocal now_s
        now_s += 10.0
        return pack(*given)

    monkeypatch.setattr(of_job, "pack", slow_pack)
    upkeep = Upkeep(settings, [LOG], lambda: now_s)
    assert upkeep.work()
    assert levels(settings) == [0, 0, 0, 0, 0, 1]
    now_s = 149.0  # it had worked for 10 s until 110, so it rests until 150
    assert not upkeep.work()
    now_s = 150.0
    assert upkeep.work()
    assert levels(settings) == [0, 1, 1]


def test_a_table_that_cannot_be_read_stops_no_other(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    create_tables(settings)
    commit(settings, 0, 60)
    log = Path(settings.tables) / "requests" / "_delta_log"
    log.rename(log.parent / "elsewhere")
    upkeep = Upkeep(settings, [LOG])
    assert upkeep.work()
    assert levels(settings) == [1]
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "table requests was not tidied up"
    ]


@pytest.mark.usefixtures("few")
def test_a_damaged_file_is_said_and_left_where_it_is(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    create_tables(settings)
    commit(settings, 0, 4)
    [damaged, *_] = small_files(table_of(settings))
    (Path(settings.tables) / "decisions" / damaged.path).write_bytes(b"not parquet")
    upkeep = Upkeep(settings, [LOG])
    assert not upkeep.work()
    assert levels(settings) == [0, 0, 0, 0]
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "table decisions was not tidied up"
    ]
