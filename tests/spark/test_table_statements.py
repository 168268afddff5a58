"""What `kquota tables --sql spark` prints makes the tables known to Spark SQL by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kquota_spark.cli.main import main
from kquota_spark.config.settings import Settings
from tests.support.tables.table_rows import request, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_reads_the_tables_by_name(
    spark: SparkSession, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(Path(settings.tables), "requests", request(0), request(1))
    assert main(["tables", "--sql", "spark", "--tables", settings.tables]) == 0
    printed = capsys.readouterr().out
    assert "-- partition_leaders: not there yet" in printed.splitlines()
    try:
        for line in printed.splitlines():
            if not line.startswith("--"):
                spark.sql(line.removesuffix(";"))
        counts = {
            name: spark.sql(f"SELECT * FROM kquota.{name}").count() for name in ("requests", "violations")
        }
        assert counts == {"requests": 2, "violations": 0}
    finally:
        spark.sql("DROP SCHEMA IF EXISTS kquota CASCADE")
