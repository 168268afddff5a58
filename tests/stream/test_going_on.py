"""Tables of release 0.1 go on, and so do those of this one whose checkpoint was lost, as if nothing had happened."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kquota_spark.audit.violations.rebuild import rebuild_all_violations
from kquota_spark.checkpoints.lineage import require_lineage, stored_lineage
from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.columns import SCHEMA_VERSION, VERSION_PROPERTY
from kquota_spark.store.creation import create_tables
from tests.capture.tables_of_release import RULES, requests_within
from tests.support.places import DATA
from tests.support.spark.queries import (
    forget_last_commit,
    rows_of,
    run,
    run_log,
    settings_at,
    start_log,
    write_rules,
)
from tests.support.tables.table_rows import write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_0_1 = DATA / "tables-0.1"
LOG = ["log"]
WRITTEN = ("usage", "decisions", "violations")
Rows = dict[str, list[dict[str, Any]]]


def _rows(settings: Settings) -> Rows:
    return {name: _sorted(rows_of(settings, name)) for name in WRITTEN}


def _sorted(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: repr(sorted(row.items())))


def _go_on(spark: SparkSession, settings: Settings) -> None:
    """The next twelve seconds."""
    write_table(Path(settings.tables), "requests", *requests_within(20, 32))
    # The rows of before come again, as the lines do from a topic that is read from an hour before.
    lineage = stored_lineage(settings)
    run(start_log(spark, settings, lineage))


@pytest.fixture(scope="module")
def untroubled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """All 32 seconds by this release alone, from its first start on."""
    settings = settings_at(tmp_path_factory.mktemp("untroubled"))
    create_tables(settings)
    write_rules(settings, *RULES)
    for first_s, end_s in ((0, 10), (10, 20)):
        write_table(Path(settings.tables), "requests", *requests_within(first_s, end_s))
    _go_on(spark, settings)
    return _rows(settings)


@pytest.fixture
def of_0_1(tmp_path: Path) -> Settings:
    """20 s of release 0.1: 15 judged ones of two users, and five that only its checkpoint had."""
    shutil.copytree(OF_0_1, tmp_path / "old")
    settings = replace(settings_at(tmp_path / "old"), kafka=Kafka(topic="log"))
    assert {name: len(rows_of(settings, name)) for name in WRITTEN} == {
        "usage": 30, "decisions": 30, "violations": 2,
    }  # fmt: skip
    create_tables(settings)
    return settings


def test_a_later_release_goes_on_with_the_tables_under_a_new_lineage(
    spark: SparkSession, of_0_1: Settings, untroubled: Rows
) -> None:
    before = _rows(of_0_1)
    with pytest.raises(
        UserError, match="/log is missing, but table requests has rows that would be written twice"
    ):
        require_lineage(of_0_1, LOG, is_new=False)
    assert require_lineage(of_0_1, LOG, is_new=True) == LOG
    rebuild_all_violations(of_0_1)
    # Release 0.1 has no end of the last throttle. The rebuild has it, and changes nothing else.
    assert [row.pop("muted_until") for row in before["violations"]] == [None, None]
    rebuilt = _rows(of_0_1)
    assert None not in [row.pop("muted_until") for row in rebuilt["violations"]]
    for rows in (before, rebuilt):
        rows["violations"] = _sorted(rows["violations"])
    assert rebuilt == before
    _go_on(spark, of_0_1)
    found = _rows(of_0_1)
    for name in WRITTEN:
        assert found[name] == untroubled[name], name
        properties = DeltaTable(f"{of_0_1.tables}/{name}").metadata().configuration
        assert properties[VERSION_PROPERTY] == str(SCHEMA_VERSION)
    rebuild_all_violations(of_0_1)
    assert _rows(of_0_1) == found
    # A crash of the new lineage is one like any other.
    forget_last_commit(of_0_1)
    run(start_log(spark, of_0_1, stored_lineage(of_0_1)))
    assert _rows(of_0_1) == found


def test_a_lost_checkpoint_and_a_new_lineage_cost_and_double_nothing(
    spark: SparkSession, tmp_path: Path, untroubled: Rows
) -> None:
    settings = replace(settings_at(tmp_path), kafka=Kafka(topic="log"))
    create_tables(settings)
    write_rules(settings, *RULES)
    assert require_lineage(settings, LOG, is_new=False) == []
    for first_s, end_s in ((0, 10), (10, 20)):
        write_table(Path(settings.tables), "requests", *requests_within(first_s, end_s))
    run_log(spark, settings)
    before = _rows(settings)
    assert len(before["decisions"]) == 30  # 15 closed seconds of two users
    shutil.rmtree(Path(settings.checkpoints) / "log")
    with pytest.raises(UserError, match=r"log is missing, but table requests has rows .* --new-lineage"):
        require_lineage(settings, LOG, is_new=False)
    assert require_lineage(settings, LOG, is_new=True) == LOG
    rebuild_all_violations(settings)
    assert _rows(settings) == before
    _go_on(spark, settings)
    assert _rows(settings) == untroubled
