"""Queries that lost their checkpoints go on under a new lineage: nothing is there twice, nothing is missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.delta_tables import create_tables
from kquota_spark.io.lineage import require_lineage
from tests.capture.tables_of_release import HOPS, RULES, requests_within
from tests.spark.conftest import forget_last_commit, rows_of, run_hop, settings_at, write_rules
from tests.unit.table_rows import write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
WRITTEN = ("usage", "decisions", "violations")


def _audited(spark: SparkSession, settings: Settings, first_s: int, end_s: int) -> None:
    write_table(Path(settings.tables), "requests", *requests_within(first_s, end_s))
    for hop in HOPS:
        run_hop(spark, settings, hop)


def _begun(root: Path) -> Settings:
    settings = settings_at(root)
    create_tables(settings)
    write_rules(settings, *RULES)
    return settings


def test_lost_checkpoints_and_a_new_lineage_equal_an_untroubled_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    from kquota_spark.io.rebuilt_violations import rebuild_all_violations

    calm, troubled = _begun(tmp_path / "calm"), _begun(tmp_path / "lost")
    for settings in (calm, troubled):
        _audited(spark, settings, 0, 20)
    assert {name: len(rows_of(calm, name)) > 0 for name in WRITTEN} == dict.fromkeys(WRITTEN, True)
    for hop in HOPS:
        assert not require_lineage(troubled, [hop], is_new=False)  # it has a checkpoint, and a whole one
        shutil.rmtree(Path(troubled.checkpoints) / hop)
    with pytest.raises(UserError, match=r"measure is missing, but table usage has rows .* --new-lineage"):
        require_lineage(troubled, HOPS, is_new=False)
    assert require_lineage(troubled, HOPS, is_new=True) == list(HOPS)
    rebuild_all_violations(spark, troubled)
    for name in WRITTEN:
        assert rows_of(troubled, name) == rows_of(calm, name), name
    for settings in (calm, troubled):
        _audited(spark, settings, 20, 32)
    for name in WRITTEN:
        assert rows_of(troubled, name) == rows_of(calm, name), name
    # A crash of the new lineage is one like any other.
    assert require_lineage(troubled, HOPS, is_new=False) == []
    forget_last_commit(troubled, "judge")
    run_hop(spark, troubled, "judge")
    assert rows_of(troubled, "decisions") == rows_of(calm, "decisions")
