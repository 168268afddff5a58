"""JUDGE with what each broker says about its windows: one of its own for each, and another one after a restart."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota_spark.model.sampled_rate import RateConfig
from tests.support.spark.judged_usage import judged, settings_with_rules, used
from tests.support.tables.table_rows import T0_MS, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def told(broker_id: int | None, ring: str, num: int, size_s: int, **times_ms: int) -> dict[str, Any]:
    times = {name: datetime.fromtimestamp(time_ms / 1_000, UTC) for name, time_ms in times_ms.items()}
    windows = {"quota_window_num": num, "quota_window_size_seconds": size_s}
    return {"cluster_id": "demo", "broker_id": broker_id, "sample_ring": ring, **windows, **times}


CONFIGS = (
    told(None, "<=3.7", 2, 1),  # of the configuration file: the settings say the same themselves
    told(1, "3.8+", 5, 1),
    told(3, "<=3.7", 11, 1, valid_to=T0_MS + 2_000),
    told(3, "3.8+", 6, 2, valid_from=T0_MS + 2_000),
    {**told(2, "3.8+", 3, 1), "cluster_id": "another"},
)


def test_each_broker_is_replayed_with_its_own_windows(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_with_rules(tmp_path)
    write_table(tmp_path / "tables", "broker_configs", *CONFIGS)
    found = judged(
        spark,
        settings,
        [used("alice", (100, 20_000, 0), broker_id=broker_id) for broker_id in (1, 2, 3)],
        [used("alice", (2_100, 5_000, 0), broker_id=broker_id) for broker_id in (1, 2, 3)],
    )
    told_by = ("model_variant", "rate_per_s", "throttle_ms")
    verdicts = {
        (row["broker_id"], (row["second"] - T0_MS) // 1_000): tuple(row[name] for name in told_by)
        for row in found
    }
    assert verdicts == {
        # Four of five windows count as gone: 20,000 B / 4 s; (5,000 - 1,000) / 1,000 * 4,000 ms.
        (1, 0): ("3.8+/5x1000ms", 5_000.0, 16_000),
        (1, 2): ("3.8+/5x1000ms", 6_250.0, 21_000),  # 25,000 B / 4 s
        (2, 0): ("3.8+/11x1000ms", 2_000.0, 10_000),
        (2, 2): ("3.8+/11x1000ms", 2_500.0, 15_000),
        (3, 0): ("<=3.7/11x1000ms", 2_000.0, 10_000),
        # Restarted with other settings, and so with empty rings: 5,000 B / ((6 - 1) * 2 s).
        (3, 2): ("3.8+/6x2000ms", 500.0, 0),
    }


def test_what_the_file_sets_wins_for_all_brokers(spark: SparkSession) -> None:
    from kquota_spark.pipeline.broker_rates import with_rate_config
    from kquota_spark.schema.broker_tables import BROKER_CONFIGS

    rows = [tuple(row.get(name) for name in BROKER_CONFIGS.names) for row in CONFIGS]
    configs = spark.createDataFrame(rows, BROKER_CONFIGS.ddl)
    keys = "cluster_id string, broker_id int, second_ms bigint"
    governed = spark.createDataFrame([("demo", broker_id, T0_MS) for broker_id in (1, 2, 3)], keys)
    made = with_rate_config(governed, configs, RateConfig(7, 3_000), {"quota_window_num", "log_time_zone"})
    assert {row.broker_id: row.rate_config for row in made.collect()} == {
        1: "3.8+/7x1000ms",
        2: "3.8+/7x3000ms",
        3: "<=3.7/7x1000ms",
    }
