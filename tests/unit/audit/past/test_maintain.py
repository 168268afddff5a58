"""Maintenance of real tables: which dates go, which files stay for whom, and what a dry run leaves alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kquota_spark.audit.past.maintain import Step, maintain
from kquota_spark.config.loader import load_settings
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Kafka, Maintain, Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.creation import create_tables
from kquota_spark.store.reading import query
from tests.support.programs.command_output import as_json
from tests.support.tables.old_tables import age
from tests.support.tables.table_rows import decision, request, usage, violation, write_table
from tests.support.tables.written_parts import written

DAY_MS = 86_400_000
TODAY = date(2026, 11, 21)
NOW_MS = 1_795_262_400_000
"""2026-11-21 12:00:00 UTC."""
MAKE: dict[str, tuple[Callable[..., dict[str, Any]], str]] = {
    "usage": (usage, "second"),
    "decisions": (decision, "second"),
    "violations": (violation, "start_time"),
}


def _day(ago: int) -> date:
    return TODAY - timedelta(days=ago)


def _settings(root: Path, **changed: Any) -> Settings:
    kept = {"requests": Duration(2 * DAY_MS), "usage": Duration(5 * DAY_MS)}
    return Settings(
        cluster_id="demo",
        tables=str(root / "tables"),
        checkpoints=str(root / "checkpoints"),
        maintain=Maintain(**{"retention": kept, "file_retention": Duration(0), **changed}),
    )


def _two_files_a_day(root: Path, days: int) -> None:
    tables = root / "tables"
    for ago in reversed(range(days)):
        noon = datetime.combine(_day(ago), datetime.min.time(), UTC) + timedelta(hours=10)
        time_ms = round(noon.timestamp() * 1_000)
        for half in (0, 1):
            write_table(tables, "requests", request(2 * ago + half, time_ms + half, event_date=_day(ago)))
            for name, (make, time_column) in MAKE.items():
                moment = noon + timedelta(seconds=half)
                write_table(tables, name, make(event_date=_day(ago), **{time_column: moment}))


def _table(settings: Settings, name: str) -> DeltaTable:
    return DeltaTable(f"{settings.tables}/{name}")


def _days_of(settings: Settings, name: str) -> list[date]:
    rows = _table(settings, name).to_pyarrow_table(columns=["event_date"]).to_pylist()
    return sorted({row["event_date"] for row in rows})


def _files_on_disk(settings: Settings, name: str) -> int:
    return len(list((Path(settings.tables) / name).rglob("*.parquet"))) - len(
        list((Path(settings.tables) / name / "_delta_log").glob("*.parquet"))
    )


def test_old_dates_go_closed_ones_are_one_file_and_the_open_one_is_left_alone(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    _two_files_a_day(tmp_path, 8)
    before = _table(settings, "usage").to_pyarrow_table().num_rows
    steps = list(maintain(settings, NOW_MS, is_dry_run=False))
    # Kept are dates whose last second is not older than the retention: 2 days before noon is in date 2 days ago.
    assert _days_of(settings, "requests") == [_day(2), _day(1), TODAY]
    assert _days_of(settings, "usage") == [_day(ago) for ago in (5, 4, 3, 2, 1, 0)]
    assert before - _table(settings, "usage").to_pyarrow_table().num_rows == 2 * 2
    # No retention is given for them: nothing goes.
    assert len(_days_of(settings, "decisions")) == len(_days_of(settings, "violations")) == 8
    # Two closed dates of one file each, and today's two.
    assert len(_table(settings, "requests").file_uris()) == 2 + 2
    assert _files_on_disk(settings, "requests") == 2 + 2
    assert [step for step in steps if step.table == "requests"] == [
        *(Step("requests", "delete date", _day(ago).isoformat(), 2) for ago in (7, 6, 5, 4, 3)),
        *(Step("requests", "compact", _day(ago).isoformat(), 2, "into 1") for ago in (2, 1)),
        # Five dates of two files that were deleted, two of two that were replaced.
        Step("requests", "remove files", "", 5 * 2 + 2 * 2),
    ]
    again = list(maintain(settings, NOW_MS, is_dry_run=False))
    # What was removed is still named in the log.
    assert {step.action for step in again} == {"remove files"}


def test_a_second_process_is_refused_while_one_maintains(tmp_path: Path) -> None:
    """Two compactions at the same time would leave each row twice."""
    settings = _settings(tmp_path)
    _two_files_a_day(tmp_path, 3)
    rows = _table(settings, "requests").to_pyarrow_table().num_rows
    first = maintain(settings, NOW_MS, is_dry_run=False)
    steps = [next(first)]
    with pytest.raises(UserError) as raised:
        list(maintain(settings, NOW_MS, is_dry_run=False))
    assert str(raised.value) == (
        f"another process maintains these tables (pid {os.getpid()}, lock in {settings.tables}/_kquota): "
        "let one schedule run kquota maintain"
    )
    assert list(maintain(settings, NOW_MS, is_dry_run=True)) != []
    steps += first
    assert [step.action for step in steps if step.table == "requests"].count("compact") == 2
    assert _table(settings, "requests").to_pyarrow_table().num_rows == rows


def test_a_dry_run_says_the_same_and_changes_nothing(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    _two_files_a_day(tmp_path, 4)
    versions = {name: _table(settings, name).version() for name in ("requests", *MAKE)}
    told = {(step.table, step.action, step.date) for step in maintain(settings, NOW_MS, is_dry_run=True)}
    assert versions == {name: _table(settings, name).version() for name in ("requests", *MAKE)}
    assert _files_on_disk(settings, "requests") == 8
    assert {(name, action) for name, action, _ in told if name == "requests"} == {
        ("requests", "delete date"),
        ("requests", "compact"),
        ("requests", "remove files"),
    }
    done = {(step.table, step.action, step.date) for step in maintain(settings, NOW_MS, is_dry_run=False)}
    assert done == told


def test_replaced_files_go(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    _two_files_a_day(tmp_path, 3)
    now_ms = time.time_ns() // 1_000_000 + 1_000  # later than the commits that we have just made
    list(maintain(settings, now_ms, is_dry_run=False))
    assert _files_on_disk(settings, "requests") == len(_table(settings, "requests").file_uris())


def test_files_younger_than_their_retention_stay(tmp_path: Path) -> None:
    settings = _settings(tmp_path, file_retention=Duration(DAY_MS))
    _two_files_a_day(tmp_path, 3)
    steps = list(maintain(settings, NOW_MS, is_dry_run=False))
    assert [step.files for step in steps if step.action == "remove files"] == [0, 0, 0, 0]
    assert _files_on_disk(settings, "usage") == 6 + 2  # two closed dates were compacted


def test_what_a_killed_job_wrote_and_never_committed_goes_when_it_is_old(tmp_path: Path) -> None:
    settings = _settings(tmp_path, file_retention=Duration(3_600_000))
    _two_files_a_day(tmp_path, 1)
    directory = Path(settings.tables) / "decisions" / f"event_date={_day(0)}"
    old, fresh = (directory / f"part-{name}.snappy.parquet" for name in ("killed", "under-way"))
    for path in (old, fresh):
        path.write_bytes(b"PAR1")
    os.utime(old, (time.time() - 7_200, time.time() - 7_200))
    before = _table(settings, "decisions").to_pyarrow_table()
    list(maintain(settings, NOW_MS, is_dry_run=False))
    assert (old.exists(), fresh.exists()) == (False, True)
    assert _table(settings, "decisions").to_pyarrow_table() == before


def _planned(settings: Settings, batch: int, time_ms: int, query: str = "log") -> None:
    """A micro-batch that Spark has planned and not ended."""
    offsets = Path(settings.checkpoints) / query / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(batch)).write_text(f'v1\n{{"batchTimestampMs":{time_ms}}}\n{{}}\n', "utf-8")


def _aged(path: Path, hours: float) -> None:
    time_s = time.time() - hours * 3_600
    os.utime(path, (time_s, time_s))


def test_a_part_of_the_micro_batch_under_way_is_there_when_it_is_committed(tmp_path: Path) -> None:
    settings = _settings(tmp_path, file_retention=Duration(DAY_MS))
    _two_files_a_day(tmp_path, 1)
    now_ms = time.time_ns() // 1_000_000
    _planned(settings, 6, now_ms - 40 * 3_600_000)
    commits = Path(settings.checkpoints) / "log" / "commits"
    commits.mkdir()
    (commits / "6").touch()
    # 30 hours ago, and stopped since: its next start runs it again.
    _planned(settings, 7, now_ms - 30 * 3_600_000)
    (part,) = written(settings, decision(event_date=_day(0), broker_id=7))
    (orphan,) = written(settings, decision(event_date=_day(0), broker_id=8))
    folder = Path(settings.tables) / "decisions"
    _aged(folder / part.path, 29)
    _aged(folder / orphan.path, 31 + 1)  # an hour for clocks that differ
    list(maintain(settings, now_ms, is_dry_run=False))
    assert not (folder / orphan.path).exists()
    BatchCommits(settings, DECISIONS).add([part], MicroBatch("q", 7))
    assert query(settings, ["decisions"], "select broker_id from decisions where broker_id > 6").rows == [
        (7,)
    ]


def test_a_query_that_was_switched_off_in_a_micro_batch_keeps_no_files(tmp_path: Path) -> None:
    settings = _settings(tmp_path, file_retention=Duration(DAY_MS))
    _two_files_a_day(tmp_path, 1)
    now_ms = time.time_ns() // 1_000_000
    _planned(settings, 7, now_ms - 30 * 3_600_000, "jmx")
    (orphan,) = written(settings, decision(event_date=_day(0)))
    path = Path(settings.tables) / "decisions" / orphan.path
    _aged(path, 29)
    with_jmx = settings.changed(kafka=Kafka(jmx_topic="jmx"))
    notes = {
        step.note for step in maintain(with_jmx, now_ms, is_dry_run=True) if step.action == "remove files"
    }
    since = datetime.fromtimestamp(now_ms // 1_000 - 30 * 3_600, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    assert notes == {
        f"those since {since} stay: {settings.checkpoints}/jmx has a micro-batch that has not ended"
    }
    list(maintain(with_jmx, now_ms, is_dry_run=False))
    assert path.exists()
    # A setting that cannot be read may mean that it is on.
    unset = tmp_path / "kquota.yaml"
    unset.write_text("kafka: {jmx_topic: '${KQUOTA_NO_TOPIC}'}\n", "utf-8")
    list(maintain(settings.changed(kafka=load_settings(unset).kafka), now_ms, is_dry_run=False))
    assert path.exists()
    steps = list(maintain(settings, now_ms, is_dry_run=False))
    assert {step.note for step in steps if step.action == "remove files"} == {""}
    assert not path.exists()


@pytest.mark.parametrize("is_damaged", [False, True])
def test_without_a_planned_micro_batch_files_stay_for_their_retention_rounded_up_to_hours(
    tmp_path: Path, is_damaged: bool
) -> None:
    settings = _settings(tmp_path, file_retention=Duration(DAY_MS + 1_800_000))
    _two_files_a_day(tmp_path, 1)
    if is_damaged:
        _planned(settings, 0, 0)
        (Path(settings.checkpoints) / "log" / "offsets" / "0").write_text("v1\n", "utf-8")
    parts = written(settings, decision(event_date=_day(0))) + written(settings, decision(event_date=_day(0)))
    young, old = (Path(settings.tables) / "decisions" / part.path for part in parts)
    _aged(young, 24.75)  # 24.5 h are 25
    _aged(old, 25.25)
    list(maintain(settings, time.time_ns() // 1_000_000, is_dry_run=False))
    assert (young.exists(), old.exists()) == (True, False)


def test_dates_that_are_not_judged_are_open(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    _two_files_a_day(tmp_path, 8)
    _begun(settings)
    # Judged through the second of eight dates; the job is behind with the others.
    _table(settings, "decisions").delete(f"event_date > '{_day(6).isoformat()}'")
    steps = [step for step in maintain(settings, NOW_MS, is_dry_run=False) if step.files]
    assert {step.date for step in steps if step.date} == {_day(7).isoformat()}


def _begun(settings: Settings) -> None:
    """A checkpoint: the job has run here."""
    (Path(settings.checkpoints) / "log").mkdir(parents=True)
    (Path(settings.checkpoints) / "log" / "metadata").write_text('{"id":"1"}', "utf-8")


def test_each_closed_date_is_rolled_up_before_anything_goes(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    _two_files_a_day(tmp_path, 4)
    seen: list[tuple[date, int]] = []

    def roll_up(settings: Settings, day: date) -> None:
        seen.append((day, len(_days_of(settings, "requests"))))

    list(maintain(settings, NOW_MS, is_dry_run=True, roll_ups=(roll_up,)))
    assert seen == []
    list(maintain(settings, NOW_MS, is_dry_run=False, roll_ups=(roll_up,)))
    assert seen == [(_day(3), 4), (_day(2), 4), (_day(1), 4)]


def test_what_cannot_be_maintained_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^nothing to maintain: no second under .* has been judged yet$"):
        list(maintain(_settings(tmp_path), NOW_MS, is_dry_run=False))
    settings = _settings(tmp_path, retention={"decision": Duration(1)})
    with pytest.raises(
        UserError, match=r"^maintain\.retention\.decision: no table with dates, expected one of"
    ):
        list(maintain(settings, NOW_MS, is_dry_run=False))


def test_with_jmx_alone_dates_before_the_newest_are_closed(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    tables = tmp_path / "tables"
    write_table(tables, "usage", usage(source="jmx"))
    for ago in (1, 1, 0, 0):
        write_table(tables, "decisions", decision(event_date=_day(ago), source="jmx"))
    steps = [step for step in maintain(settings, NOW_MS, is_dry_run=False) if step.table == "decisions"]
    assert steps[0] == Step("decisions", "compact", _day(1).isoformat(), 2, "into 1")
    assert [step.action for step in steps] == ["compact", "remove files"]


def test_the_command_keeps_the_agreement_of_closed_dates_for_longer_than_their_decisions(
    tmp_path: Path,
) -> None:
    settings = _settings(tmp_path)
    _two_files_a_day(tmp_path, 4)
    config = tmp_path / "kquota.yaml"
    paths = f"cluster_id: demo\ntables: {settings.tables}\ncheckpoints: {settings.checkpoints}\n"
    config.write_text(f"{paths}maintain: {{retention: {{decisions: 1 h}}}}\n", encoding="utf-8")
    as_json("maintain", "--config", str(config))
    assert _days_of(settings, "agreement") == [_day(3), _day(2), _day(1)]
    # Two verdicts a day, three days of them kept and one live.
    judged = {row["event_date"]: row["requests_judged"] for row in as_json(
        "agreement", "--config", str(config), "--by", "day")["rows"]}  # fmt: skip
    assert judged == {_day(ago).isoformat(): 2 for ago in range(4)}
    assert _days_of(settings, "decisions") == [_day(0)]


def test_log_entries_older_than_the_retention_go_from_the_logs_of_all_tables(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    create_tables(settings)
    _two_files_a_day(tmp_path, 2)
    names = ("usage", "log_gaps", "broker_configs")
    for name in names:
        age(settings, name, to_version=250)
        for file in (Path(settings.tables) / name / "_delta_log").iterdir():
            text = file.read_bytes()
            file.unlink()  # a link
            file.write_bytes(text)
            if file.stem[:20] < f"{200:020}":
                # Entries of two days ago; a day is kept.
                os.utime(file, (time.time() - 2 * 86_400, time.time() - 2 * 86_400))
    rows = _table(settings, "usage").to_pyarrow_table().num_rows
    list(maintain(settings, NOW_MS, is_dry_run=True))
    assert all(len(_entries(settings, name)) == 251 for name in names)
    list(maintain(settings, NOW_MS, is_dry_run=False))
    # The newest checkpoint among the old ones stays, with all that came after it.
    assert {name: _entries(settings, name)[0] for name in names} == dict.fromkeys(names, 199)
    assert _table(settings, "usage").to_pyarrow_table().num_rows == rows


def _entries(settings: Settings, name: str) -> list[int]:
    log = Path(settings.tables) / name / "_delta_log"
    return sorted(int(file.stem) for file in log.glob("*.json"))
