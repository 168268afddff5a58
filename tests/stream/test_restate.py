"""A restated period equals a run that had never been late: usage, decisions and violations, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota_spark.config.settings import Settings
from tests.support.chance import Chance
from tests.support.spark.queries import change, only, rows_of, run_log, settings_at, write_rules
from tests.support.tables.table_rows import T0_MS, heartbeat, request, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = (change("alice", None, 1_000.0), change("bob", None, 700.0))
WRITTEN = ("usage", "decisions", "violations")
SECONDS = 90


def _requests(chance: Chance) -> list[dict[str, Any]]:
    """90 s of alice without a pause, bob with one of 20 s from second 30 on; both around their limits."""
    rows: list[dict[str, Any]] = []
    for second in range(SECONDS):
        for user, size in (("alice", 1_100), ("bob", 800)):
            if user == "bob" and 30 <= second < 50:
                continue
            for _ in range(chance.randrange(1, 4)):
                time_ms = T0_MS + second * 1_000 + chance.randrange(1_000)
                amount = chance.randrange(size)
                rows.append(request(len(rows), time_ms, user=user, charged_bytes=amount))
    return rows


def _audited(spark: SparkSession, settings: Settings, *commits: list[dict[str, Any]]) -> None:
    """One micro-batch a commit; each begins with a line of the next second and ends with a heartbeat."""
    write_rules(settings, *RULES)
    for rows in commits:
        write_table(Path(settings.tables), "requests", *rows)
        run_log(spark, settings)


def _end(offset: int, second: int) -> dict[str, Any]:
    return heartbeat(offset, T0_MS + second * 1_000 + 6_000)


def _run(root: Path) -> Settings:
    from kquota_spark.store.creation import create_tables

    settings = settings_at(root)
    create_tables(settings)
    return settings


def test_late_lines_restated_equal_a_run_that_had_them_in_time(
    spark: SparkSession, tmp_path: Path, chance: Chance
) -> None:
    from kquota_spark.audit.past.restate import require_closed, restate

    rows = _requests(chance)
    # What comes late: all of seconds 20 to 24, 40 s after its time; bob's pause, with a request in it, too.
    rows.append(request(len(rows), T0_MS + 40_500, user="bob", charged_bytes=90_000))
    late = [row for row in rows if 20 <= (row["record_time_ms"] - T0_MS) // 1_000 < 25]
    late.append(rows[-1])
    on_time = [row for row in rows if row not in late]
    until_61 = [row for row in on_time if row["record_time_ms"] < T0_MS + 61_000]
    after_61 = [row for row in on_time if row["record_time_ms"] >= T0_MS + 61_000]
    calm, troubled = _run(tmp_path / "calm"), _run(tmp_path / "late")
    _audited(spark, calm, [*rows, _end(9_000, SECONDS)])
    _audited(spark, troubled, [*until_61, _end(9_001, 60)], [*late, *after_61, _end(9_002, SECONDS)])
    assert rows_of(troubled, "decisions") != rows_of(calm, "decisions")
    assert sum(row["requests"] for row in rows_of(troubled, "usage")) == len(rows) - len(late)

    closed_ms = require_closed(troubled, T0_MS + 20_000, T0_MS + 41_000)
    assert closed_ms == T0_MS + SECONDS * 1_000
    done = restate(spark, troubled, T0_MS + 20_000, T0_MS + 41_000, closed_ms)
    for name in WRITTEN:
        assert rows_of(troubled, name) == rows_of(calm, name), name
    assert done.cold_buckets == 0
    # The rings remember 12 s; the decisions behind the period are replaced for at least that long.
    assert T0_MS + 53_000 <= done.decisions_to_ms <= closed_ms


def test_a_period_that_had_nothing_is_not_read_again_by_the_queries(
    spark: SparkSession, tmp_path: Path
) -> None:
    from kquota_spark.audit.past.restate import require_closed, restate

    settings = _run(tmp_path)
    early = [request(0, T0_MS), request(1, T0_MS + 60_000), _end(2, 61)]
    # 20,000 B in the second between: 2,000 B/s in ten seconds, twice alice's limit.
    late = [request(3, T0_MS + 30_000, charged_bytes=20_000), request(4, T0_MS + 70_000), _end(5, 71)]
    _audited(spark, settings, early, late)
    assert only(rows_of(settings, "usage"), "second") == [(T0_MS,), (T0_MS + 60_000,), (T0_MS + 70_000,)]
    closed_ms = require_closed(settings, T0_MS + 30_000, T0_MS + 31_000)
    restate(spark, settings, T0_MS + 30_000, T0_MS + 31_000, closed_ms)
    run_log(spark, settings)
    judged = only(rows_of(settings, "decisions"), "second", "rate_per_s", "late")
    assert judged == [
        (T0_MS, 100.0, 0),
        (T0_MS + 30_000, 2_000.0, 0),
        (T0_MS + 60_000, 100.0, 0),
        # The samples are from seconds 60 and 70: 2,000 B in ten seconds.
        (T0_MS + 70_000, 200.0, 0),
    ]
    assert only(rows_of(settings, "violations"), "start_time", "end_time", "violated_seconds") == [
        (T0_MS + 30_000, T0_MS + 31_000, 1)
    ]


def test_lines_that_a_clock_behind_set_aside_restated_equal_a_run_with_a_right_clock(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Only what is ahead of its own message is left out by both."""
    from kquota_spark.audit.past.restate import require_closed, restate

    rows = [request(second, T0_MS + second * 1_000, charged_bytes=900) for second in range(60)]
    # Written when Kafka got it; the last one was written 4 s after that, and clocks differ by 2.5 s at most.
    rows = [row | {"kafka_timestamp_ms": row["record_time_ms"]} for row in rows]
    false = request(60, T0_MS + 30_500, is_out_of_time=True, kafka_timestamp_ms=T0_MS + 26_500)
    aside = [row | {"is_out_of_time": 20 <= row["kafka_offset"] < 40} for row in rows]
    right, behind = _run(tmp_path / "right"), _run(tmp_path / "behind")
    _audited(spark, right, [*rows, false, _end(61, 60)])
    _audited(spark, behind, [*aside, false, _end(61, 60)])
    assert sum(row["requests"] for row in rows_of(behind, "usage")) == 40
    closed_ms = require_closed(behind, T0_MS + 20_000, T0_MS + 40_000)
    restate(spark, behind, T0_MS + 20_000, T0_MS + 40_000, closed_ms)
    for name in WRITTEN:
        assert rows_of(behind, name) == rows_of(right, name), name
    assert sum(row["requests"] for row in rows_of(behind, "usage")) == 60
