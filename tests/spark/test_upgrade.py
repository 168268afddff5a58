"""Tables and checkpoints of release 0.1 go on: rows, open windows and rings, as if there had been one release."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kquota_spark.io.delta_tables import create_tables
from kquota_spark.io.lineage import require_lineage
from kquota_spark.schema.version import SCHEMA_VERSION, VERSION_PROPERTY
from tests.capture.tables_of_release import HOPS, RULES, requests_within
from tests.spark.conftest import rows_of, run_hop, settings_at, write_rules
from tests.unit.table_rows import write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OF_0_1 = Path(__file__).parents[1] / "data" / "tables-0.1"


def test_tables_and_checkpoints_of_0_1_go_on(spark: SparkSession, tmp_path: Path) -> None:
    upgraded, fresh = settings_at(tmp_path / "upgraded"), settings_at(tmp_path / "fresh")
    shutil.copytree(OF_0_1, tmp_path / "upgraded")
    # Spark notes in the state of transformWithState where it is: such a checkpoint cannot be moved as it stands.
    noted = Path(upgraded.checkpoints) / "judge" / "state" / "0" / "_metadata" / "v2" / "0"
    text = noted.read_text(encoding="utf-8")
    assert "file:ROOT/" in text
    noted.write_text(text.replace("file:ROOT/", f"file:{tmp_path}/upgraded/"), encoding="utf-8")
    before = {
        name: DeltaTable(f"{upgraded.tables}/{name}").to_pyarrow_table().num_rows
        for name in ("usage", "decisions")
    }
    # 15 closed seconds of two users: the lateness of five is still open.
    assert before == {"usage": 30, "decisions": 30}
    for settings in (upgraded, fresh):
        create_tables(settings)
    write_rules(fresh, *RULES)
    for first_s, end_s in ((0, 10), (10, 20)):
        write_table(Path(fresh.tables), "requests", *requests_within(first_s, end_s))
    for settings in (upgraded, fresh):
        assert require_lineage(settings, HOPS, is_new=False) == []
        write_table(Path(settings.tables), "requests", *requests_within(20, 32))
        for hop in HOPS:
            run_hop(spark, settings, hop)
    for name in ("usage", "decisions", "violations"):
        assert rows_of(upgraded, name) == rows_of(fresh, name), name
        properties = DeltaTable(f"{upgraded.tables}/{name}").metadata().configuration
        assert properties[VERSION_PROPERTY] == str(SCHEMA_VERSION)
    assert max(row["second"] for row in rows_of(upgraded, "decisions")) > 0
