"""What the transforms give is what the tables declare, type for type; Python stands in few places only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.audit.queries import closings
from kquota_spark.audit.stages import Stages
from kquota_spark.audit.task_reports import TaskReports
from kquota_spark.config.settings import Settings, Stream
from kquota_spark.kafka.questions import message_format
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.pipeline.charges import CHARGED
from kquota_spark.pipeline.govern import SHARDED
from kquota_spark.pipeline.ingest import ingest_settings, to_messages
from kquota_spark.pipeline.judge import DECIDED, as_decisions, to_judged
from kquota_spark.pipeline.measure import to_seconds
from kquota_spark.schema.columns import Table
from kquota_spark.schema.tables import DECISIONS, TABLES
from tests.support.spark.queries import MESSAGE, write_rules
from tests.support.tables.table_rows import write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PYTHON = re.compile(r"^[\s:+~|-]*(\w*(?:Python|PySpark|Arrow|Pandas)\w*)", re.MULTILINE)


@pytest.fixture
def stages(spark: SparkSession, settings: Settings) -> dict[str, DataFrame]:
    """The plan of each stage of the query of the log over its source."""
    write_rules(settings)
    made = Stages(settings, TaskReports(spark.sparkContext))
    source = spark.readStream.schema(MESSAGE).parquet(settings.tables)
    messages = to_messages(source, ingest_settings(settings, message_format(settings)))
    charged = messages.mapInArrow(made.charged, CHARGED.ddl)
    seconds = to_seconds(charged.unionByName(closings(spark, settings)), "5 seconds")
    governed = seconds.mapInArrow(made.governed, SHARDED.ddl)
    judged = to_judged(governed, RateConfig(), RateConfig(), 64)
    return {
        "messages": messages, "charged": charged, "seconds": seconds, "governed": governed, "judged": judged
    }  # fmt: skip


def types(frame: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]


def test_what_is_judged_is_exactly_what_its_table_declares(spark: SparkSession, settings: Settings) -> None:
    declared = [(column.name, column.type.replace(" ", "")) for column in DECISIONS.columns]
    decided = spark.createDataFrame([], ", ".join(f"{column.name} {column.type}" for column in DECIDED))
    assert types(as_decisions(decided)) == declared
    write_table(Path(settings.tables), "decisions")
    # And that is what Delta has made of the declaration, so nothing is cast on the way in.
    assert types(spark.read.format("delta").load(f"{settings.tables}/decisions")) == declared


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_spark_and_arrow_read_one_declaration(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    write_table(tmp_path, table.name)  # as Arrow
    assert types(spark.read.format("delta").load(str(tmp_path / table.name))) == types(
        spark.createDataFrame([], table.ddl)
    )


def test_the_shards_are_spread_over_the_tasks(spark: SparkSession) -> None:
    """Spark gives each shard to a task by a hash of its own: with two tasks neither has less than a third of them."""
    shards = spark.range(Stream().state_shards).selectExpr("CAST(id AS int) AS shard")
    by_task = shards.repartition(2, "shard").groupBy(F.spark_partition_id()).count().collect()
    assert sum(row["count"] for row in by_task) == 64
    assert all(22 <= row["count"] <= 42 for row in by_task), by_task


def test_python_runs_in_the_parser_the_governor_and_the_replay_only(stages: dict[str, DataFrame]) -> None:
    found = {}
    for name, frame in stages.items():
        plan = frame._jdf.queryExecution().analyzed().toString()  # type: ignore[attr-defined,unused-ignore]
        assert "PythonUDF" not in plan, f"{name}: {plan}"
        found[name] = _PYTHON.findall(plan)
    assert found == {
        "messages": [],
        "charged": ["MapInArrow"],
        "seconds": ["MapInArrow"],
        "governed": ["MapInArrow", "MapInArrow"],
        "judged": ["TransformWithStateInPySpark", "MapInArrow", "MapInArrow"],
    }
