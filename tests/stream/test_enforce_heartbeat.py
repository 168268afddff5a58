"""The query that wakes the enforcer: once for what has come, not for what was there, and also after a restart."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kquota_spark.audit.progress import raise_failure
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Enforcement, Settings
from kquota_spark.enforcement.job import start_heartbeat
from kquota_spark.errors import UserError
from tests.support.tables.table_rows import decision, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The enforcer is woken at once, not every ten seconds."""
    return dataclasses.replace(settings, enforcement=Enforcement(trigger=Duration(100)))


def test_new_decisions_wake_it_once_whatever_their_commits(spark: SparkSession, settings: Settings) -> None:
    tables, checks = Path(settings.tables), list[int]()
    for number in range(3):
        write_table(tables, "decisions", decision(number))
    query = start_heartbeat(spark, settings, lambda: checks.append(1))
    try:
        query.processAllAvailable()
        history = len(checks)
        for number in range(3, 6):
            write_table(tables, "decisions", decision(number))
        query.processAllAvailable()
    finally:
        query.stop()
    # The newest commit of before is where it starts; the three that came may be one micro-batch or up to three.
    assert history == 1
    assert 2 <= len(checks) <= 4
    write_table(tables, "decisions", decision(6))
    write_table(tables, "decisions", decision(7))
    again: list[int] = []
    query = start_heartbeat(spark, settings, lambda: again.append(1))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert again == [1]  # two commits of the pause, one look


def test_after_a_pause_that_outlasted_the_files_of_the_table_it_begins_anew(
    spark: SparkSession, settings: Settings
) -> None:
    tables, checks = Path(settings.tables), list[int]()
    write_table(tables, "decisions", decision(0))
    query = start_heartbeat(spark, settings, lambda: checks.append(1))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    # What maintenance does meanwhile: of the commits and files of before nothing is left.
    for number in range(1, 4):
        write_table(tables, "decisions", decision(number))
    table = DeltaTable(tables / "decisions")
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    table = DeltaTable(tables / "decisions")
    table.create_checkpoint()
    log = tables / "decisions" / "_delta_log"
    for file in log.glob("*.json"):
        if int(file.stem) < table.version():
            file.unlink()
    checks.clear()
    write_table(tables, "decisions", decision(4))
    query = start_heartbeat(spark, settings, lambda: checks.append(1))
    try:
        query.processAllAvailable()
        write_table(tables, "decisions", decision(5))
        query.processAllAvailable()
    finally:
        query.stop()
    assert checks == [1, 1]


def test_a_look_that_fails_for_good_ends_the_query_with_its_reason(
    spark: SparkSession, settings: Settings
) -> None:
    write_table(Path(settings.tables), "decisions", decision(0))

    def fail() -> None:
        raise UserError("ZooKeeper is gone")

    query = start_heartbeat(spark, settings, fail)
    with pytest.raises(UserError, match=r"query enforce failed .*UserError: ZooKeeper is gone"):
        try:
            query.processAllAvailable()
        except Exception:
            raise_failure(settings, query)
        finally:
            query.stop()
