"""A crash after a sink's commit and before Spark's own: the micro-batch runs again, and its rows are there once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.io.delta_tables import create_tables
from tests.support.spark.hops import change, forget_last_commit, only, rows_of, run_hop, write_rules
from tests.support.tables.table_rows import T0_MS, heartbeat, request, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def version(settings: Settings, name: str) -> int:
    return DeltaTable(f"{settings.tables}/{name}").version()


def test_measure_and_judge_write_their_last_batch_once(spark: SparkSession, settings: Settings) -> None:
    root = Path(settings.tables)
    write_rules(settings, change("alice", None, 100.0))
    # Ten seconds of 1,000 B each; the heartbeat closes them, five seconds of lateness included.
    write_table(root, "requests", *(request(index, T0_MS + index * 1_000) for index in range(10)))
    write_table(root, "requests", heartbeat(10, T0_MS + 15_000))
    for hop, target, moments in (
        ("measure", "usage", [(T0_MS + index * 1_000, 1) for index in range(10)]),
        ("judge", "decisions", [(T0_MS + index * 1_000, 1) for index in range(10)]),
    ):
        run_hop(spark, settings, hop)
        written, at_version = rows_of(settings, target), version(settings, target)
        assert only(written, "second", "requests") == moments
        batch = forget_last_commit(settings, hop)
        # Spark works through the batch again, state included; the sink knows it by (query, batch).
        assert run_hop(spark, settings, hop)[0]["batchId"] == batch
        assert rows_of(settings, target) == written
        assert version(settings, target) == at_version


def test_the_next_rows_go_on_from_the_state_of_the_batch_that_ran_twice(
    spark: SparkSession, settings: Settings
) -> None:
    root = Path(settings.tables)
    write_rules(settings, change("alice", None, 100.0))
    write_table(root, "requests", request(0), heartbeat(1, T0_MS + 6_000))
    for hop in ("measure", "judge"):
        run_hop(spark, settings, hop)
        forget_last_commit(settings, hop)
        run_hop(spark, settings, hop)
    write_table(root, "requests", request(2, T0_MS + 2_000), heartbeat(3, T0_MS + 8_000))
    for hop in ("measure", "judge"):
        run_hop(spark, settings, hop)
    # The ring counts ten seconds: 1,000 B are 100 B/s, and with the second request 200 B/s, the double of the limit.
    # Had the first been recorded twice, it would be 300.
    found = only(rows_of(settings, "decisions"), "second", "rate_per_s", "quota_used_percent")
    assert found == [(T0_MS, 100.0, 100.0), (T0_MS + 2_000, 200.0, 200.0)]


def test_killed_while_the_first_offsets_are_written_it_starts_all_the_same(
    spark: SparkSession, settings: Settings
) -> None:
    checkpoint = Path(settings.checkpoints) / "measure"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"48976ca1-da68-4f33-88fc-72b807610998"}', "utf-8")
    (checkpoint / "offsets" / ".0.0b5a6dc4.tmp").write_text("v1", "utf-8")
    write_rules(settings)
    write_table(Path(settings.tables), "requests", request(0), heartbeat(1, T0_MS + 6_000))
    run_hop(spark, settings, "measure")
    assert only(rows_of(settings, "usage"), "second", "requests") == [(T0_MS, 1)]


def test_killed_between_decisions_and_violations_it_folds_what_was_committed(
    spark: SparkSession, settings: Settings
) -> None:
    root = Path(settings.tables)
    write_rules(settings, change("alice", None, 100.0))
    # 2,000 B in ten seconds are 200 B/s, twice the limit.
    write_table(root, "requests", request(0, charged_bytes=2_000), heartbeat(1, T0_MS + 6_000))
    for hop in ("measure", "judge"):
        run_hop(spark, settings, hop)
    decisions, violations = rows_of(settings, "decisions"), rows_of(settings, "violations")
    assert only(violations, "start_time", "peak_rate_per_s", "limit_per_s") == [(T0_MS, 200.0, 100.0)]
    files = sorted((root / "decisions").rglob("*.parquet"))
    # As if the fold had not come to it; by the rules of now nothing would be violated.
    shutil.rmtree(root / "violations")
    create_tables(settings)
    forget_last_commit(settings, "judge")
    write_rules(settings, change("alice", None, 900.0))
    run_hop(spark, settings, "judge")
    assert rows_of(settings, "decisions") == decisions
    assert rows_of(settings, "violations") == violations
    # What the second attempt wrote is not left lying about.
    assert sorted((root / "decisions").rglob("*.parquet")) == files
