"""A crash after a sink's commit and before Spark's own: the micro-batch runs again, and its rows are there once."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kquota_spark.audit.progress import raise_failure
from kquota_spark.audit.queries import close_all_windows
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.store.creation import create_tables
from tests.support.spark.queries import (
    WITHIN_S,
    change,
    forget_last_commit,
    only,
    rows_of,
    run_log,
    run_topic,
    start_log,
    write_rules,
    write_topic,
)
from tests.support.tables.table_rows import T0_MS, heartbeat, request, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WRITTEN = ("usage", "decisions", "violations")


def version(settings: Settings, name: str) -> int:
    return DeltaTable(f"{settings.tables}/{name}").version()


def test_the_last_batch_is_written_once(spark: SparkSession, settings: Settings) -> None:
    root = Path(settings.tables)
    write_rules(settings, change("alice", None, 100.0))
    # Ten seconds of 1,000 B each; the heartbeat closes them, five seconds of lateness included.
    write_table(root, "requests", *(request(index, T0_MS + index * 1_000) for index in range(10)))
    write_table(root, "requests", heartbeat(10, T0_MS + 15_000))
    run_log(spark, settings)
    written = {name: rows_of(settings, name) for name in WRITTEN}
    versions = {name: version(settings, name) for name in WRITTEN}
    for name in ("usage", "decisions"):
        assert only(written[name], "second", "requests") == [
            (T0_MS + index * 1_000, 1) for index in range(10)
        ]
    files = parquet_files(settings)
    batch = forget_last_commit(settings)
    # Spark works through the batch again, state included; the tables know it by (query, batch).
    assert run_log(spark, settings)[0]["batchId"] == batch
    assert {name: rows_of(settings, name) for name in WRITTEN} == written
    assert {name: version(settings, name) for name in WRITTEN} == versions
    # What the second attempt wrote is not left lying about.
    assert parquet_files(settings) == files


def test_the_next_rows_go_on_from_the_state_of_the_batch_that_ran_twice(
    spark: SparkSession, settings: Settings
) -> None:
    root = Path(settings.tables)
    write_rules(settings, change("alice", None, 100.0))
    write_table(root, "requests", request(0), heartbeat(1, T0_MS + 6_000))
    run_log(spark, settings)
    forget_last_commit(settings)
    run_log(spark, settings)
    write_table(root, "requests", request(2, T0_MS + 2_000), heartbeat(3, T0_MS + 8_000))
    run_log(spark, settings)
    # The ring counts ten seconds: 1,000 B are 100 B/s, and with the second request 200 B/s, the double of the limit.
    # Had the first been recorded twice, it would be 300.
    found = only(rows_of(settings, "decisions"), "second", "rate_per_s", "quota_used_percent")
    assert found == [(T0_MS, 100.0, 100.0), (T0_MS + 2_000, 200.0, 200.0)]


def test_killed_while_the_first_offsets_are_written_it_starts_all_the_same(
    spark: SparkSession, settings: Settings
) -> None:
    checkpoint = Path(settings.checkpoints) / "log"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"48976ca1-da68-4f33-88fc-72b807610998"}', "utf-8")
    (checkpoint / "offsets" / ".0.0b5a6dc4.tmp").write_text("v1", "utf-8")
    write_rules(settings)
    write_table(Path(settings.tables), "requests", request(0), heartbeat(1, T0_MS + 6_000))
    run_log(spark, settings)
    assert only(rows_of(settings, "usage"), "second", "requests") == [(T0_MS, 1)]


@pytest.mark.parametrize(
    "lost", [["violations"], ["violations", "decisions"], ["violations", "decisions", "usage"]]
)
def test_killed_between_two_commits_it_adds_what_is_missing_by_the_rules_of_then(
    spark: SparkSession, settings: Settings, lost: list[str]
) -> None:
    root = Path(settings.tables)
    write_rules(settings, change("alice", None, 100.0))
    # 2,000 B in ten seconds are 200 B/s, twice the limit.
    write_table(root, "requests", request(0, charged_bytes=2_000), heartbeat(1, T0_MS + 6_000))
    run_log(spark, settings)
    written = {name: rows_of(settings, name) for name in WRITTEN}
    shown = only(written["violations"], "start_time", "peak_rate_per_s", "limit_per_s")
    assert shown == [(T0_MS, 200.0, 100.0)]
    # As if the commits had not come to these tables; by the rules of now nothing would be violated.
    for name in lost:
        shutil.rmtree(root / name)
    create_tables(settings)
    forget_last_commit(settings)
    write_rules(settings, change("alice", None, 900.0))
    run_log(spark, settings)
    assert {name: rows_of(settings, name) for name in WRITTEN} == written


def test_a_second_drain_closes_nothing_more(spark: SparkSession, settings: Settings) -> None:
    line = b'{"kquota_heartbeat":{"time_ms":%d,"is_end":false}}'
    write_rules(settings)
    write_topic(settings, [(1, line % T0_MS)], T0_MS)
    close_all_windows(settings)  # before the first run there is nothing to close
    run_topic(spark, settings)
    folder = Path(settings.checkpoints) / "log.closing"
    for _ in range(2):
        close_all_windows(settings)
        run_topic(spark, settings)
        # Later than the line by the lateness of 5 s, and by two seconds.
        assert sorted(int(file.stem) for file in folder.glob("*.json")) == [0, T0_MS + 7_000]
    write_topic(settings, [(1, line % (T0_MS + 60_000))], T0_MS + 60_000, 1)
    run_topic(spark, settings)
    close_all_windows(settings)
    assert max(int(file.stem) for file in folder.glob("*.json")) == T0_MS + 67_000


@pytest.mark.parametrize("has_crc", [True, False])
def test_a_flipped_byte_in_the_state_stops_the_query_before_it_writes(
    spark: SparkSession, settings: Settings, has_crc: bool
) -> None:
    root = Path(settings.tables)
    write_rules(settings, change("alice", None, 100.0))
    write_table(root, "requests", request(0), heartbeat(1, T0_MS + 6_000))
    run_log(spark, settings)
    for file in (Path(settings.checkpoints) / "log" / "state").rglob("*.changelog"):
        state = bytearray(file.read_bytes())
        state[len(state) // 2] ^= 1
        file.write_bytes(state)
        if not has_crc:
            (file.parent / f".{file.name}.crc").unlink()
    write_table(root, "requests", request(2, T0_MS + 2_000), heartbeat(3, T0_MS + 8_000))
    before = {name: (version(settings, name), rows_of(settings, name)) for name in WRITTEN}
    from pyspark.errors import StreamingQueryException

    query = start_log(spark, settings).query
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination(WITHIN_S)
    with pytest.raises(UserError) as raised:
        raise_failure(settings, query)
    assert str(raised.value) == (
        f"query log stopped: the state in its checkpoint {settings.checkpoints}/log is damaged. Restore it, or move "
        "it away and start once with --new-lineage"
    )
    assert {name: (version(settings, name), rows_of(settings, name)) for name in WRITTEN} == before


def parquet_files(settings: Settings) -> list[Path]:
    return sorted(file for name in WRITTEN for file in Path(settings.tables, name).rglob("*.parquet"))
