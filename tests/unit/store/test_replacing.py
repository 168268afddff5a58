"""Several processes write one table on a local disk: no commit replaces another one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store import commits
from kquota_spark.store.commits import BatchCommits, MicroBatch, add_rows, replace_rows
from kquota_spark.store.following import DeltaCommits
from kquota_spark.store.parts import dataset_of
from tests.support.places import ROOT
from tests.support.spark.queries import only, rows_of
from tests.support.tables.table_rows import T0_MS, decision
from tests.support.tables.written_parts import written

SECONDS_2_TO_4 = (
    "cluster_id = 'demo' AND event_date >= '2026-11-21' AND event_date <= '2026-11-21' "
    "AND second >= '2026-11-21 05:40:02Z' AND second < '2026-11-21 05:40:05Z' AND source = 'log'"
)
_APPENDS = """
import sys
import pyarrow as pa
from deltalake import write_deltalake
for number in range(25):
    write_deltalake(sys.argv[1], pa.table({"who": [f"{sys.argv[2]}-{number}"]}), mode="append")
"""


def committed(settings: Settings, number: int, *rows: dict[str, Any]) -> None:
    """What the job does with a micro-batch."""
    BatchCommits(settings, DECISIONS).add(written(settings, *rows), MicroBatch("job", number))


def found(settings: Settings) -> list[tuple[int, float]]:
    """Second and rate of each row."""
    rows = only(rows_of(settings, "decisions"), "second", "rate_per_s")
    return [((time_ms - T0_MS) // 1_000, rate) for time_ms, rate in rows]


def held_before_the_commit(monkeypatch: pytest.MonkeyPatch, rival: Callable[[], None]) -> None:
    """Let somebody else commit while the rows to be written are read: the table is opened, nothing is committed."""

    def dataset(*arguments: Any) -> Any:
        class Held:
            def to_batches(self) -> Iterator[pa.RecordBatch]:
                other = threading.Thread(target=rival)
                other.start()
                other.join()
                yield from dataset_of(*arguments).to_batches()

        return Held()

    monkeypatch.setattr(commits, "dataset_of", dataset)


def test_rows_of_the_period_are_replaced_and_no_file_is_left_over(settings: Settings) -> None:
    committed(settings, 0, *(decision(second, rate_per_s=1.0) for second in range(7)))
    parts = written(settings, decision(2, rate_per_s=9.0), decision(4, rate_per_s=9.0))
    replace_rows(settings, DECISIONS, parts, SECONDS_2_TO_4)
    assert found(settings) == [(0, 1.0), (1, 1.0), (2, 9.0), (4, 9.0), (5, 1.0), (6, 1.0)]
    assert not (Path(settings.tables) / "decisions" / parts[0].path).exists()
    replace_rows(settings, DECISIONS, [], SECONDS_2_TO_4)
    assert found(settings) == [(0, 1.0), (1, 1.0), (5, 1.0), (6, 1.0)]


def test_a_micro_batch_that_the_job_commits_meanwhile_is_kept(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(settings, 0, decision(1, rate_per_s=1.0), decision(2, rate_per_s=1.0))
    held_before_the_commit(monkeypatch, lambda: committed(settings, 1, decision(7, rate_per_s=1.0)))
    replace_rows(settings, DECISIONS, written(settings, decision(2, rate_per_s=9.0)), SECONDS_2_TO_4)
    assert found(settings) == [(1, 1.0), (2, 9.0), (7, 1.0)]
    assert BatchCommits(settings, DECISIONS).has(MicroBatch("job", 1))


def test_rows_of_the_period_that_come_meanwhile_are_replaced_in_a_second_attempt(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(settings, 0, decision(2, rate_per_s=1.0))
    late = iter([1])

    def rival() -> None:
        for number in late:
            committed(settings, number, decision(3, rate_per_s=5.0))

    held_before_the_commit(monkeypatch, rival)
    replace_rows(settings, DECISIONS, written(settings, decision(2, rate_per_s=9.0)), SECONDS_2_TO_4)
    assert found(settings) == [(2, 9.0)]


def test_files_are_removed_where_the_rows_changed_five_times_in_a_row(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(settings, 0, decision(2, rate_per_s=1.0))
    numbers = iter(range(1, 9))
    held_before_the_commit(
        monkeypatch, lambda: committed(settings, next(numbers), decision(3, rate_per_s=5.0))
    )
    parts = written(settings, decision(2, rate_per_s=9.0))
    with pytest.raises(UserError, match="another writer changed the same rows"):
        replace_rows(settings, DECISIONS, parts, SECONDS_2_TO_4)
    assert found(settings) == [(2, 1.0), *[(3, 5.0)] * 5]
    assert not (Path(settings.tables) / "decisions" / parts[0].path).exists()


def test_rows_that_are_only_added_are_none_for_those_who_follow_the_table(settings: Settings) -> None:
    committed(settings, 0, decision(9, rate_per_s=1.0))
    follower = DeltaCommits(settings, "decisions")
    begun = follower.unread()
    assert begun is not None
    follower.read(begun)
    add_rows(settings, DECISIONS, written(settings, decision(2, rate_per_s=9.0)))
    add_rows(settings, DECISIONS, [])
    unread = follower.unread()
    assert unread is not None
    assert (unread.paths, unread.version) == ((), begun.version + 1)
    assert found(settings) == [(2, 9.0), (9, 1.0)]


def test_of_processes_that_commit_at_the_same_time_none_loses_anything(tmp_path: Path) -> None:
    root = tmp_path / "table"
    write_deltalake(root, pa.table({"who": ["first"]}))
    writers = [
        subprocess.Popen([sys.executable, "-c", _APPENDS, str(root), str(number)], cwd=ROOT)
        for number in range(3)
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    table = DeltaTable(root)
    everything = ["first", *(f"{writer}-{number}" for writer in range(3) for number in range(25))]
    assert sorted(str(who) for who in table.to_pyarrow_table()["who"].to_pylist()) == sorted(everything)
    assert table.version() == 75
