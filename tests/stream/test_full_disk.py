"""No space left for a table or a checkpoint, or a worker killed: the query stops, and resumes when there is."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kquota_spark.audit.progress import reason_of
from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.store.creation import create_tables
from tests.capture.tables_of_release import RULES, requests_within
from tests.support.small_disk import small_disk
from tests.support.spark.queries import WITHIN_S, rows_of, run_log, settings_at, start_log, write_rules
from tests.support.tables.table_rows import write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", 4 << 20) as place:
        yield place


def _failure(session: SparkSession, settings: Settings) -> str:
    """The line that the job would print."""
    from pyspark.errors import StreamingQueryException

    query = start_log(session, settings).query
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination(WITHIN_S)
    failure = query.exception()
    assert failure is not None
    return reason_of(str(failure))


def _fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4_096))
        except OSError:
            return ballast


def _begun(settings: Settings) -> Settings:
    create_tables(settings)
    write_rules(settings, *RULES)
    write_table(Path(settings.tables), "requests", *requests_within(0, 10))
    return settings


@pytest.mark.parametrize("what", ["tables", "checkpoints"])
def test_a_full_disk_stops_the_query_and_costs_no_row(
    spark: SparkSession,
    tmp_path: Path,
    disk: Path,
    what: str,
) -> None:
    calm = _begun(settings_at(tmp_path / "calm"))
    full = settings_at(tmp_path / "full")
    place = str(disk / what)
    if what == "tables":
        full = _begun(dataclasses.replace(full, tables=place))
    else:
        full = _begun(dataclasses.replace(full, checkpoints=place))
    for settings in (calm, full):
        run_log(spark, settings)
        write_table(Path(settings.tables), "requests", *requests_within(10, 20))
    before = rows_of(full, "usage")
    ballast = _fill(disk)
    reason = _failure(spark, full)
    assert "No space left on device" in reason
    assert "\n" not in reason
    assert rows_of(full, "usage") == before
    ballast.unlink()
    for settings in (calm, full):
        run_log(spark, settings)
    assert len(rows_of(full, "usage")) > len(before)
    for name in ("usage", "decisions", "violations"):
        assert rows_of(full, name) == rows_of(calm, name), name


def test_the_task_of_a_worker_that_dies_runs_again_and_costs_no_row(
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    def settings_of(name: str) -> Settings:
        quotas = Quotas(
            source="file",
            callback="tests.support.spark.worker_killer:Killer",
            callback_options={"killer.mark": str(tmp_path / f"{name}.mark")},
        )
        return _begun(dataclasses.replace(settings_at(tmp_path / name), quotas=quotas))

    calm, killed = settings_of("calm"), settings_of("killed")
    (tmp_path / "calm.mark").touch()
    run_log(spark, calm)
    run_log(spark, killed)
    assert (tmp_path / "killed.mark").exists()
    assert rows_of(calm, "decisions") == rows_of(killed, "decisions")
    assert sum(row["requests"] for row in rows_of(killed, "decisions")) > 0
