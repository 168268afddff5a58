"""The digest of a date changes with its rows, and not with the files that they are in."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.commits import BatchCommits, MicroBatch, replace_rows
from kquota_spark.store.creation import create_tables
from kquota_spark.store.dated_files import DatedFiles, dated_files, digest_of
from kquota_spark.store.packing import pack, small_files
from kquota_spark.store.storage import delta_table
from tests.support.tables.table_rows import decision
from tests.support.tables.written_parts import written

DAY, NEXT = "2026-11-21", "2026-11-22"
NEXT_S = 66_000
"""Seconds from T0 to the next date."""


def commit(settings: Settings, number: int, *rows: dict[str, Any]) -> None:
    BatchCommits(settings, DECISIONS).add(written(settings, *rows), MicroBatch("q", number))


def files_of(settings: Settings) -> DatedFiles:
    found = dated_files(delta_table(settings, "decisions"))
    assert found is not None
    return found


def packed(settings: Settings) -> None:
    files = [file for file in small_files(delta_table(settings, "decisions")) if file.event_date == DAY]
    assert pack(settings, DECISIONS, files)


def test_packing_keeps_the_digest_of_a_date_and_late_rows_change_it(settings: Settings) -> None:
    create_tables(settings)
    for number in range(3):
        commit(settings, number, decision(number), decision(NEXT_S + number))
    before = files_of(settings)
    assert [len(before.paths[day]) for day in (DAY, NEXT)] == [3, 3]
    packed(settings)
    once = files_of(settings)
    assert [len(once.paths[day]) for day in (DAY, NEXT)] == [1, 3]
    assert [once.digest(day) for day in (DAY, NEXT)] == [before.digest(day) for day in (DAY, NEXT)]
    commit(settings, 3, decision(9))
    late = files_of(settings)
    assert (late.digest(DAY) == before.digest(DAY), late.digest(NEXT) == before.digest(NEXT)) == (False, True)
    # A packed file is packed again, together with the late one.
    packed(settings)
    twice = files_of(settings)
    assert (len(twice.paths[DAY]), twice.digest(DAY)) == (1, late.digest(DAY))


def test_a_restatement_changes_the_digest_though_there_are_as_many_rows_as_before(settings: Settings) -> None:
    create_tables(settings)
    commit(settings, 0, decision(0), decision(1))
    before = files_of(settings)
    replace_rows(
        settings, DECISIONS, written(settings, decision(1, requests=7)), "second >= '2026-11-21 05:40:01Z'"
    )
    assert files_of(settings).digest(DAY) != before.digest(DAY)
    assert not files_of(settings).has_still(DAY, before.digest(DAY))


def test_a_compaction_of_another_program_counts_as_a_change(settings: Settings) -> None:
    create_tables(settings)
    commit(settings, 0, decision(0))
    commit(settings, 1, decision(1))
    before = files_of(settings)
    DeltaTable(f"{settings.tables}/decisions").optimize.compact()
    assert files_of(settings).digest(DAY) != before.digest(DAY)


def test_the_digest_is_a_sum_that_the_order_of_files_does_not_change() -> None:
    first, second = digest_of(["event_date=2026-11-21/a"]), digest_of(["event_date=2026-11-21/b"])
    both = digest_of(["event_date=2026-11-21/b", "event_date=2026-11-21/a"])
    assert int(both, 16) == (int(first, 16) + int(second, 16)) % 2**128
    assert (digest_of([]), len(both)) == ("0" * 32, 32)
    carried = f"event_date=2026-11-21/pack2-{both}-0f.snappy.parquet"
    assert digest_of([carried]) == both
    # A release without digests packed this one: it stands for itself.
    assert (
        digest_of(["event_date=2026-11-21/pack1-550e8400-e29b-41d4-a716-446655440000.snappy.parquet"]) != both
    )


def test_dates_before_all_files_were_deleted_for_their_age_and_gaps_were_not() -> None:
    files = DatedFiles({"2026-11-20": ["a"], "2026-11-22": ["b"]})
    assert files.has_still("2026-11-20", digest_of(["a"])) and not files.has_still(
        "2026-11-20", digest_of(["b"])
    )
    assert files.has_still("2026-11-19", "anything")
    assert not files.has_still("2026-11-21", digest_of([])) and not files.has_still(
        "2026-11-23", digest_of([])
    )
    # An empty table may have been made anew.
    assert not DatedFiles({}).has_still("2026-11-20", digest_of([]))
