"""The buckets that JUDGE remembers, from the checkpoint itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.pipeline.bucket_judge import Configs, ManagerJudge
from kquota_spark.pipeline.sent import manager_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def remembered(spark: SparkSession, settings: Settings) -> list[tuple[str, str]]:
    """User and client id of each bucket, in order."""
    found = spark.read.format("statestore").option("stateVarName", "buckets")
    rows = found.load(f"{settings.checkpoints}/log").select("key", "value").collect()
    configs = Configs(RateConfig(), RateConfig())
    judges = (ManagerJudge(manager_of(row.key[0]).quota_type, configs, bytes(row.value[0])) for row in rows)
    return sorted(tuple(msgspec.json.decode(bucket)[:2]) for judge in judges for bucket in judge.buckets)
