"""What the transforms give is what the tables declare, type for type; Python stands in few places only.

An implicit cast in the Delta sink makes Spark plan the query again, and the watermark is lost on the way.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.io.known import KnownLoader
from kquota_spark.io.spark import table_stream
from kquota_spark.model.sampled_rate import RateConfig
from kquota_spark.pipeline.charges import to_coverage
from kquota_spark.pipeline.govern import to_governed
from kquota_spark.pipeline.ingest import IngestSettings, to_requests
from kquota_spark.pipeline.judge import to_decisions
from kquota_spark.pipeline.measure import to_usage
from kquota_spark.schema.columns import Table
from kquota_spark.schema.tables import DECISIONS, REQUESTS, TABLES, USAGE
from tests.support.spark.hops import write_rules
from tests.support.tables.table_rows import write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MESSAGES = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string, partition int, "
    "offset bigint, timestamp timestamp, timestampType int"
)
_PYTHON = re.compile(r"^[\s:+~|-]*(\w*(?:Python|PySpark|Arrow|Pandas)\w*)", re.MULTILINE)


@pytest.fixture
def hops(spark: SparkSession, settings: Settings) -> dict[str, tuple[DataFrame, Table]]:
    """The plan of each hop over its real source, and the table that it writes."""
    write_rules(settings)
    rules = spark.read.format("delta").load(f"{settings.tables}/quota_rules")
    messages = spark.readStream.schema(_MESSAGES).parquet(settings.tables)
    usage = table_stream(spark, settings, USAGE.name)
    parse = IngestSettings("demo", "UTC", 60_000, 5_000, 4_096)
    governed = to_governed(usage, KnownLoader(settings))
    coverage = to_coverage(rules, has_callback=False)
    return {
        "ingest": (to_requests(messages, parse), REQUESTS),
        "measure": (to_usage(table_stream(spark, settings, REQUESTS.name), coverage, "5 seconds", 2), USAGE),
        "judge": (to_decisions(governed, RateConfig(), RateConfig(), "10 minutes"), DECISIONS),
    }


def types(frame: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]


@pytest.mark.parametrize("hop", ["ingest", "measure", "judge"])
def test_a_hop_gives_exactly_what_its_table_declares(
    hops: dict[str, tuple[DataFrame, Table]], spark: SparkSession, settings: Settings, hop: str
) -> None:
    frame, table = hops[hop]
    declared = [(column.name, column.type.replace(" ", "")) for column in table.columns]
    assert types(frame) == declared
    # And that is what Delta has made of the declaration, so nothing is cast on the way in.
    assert types(spark.read.format("delta").load(f"{settings.tables}/{table.name}")) == declared


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_spark_and_arrow_read_one_declaration(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    write_table(tmp_path, table.name)  # as Arrow
    assert types(spark.read.format("delta").load(str(tmp_path / table.name))) == types(
        spark.createDataFrame([], table.ddl)
    )


def test_python_runs_in_the_parser_the_governor_and_the_replay_only(
    hops: dict[str, tuple[DataFrame, Table]],
) -> None:
    found = {}
    for name, (frame, _) in hops.items():
        plan = frame._jdf.queryExecution().analyzed().toString()  # type: ignore[attr-defined,unused-ignore]
        assert "PythonUDF" not in plan, f"{name}: {plan}"
        found[name] = _PYTHON.findall(plan)
    assert found == {
        "ingest": ["MapInArrow"],
        "measure": [],
        "judge": ["TransformWithStateInPySpark", "MapInArrow"],
    }
