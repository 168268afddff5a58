"""Files that workers wrote become rows of a table once per micro-batch, and every reader finds them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.commits import BatchCommits, MicroBatch, replace_rows, retried
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.reading import query
from tests.support.spark.queries import only, rows_of
from tests.support.tables.table_rows import DAY, T0_MS, decision
from tests.support.tables.written_parts import written


def test_rows_of_two_dates_are_read_by_all_readers(settings: Settings) -> None:
    parts = written(
        settings, decision(0), decision(3, users=["a", "b"]), decision(1, event_date=DAY + timedelta(days=1))
    )
    assert [(part.event_date, part.rows) for part in parts] == [("2026-11-21", 2), ("2026-11-22", 1)]
    BatchCommits(settings, DECISIONS).add(parts, MicroBatch("q", 0))
    assert only(rows_of(settings, "decisions"), "second", "event_date", "users") == [
        (T0_MS, DAY, ["alice"]),
        (T0_MS + 1_000, DAY + timedelta(days=1), ["alice"]),
        (T0_MS + 3_000, DAY, ["a", "b"]),
    ]
    by_duckdb = query(
        settings, ["decisions"], "select event_date, count(*) from decisions group by all order by all"
    )
    assert by_duckdb.rows == [(DAY, 2), (DAY + timedelta(days=1), 1)]
    # What files may be left out by: the bounds of their seconds.
    actions = pa.table(DeltaTable(f"{settings.tables}/decisions").get_add_actions(flatten=True))
    bounds = sorted(zip(*(actions[f"{end}.second"].to_pylist() for end in ("min", "max")), strict=True))
    assert [[round(time.timestamp() * 1_000) - T0_MS for time in pair] for pair in bounds] == [
        [0, 3_000],
        [1_000, 1_000],
    ]


def test_files_of_workers_that_the_driver_does_not_see_are_refused_before_the_first_commit(
    settings: Settings, tmp_path: Path
) -> None:
    commits = BatchCommits(settings, DECISIONS)
    here = written(settings, decision(0))
    # A worker whose `tables:` is a disk of its own.
    elsewhere = written(settings.changed(tables=str(tmp_path / "other")), decision(1))
    with pytest.raises(UserError) as refused:
        commits.require_there([*here, *elsewhere])
    assert str(refused.value) == (
        f"table decisions: {elsewhere[0].path} is not under {settings.tables} as the driver sees it, though a worker "
        "wrote it there: tables: must be one place for all nodes; nothing was committed"
    )
    assert commits.newest().version() == 0
    commits.require_there([])
    commits.require_there(here)
    # Later ones are not looked for: that would cost a request per file.
    commits.require_there(elsewhere)


def test_a_micro_batch_is_known_by_its_query_and_number(settings: Settings) -> None:
    commits = BatchCommits(settings, DECISIONS)
    assert not commits.has(MicroBatch("q", 0))
    commits.add(written(settings, decision(0)), MicroBatch("q", 0))
    commits.add(written(settings, decision(1), decision(2)), MicroBatch("q", 1))
    commits.add(written(settings, decision(9)), MicroBatch("other", 0))
    again = BatchCommits(settings, DECISIONS)  # of another run
    known = [
        again.has(MicroBatch(*batch)) for batch in (("q", 0), ("q", 1), ("q", 2), ("other", 0), ("new", 0))
    ]
    assert known == [True, True, False, True, False]
    found = again.rows_of(MicroBatch("q", 1))
    assert found is not None
    assert found["second"].cast(pa.int64()).to_pylist() == [
        (T0_MS + offset) * 1_000 for offset in (1_000, 2_000)
    ]
    assert again.rows_of(MicroBatch("q", 5)) is None


def test_rows_that_another_writer_replaces_at_that_moment_do_not_stop_a_micro_batch(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = BatchCommits(settings, DECISIONS)
    commits.add(written(settings, decision(0)), MicroBatch("q", 0))
    begun = commits.newest
    restated = [written(settings, decision(0, requests=7))]

    def begun_before_the_restatement() -> StoredTable:
        table = begun()
        if restated:  # between the look at the table and the commit
            replace_rows(settings, DECISIONS, restated.pop(), "broker_id = 1")
        return table

    monkeypatch.setattr(commits, "newest", begun_before_the_restatement)
    commits.add(written(settings, decision(1)), MicroBatch("q", 1))
    assert restated == []
    assert only(rows_of(settings, "decisions"), "second", "requests") == [(T0_MS, 7), (T0_MS + 1_000, 1)]
    assert commits.has(MicroBatch("q", 1))


def test_a_commit_whose_answer_is_lost_is_made_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = BatchCommits(settings, DECISIONS)
    write = DeltaTable.create_write_transaction
    lost = [CommitFailedError("the answer is lost")]

    def writes_and_loses_the_answer(*args: Any, **options: Any) -> None:
        write(*args, **options)
        if lost:
            raise lost.pop()

    monkeypatch.setattr(DeltaTable, "create_write_transaction", writes_and_loses_the_answer)
    commits.add(written(settings, decision(0)), MicroBatch("q", 0))
    assert lost == []
    assert only(rows_of(settings, "decisions"), "second") == [(T0_MS,)]
    # The rows do not tell: a file that is added twice is there once.
    assert commits.newest().version() == 1


def ten(second: int) -> list[dict[str, Any]]:
    """Ten rows of one second."""
    return [decision(second, bucket_user=f"user-{number}") for number in range(10)]


def test_a_micro_batch_that_another_driver_has_committed_is_refused_at_the_commit(settings: Settings) -> None:
    woken, successor = BatchCommits(settings, DECISIONS), BatchCommits(settings, DECISIONS)
    woken.add(written(settings, *ten(0)), MicroBatch("q", 0))
    assert not successor.has(MicroBatch("q", 1))  # both are past their first look
    successor.add(written(settings, *ten(1)), MicroBatch("q", 1))
    late = written(settings, *ten(1))
    woken.add(late, MicroBatch("q", 1))
    assert len(rows_of(settings, "decisions")) == 20
    assert not (Path(settings.tables) / "decisions" / late[0].path).exists()


def test_of_two_drivers_that_commit_the_same_micro_batch_at_once_one_does(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = BatchCommits(settings, DECISIONS), BatchCommits(settings, DECISIONS)
    one.add(written(settings, *ten(0)), MicroBatch("q", 0))
    write, rivals = DeltaTable.create_write_transaction, [written(settings, *ten(1))]

    def writes_after_the_other(*args: Any, **options: Any) -> None:
        if rivals:  # between the look at the table and the commit
            other.add(rivals.pop(), MicroBatch("q", 1))
        write(*args, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", writes_after_the_other)
    one.add(written(settings, *ten(1)), MicroBatch("q", 1))
    assert rivals == []
    assert len(rows_of(settings, "decisions")) == 20


def test_an_older_micro_batch_is_refused_after_a_newer_one(settings: Settings) -> None:
    commits = BatchCommits(settings, DECISIONS)
    commits.add(written(settings, decision(7)), MicroBatch("q", 7))
    commits.add(written(settings, decision(5)), MicroBatch("q", 5))
    assert only(rows_of(settings, "decisions"), "second") == [(T0_MS + 7_000,)]
    assert DeltaTable(f"{settings.tables}/decisions").transaction_version("q") == 7


def test_what_is_not_committed_is_no_row_and_can_be_removed(settings: Settings) -> None:
    parts = written(settings, decision(0))
    assert rows_of(settings, "decisions") == []
    commits = BatchCommits(settings, DECISIONS)
    commits.discard(parts)
    commits.discard(parts)  # gone already
    assert list((Path(settings.tables) / "decisions").rglob("*.parquet")) == []


def test_a_write_that_lost_a_race_is_done_again_five_times_at_most() -> None:
    tries: list[int] = []

    def lose(times: int) -> None:
        tries.append(1)
        if len(tries) <= times:
            raise CommitFailedError("somebody was faster")

    retried(lambda: lose(4))
    assert len(tries) == 5
    tries.clear()
    with pytest.raises(
        UserError, match="another writer changed the same rows of a table five times in a row"
    ):
        retried(lambda: lose(9))
    assert len(tries) == 5


def test_the_log_is_read_for_a_number_only_after_commits_of_others(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = DeltaTable.transaction_version

    def counted(table: DeltaTable, query_id: str) -> int | None:
        asked.append(table.version())
        return ask(table, query_id)

    monkeypatch.setattr(DeltaTable, "transaction_version", counted)
    first, second = BatchCommits(settings, DECISIONS), BatchCommits(settings, DECISIONS)
    for number in range(3):
        first.add(written(settings, decision(number)), MicroBatch("q", number))
    assert asked == [0]
    second.add(written(settings, decision(3)), MicroBatch("q", 3))
    # Version 4 is not its own: it looks, finds that its micro-batch is there, and writes nothing.
    first.add(written(settings, decision(3)), MicroBatch("q", 3))
    assert asked == [0, 3, 4]
    first.add(written(settings, decision(4)), MicroBatch("q", 4))
    first.add(written(settings, decision(4)), MicroBatch("q", 4))  # its own: known without a look
    assert asked == [0, 3, 4, 4]
    assert only(rows_of(settings, "decisions"), "second") == [
        (T0_MS + 1_000 * number,) for number in range(5)
    ]
