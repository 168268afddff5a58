"""After many micro-batches a date has few files, and all the rows of a job that packs none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kquota_spark.audit import upkeep as of_job
from kquota_spark.audit.upkeep import Upkeep
from kquota_spark.checkpoints.checkpoints import LOG
from kquota_spark.config.settings import Settings
from kquota_spark.store import packing
from kquota_spark.store.creation import create_tables
from tests.stream.test_wrong_clocks import beat, line
from tests.support.spark.queries import (
    change,
    only,
    rows_of,
    run_topic,
    settings_at,
    write_rules,
    write_topic,
)
from tests.support.tables.table_rows import T0_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 30
TABLES = ("requests", "usage", "decisions", "violations")


def audited(spark: SparkSession, settings: Settings) -> None:
    """One request a second and micro-batch, each of 1,000 B; 100 B/s are allowed."""
    create_tables(settings)
    write_rules(settings, change("alice", None, 100.0))
    for number in range(BATCHES):
        at = f"2026-11-21 05:40:{number:02},000"
        write_topic(settings, [(1, line(at, number))], T0_MS + number * 1_000, number)
    write_topic(settings, [(1, beat(T0_MS + 120_000))], T0_MS + 120_000, BATCHES)
    run_topic(spark, settings)


def files(settings: Settings, name: str) -> int:
    return len(DeltaTable(f"{settings.tables}/{name}").file_uris())


def test_many_micro_batches_leave_few_files_and_the_same_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, packed = settings_at(tmp_path / "plain"), settings_at(tmp_path / "packed")
    audited(spark, plain)
    # Four files are many, and the thread looks all the time.
    monkeypatch.setattr(packing, "_MANY", 4)
    monkeypatch.setattr(of_job, "_INTERVAL_MS", 50)
    monkeypatch.setattr(of_job, "_REST", 0)
    create_tables(packed)
    upkeep = Upkeep(packed, [LOG])
    upkeep.start()
    audited(spark, packed)
    upkeep.stop()
    upkeep.check()
    while upkeep.work():
        pass
    # Each micro-batch writes a file of requests, and nearly each one of usage and of decisions.
    assert files(plain, "requests") == BATCHES + 1
    assert min(files(plain, name) for name in ("usage", "decisions")) > BATCHES // 2
    # Less than four of each of four levels.
    assert max(files(packed, name) for name in TABLES) <= 4 * 3
    offsets = only(rows_of(packed, "requests"), "kafka_offset")
    assert sorted(offsets) == [(number,) for number in range(BATCHES + 1)]
    for name in TABLES:
        assert rows_of(packed, name) == rows_of(plain, name), name
