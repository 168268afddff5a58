"""What a fold costs: it reads what others have changed, and of 100,000 violated buckets a piece each."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kquota_spark.audit.commit import _reported_judged
from kquota_spark.audit.stages import decided
from kquota_spark.audit.task_reports import TaskReport, TaskReports
from kquota_spark.audit.violations import fold
from kquota_spark.audit.violations.fold import EpisodeFold
from kquota_spark.audit.violations.judged import Judged, judged_rows
from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.schema.tables import VIOLATIONS
from kquota_spark.store.commits import MicroBatch
from kquota_spark.store.creation import create_table
from kquota_spark.store.delta.table import StoredTable
from tests.support.spark.queries import only, rows_of, settings_at
from tests.support.tables.table_rows import T0_MS, decision, write_table
from tests.support.tables.violated_buckets import SECONDS, all_over
from tests.unit.audit.test_violations import GAP_S, in_columns, over, settings_over, spans


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_over(tmp_path)


class Run:
    """One run of the job: its folds share what it keeps of open episodes."""

    def __init__(self, settings: Settings) -> None:
        self._fold, self._settings, self._number = EpisodeFold(settings), settings, 0

    def add(self, *rows: dict[str, Any]) -> None:
        judged = judged_rows(in_columns(*rows), GAP_S * 1_000)
        self._fold.fold(judged, MicroBatch("query", self._number), T0_MS)
        self._number += 1

    def spans(self) -> list[tuple[int, int | None, int]]:
        return spans(rows_of(self._settings, "violations"))


def test_open_episodes_are_read_again_only_when_somebody_else_has_changed_the_table(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, open_in = list[int](), fold._open_in

    def counted(table: StoredTable, cluster_id: str) -> pa.Table:
        found = open_in(table, cluster_id)
        read.append(found.num_rows)
        return found

    monkeypatch.setattr(fold, "_open_in", counted)
    run = Run(settings)
    run.add(over(0), over(0, bucket_user="bob"))
    run.add(over(1), over(1, bucket_user="bob"))
    run.add(over(2), over(2, bucket_user="bob"))
    assert read == [0]
    # A restatement finds that bob was not above his limit.
    DeltaTable(f"{settings.tables}/violations").delete("bucket_user = 'bob'")
    run.add(over(3), over(3, bucket_user="bob"))
    assert read == [0, 1]
    assert run.spans() == [(0, None, 3), (3, None, 3)]


def test_files_of_ended_episodes_are_not_opened(settings: Settings) -> None:
    run = Run(settings)
    run.add(over(0))
    run.add(decision(60))
    [ended] = DeltaTable(f"{settings.tables}/violations").file_uris()
    run.add(over(61))
    # It is gone, so a look at it would fail.
    Path(ended.removeprefix("file://")).unlink()
    run.add(over(62))
    run.add(over(63), decision(64, bucket_user="bob"))
    left = [uri for uri in DeltaTable(f"{settings.tables}/violations").file_uris() if uri != ended]
    assert [pq.read_table(uri.removeprefix("file://")).num_rows for uri in left] == [1]


def test_a_second_that_is_told_again_after_its_episode_ended_makes_no_other_of_the_same_id(
    settings: Settings,
) -> None:
    run = Run(settings)
    run.add(over(0), decision(60))
    run.add(over(61))
    run.add(over(0))
    found = rows_of(settings, "violations")
    assert len({row["episode_id"] for row in found}) == len(found) == 2


def test_open_episodes_that_a_late_second_joins_are_one(settings: Settings) -> None:
    from_jmx = over(0, source="jmx", total_throttle_ms=None)
    write_table(Path(settings.tables), "decisions", from_jmx)
    run = Run(settings)
    run.add(from_jmx)
    # The clock of JMX does not come on, so its episode stays open beside that of the log.
    run.add(over(8))
    assert run.spans() == [(0, None, 0), (8, None, 8)]
    run.add(over(3), over(5))
    run.add(over(9))
    assert only(rows_of(settings, "violations"), "violated_seconds", "last_second") == [(5, T0_MS + 9_000)]


BUCKETS = 20_000


class Reported:
    """The reports of tasks, as they come to the driver."""

    def __init__(self) -> None:
        self.reports: list[TaskReport] = []

    def add(self, report: TaskReport) -> None:
        self.reports.append(report)


def judged(settings: Settings, first_s: int) -> Judged:
    reported = Reported()
    for first, last in ((0, BUCKETS // 2), (BUCKETS // 2, BUCKETS)):
        batches = all_over(first, last, first_s).combine_chunks().to_batches()
        assert list(decided(settings, cast("TaskReports", reported), batches)) == []
    # Of 100,000 rows one piece a bucket, of at most 60 bytes.
    assert [len(each.pieces) < 60 * BUCKETS // 2 for each in reported.reports] == [True, True]
    found = _reported_judged(reported.reports)
    assert found.pieces.num_rows == BUCKETS
    return found


def test_of_all_buckets_violated_at_once_the_driver_gets_a_piece_each(settings: Settings) -> None:
    fold, took_s = EpisodeFold(settings), list[float]()
    for number in range(3):
        found = judged(settings, number * SECONDS)
        begun_s = time.process_time()
        fold.fold(found, MicroBatch("query", number), T0_MS)
        took_s.append(time.process_time() - begun_s)
    print(f"{BUCKETS:,} buckets: {', '.join(f'{each:.2f}' for each in took_s)} CPU seconds of the driver")
    rows = rows_of(settings, "violations")
    assert len(rows) == BUCKETS
    assert {(row["violated_seconds"], row["end_time"]) for row in rows} == {(15, None)}
    # 10 us a bucket; a row for each of 5 seconds took 135 us, 2.7 s in all. See also tests.bench.runs.violated.
    assert min(took_s) < 1.0


def test_episodes_that_have_ended_are_not_written_again_for_those_that_go_on(tmp_path: Path) -> None:
    settings = settings_at(tmp_path, episode_gap=GAP_S * 1_000)
    create_table(settings, VIOLATIONS)
    fold = EpisodeFold(settings)
    for number in range(10):
        # 2,000 buckets are over for 5 s, and then others; alice is always over.
        short = all_over(2_000 * number, 2_000 * (number + 1), 10 * number)
        always = in_columns(*(over(10 * number + 3 * step) for step in range(4)))
        decisions = pa.concat_tables([short, always])
        fold.fold(judged_rows(decisions, GAP_S * 1_000), MicroBatch("query", number), T0_MS)
    actions = DeltaTable(f"{settings.tables}/violations").get_add_actions(flatten=True)
    columns = (actions.column(name).to_pylist() for name in ("num_records", "null_count.end_time"))
    files = list(zip(*columns, strict=True))
    assert sum(rows for rows, _ in files) == 20_001
    assert sum(still_open for _, still_open in files) == 1
    # The file with alice has some thousand rows, whatever the others have.
    assert max(rows for rows, still_open in files if still_open) < 12_000


def test_an_older_table_gets_small_files_at_the_next_start(settings: Settings) -> None:
    create_table(settings, VIOLATIONS)
    configuration = DeltaTable(f"{settings.tables}/violations").metadata().configuration
    assert configuration["delta.targetFileSize"] == str(2**19)
    version = DeltaTable(f"{settings.tables}/violations").version()
    create_table(settings, VIOLATIONS)
    assert DeltaTable(f"{settings.tables}/violations").version() == version


def test_a_cluster_without_a_log_folds_all_seconds_of_jmx(settings: Settings) -> None:
    without = Settings(
        cluster_id="demo", tables=settings.tables, checkpoints=settings.checkpoints,
        kafka=Kafka(topic="", jmx_topic="jmx"), stream=settings.stream,
    )  # fmt: skip
    run = Run(without)
    run.add(over(0, source="jmx"), over(2, source="jmx"), over(2))
    assert only(rows_of(without, "violations"), "violated_seconds") == [(3,)]
