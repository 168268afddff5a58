"""Which of two sources tells of a violation: the request log of a broker, or its JMX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.config.settings import Settings
from kquota_spark.io.spark import sql_literal, table
from kquota_spark.pipeline.episodes import LOG_SILENCE_S, only_one_source, with_source
from kquota_spark.schema.tables import DECISIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def of_one_source(settings: Settings, decisions: DataFrame) -> DataFrame:
    """The decisions that episodes are made of; only a job with both sources has to look.

    Args:
        settings: the configuration.
        decisions: a batch, or a stretch, of this cluster.
    """
    if not (settings.kafka.has_log and settings.kafka.jmx_topic):
        return decisions
    first = decisions.agg(F.min("second").alias("first")).collect()[0]["first"]
    if first is None:
        return decisions
    since = F.lit(first) - F.expr(f"INTERVAL {LOG_SILENCE_S} SECONDS")
    stored = table(decisions.sparkSession, settings, DECISIONS.name).transform(with_source)
    around = stored.where(F.col("second") >= since)
    return only_one_source(decisions, around.where(f"cluster_id = {sql_literal(settings.cluster_id)}"))
