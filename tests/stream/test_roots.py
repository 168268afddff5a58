"""Roots that are URIs of a local disk: Spark, deltalake and Arrow write and read in one place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.checkpoints.checkpoints import Checkpoint
from kquota_spark.config.loader import load_settings
from kquota_spark.store.creation import create_tables
from tests.stream.test_wrong_clocks import beat, line
from tests.support.spark.queries import only, rows_of, run_topic, write_rules, write_topic
from tests.support.tables.table_rows import T0_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_run_with_uris_of_files_goes_on_where_the_plain_path_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "with a blank"
    root.mkdir()
    uri = f"file:{root}".replace(" ", "%20")
    file = root / "kquota.yaml"
    file.write_text(
        f"cluster_id: demo\ntables: {uri}/tables\ncheckpoints: {uri}/checkpoints\n"
        "quotas: {source: file}\nstream: {allowed_lateness: 5 s}\n",
        encoding="utf-8",
    )
    settings = load_settings(file)
    create_tables(settings)
    write_rules(settings)
    for number in range(2):
        at = f"2026-11-21 05:40:0{number},000"
        write_topic(settings, [(1, line(at, number))], T0_MS + number * 1_000, number)
    run_topic(spark, settings)
    write_topic(settings, [(1, beat(T0_MS + 10_000))], T0_MS + 10_000, 2)
    run_topic(spark, settings)
    seconds = [(T0_MS, 1), (T0_MS + 1_000, 1)]
    assert only(rows_of(settings, "usage"), "second", "requests") == seconds
    assert (root / "checkpoints" / "log" / "commits" / "2").is_file()
    assert (Checkpoint.of(settings, "log").last_batch or 0) >= 2
