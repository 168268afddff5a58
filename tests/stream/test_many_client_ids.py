"""Random client ids: what known clients get is what they got before, and the state forgets the others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.schema.tables import USAGE
from kquota_spark.store.creation import create_tables
from tests.support.spark.judged_usage import used
from tests.support.spark.queries import change, rows_of, run_judge, settings_at, write_rules
from tests.support.spark.remembered import remembered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANDOM_IDS = 20_000
SECONDS = 20
KNOWN = 20


def _known(first_s: int, end_s: int) -> list[dict[str, Any]]:
    """Twenty users at 50 to 145 % of 1,000 B/s: every second one request of 500 to 1,450 B."""
    return [
        used(f"user-{number}", (second * 1_000 + number, 500 + 50 * number, 0))
        for second in range(first_s, end_s)
        for number in range(KNOWN)
    ]


def _random(first_s: int, end_s: int) -> list[dict[str, Any]]:
    """One request each, of a client id that never comes again; half of them fetches, which have no quota."""
    each = RANDOM_IDS // SECONDS
    return [
        used(
            "mallory",
            (second * 1_000, 100, 0),
            client_id=f"{second * each + number:032x}",
            quota_type="fetch" if number % 2 else "produce",
            kind=number % 2,
        )
        for second in range(first_s, end_s)
        for number in range(each)
    ]


def _settings(root: Path) -> Settings:
    settings = settings_at(root, state_shards=1)
    create_tables(settings)
    rules = [change(f"user-{number}", None, 1_000.0) for number in range(KNOWN)]
    write_rules(settings, *rules, change(None, DEFAULT, 1_000.0))
    return settings


def _judged(spark: SparkSession, settings: Settings, *commits: list[dict[str, Any]]) -> float:
    """Seconds that JUDGE took; each list is a micro-batch."""
    for rows in commits:
        data = [{name: row.get(name) for name in USAGE.names} for row in rows]
        table = pa.Table.from_pylist(data, schema=USAGE.arrow_schema())
        write_deltalake(f"{settings.tables}/usage", table, mode="append")
    started_s = time.monotonic()
    run_judge(spark, settings)
    return time.monotonic() - started_s


def _of_known(settings: Settings) -> list[dict[str, Any]]:
    return [row for row in rows_of(settings, "decisions") if row["bucket_user"].startswith("user-")]


def test_known_clients_are_judged_as_without_the_random_ones_and_those_are_forgotten(
    spark: SparkSession, tmp_path: Path
) -> None:
    quiet = _settings(tmp_path / "quiet")
    flooded = _settings(tmp_path / "flooded")
    quiet_s = _judged(spark, quiet, _known(0, SECONDS))
    flooded_s = _judged(spark, flooded, _known(0, SECONDS) + _random(0, SECONDS))
    print(f"{quiet_s:.1f} s without, {flooded_s:.1f} s with {RANDOM_IDS:,} random ids")
    assert len(rows_of(flooded, "decisions")) == KNOWN * SECONDS + RANDOM_IDS
    assert _of_known(flooded) == _of_known(quiet)
    assert len(remembered(spark, flooded)) == KNOWN + RANDOM_IDS
    # 12 s after their last second, when their shard is used again, they are gone; the known ones go on.
    fetch = used("user-0", (70_000, 100, 0), quota_type="fetch", kind=1)
    later = (_known(SECONDS, SECONDS + 1), [*_known(70, 71), fetch])
    for settings in (quiet, flooded):
        _judged(spark, settings, *later)
    assert len(remembered(spark, flooded)) == KNOWN + 1
    assert _of_known(flooded) == _of_known(quiet)
