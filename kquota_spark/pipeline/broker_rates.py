"""Which sample ring each row is judged with: that of its broker at its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.model.sampled_rate import RateConfig
from kquota_spark.schema.tables import FOREVER_MS

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame


def with_rate_config(
    governed: DataFrame, configs: DataFrame, settings: RateConfig, given: Collection[str] = ()
) -> DataFrame:
    """Add `rate_config`, the name of a `RateConfig`.

    Args:
        governed: rows of GOVERN.
        configs: `broker_configs` of this cluster.
        settings: for brokers that have not told, or not all.
        given: the keys of the configuration file that win over what brokers tell.
    """
    told = configs.where("broker_id IS NOT NULL").select(
        F.col("cluster_id").alias("c_cluster_id"),
        F.col("broker_id").alias("c_broker_id"),
        F.coalesce(F.unix_millis("valid_from"), F.lit(0)).alias("c_from_ms"),
        F.coalesce(F.unix_millis("valid_to"), F.lit(FOREVER_MS)).alias("c_to_ms"),
        F.col("sample_ring").alias("c_ring"),
        F.col("quota_window_num").alias("c_num"),
        F.col("quota_window_size_seconds").alias("c_size_s"),
    )
    condition = (
        (F.col("c_cluster_id") == F.col("cluster_id"))
        & (F.col("c_broker_id") == F.col("broker_id"))
        & (F.col("c_from_ms") <= F.col("second_ms"))
        & (F.col("c_to_ms") > F.col("second_ms"))
    )
    parts = {
        "version": (F.col("c_ring"), settings.variant.value),
        "quota_window_num": (F.col("c_num"), settings.num_samples),
        "quota_window_size_seconds": (F.col("c_size_s"), settings.window_ms // 1_000),
    }
    ring, num, size_s = (
        F.lit(own) if key in given else F.coalesce(of_broker, F.lit(own))
        for key, (of_broker, own) in parts.items()
    )
    name = F.concat(
        ring, F.lit("/"), num.cast("string"), F.lit("x"), (size_s * 1_000).cast("string"), F.lit("ms")
    )
    joined = governed.join(F.broadcast(told), condition, how="left").withColumn("rate_config", name)
    return joined.drop("c_cluster_id", "c_broker_id", "c_from_ms", "c_to_ms", "c_ring", "c_num", "c_size_s")


def horizon_ms() -> Column:
    """How long the ring of `rate_config` remembers: `RateConfig.horizon_ms` of the name."""
    num, window_ms = (
        F.regexp_extract("rate_config", r"/(\d+)x(\d+)ms$", part).cast("bigint") for part in (1, 2)
    )
    return (num + 1) * window_ms
