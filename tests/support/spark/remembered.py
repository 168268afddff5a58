"""The buckets that JUDGE remembers, from the checkpoint itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.pipeline.bucket_judge import Configs, ShardJudge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def remembered(spark: SparkSession, settings: Settings) -> list[tuple[str, str]]:
    """User and client id of each bucket, in order."""
    found = spark.read.format("statestore").option("stateVarName", "buckets")
    rows = found.load(f"{settings.checkpoints}/log").select("key", "value").collect()
    configs = Configs(RateConfig(), RateConfig())
    shards = settings.stream.state_shards
    judges = (ShardJudge(configs, shards, bytes(row.value[0])) for row in rows)
    return sorted(bucket[:2] for judge in judges for _, bucket in judge.buckets)
