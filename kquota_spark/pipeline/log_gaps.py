"""GAPS: which seconds of a broker lie in a gap of its log, or so soon after it that a ring still misses lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.model.points import CONTROLLER_ID
from kquota_spark.pipeline.broker_rates import horizon_ms
from kquota_spark.schema.gap_tables import BROKER_START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_gaps(governed: DataFrame, gaps: DataFrame) -> DataFrame:
    """Add `gaps`: [from, until] in epoch ms of those that reach into the second; null for a broker without any.

    No line says which broker is the active controller: what it misses may be in the gap of any of them.

    Args:
        governed: GOVERN's rows, with `rate_config`: a gap reaches as far beyond its end as the broker's ring remembers.
        gaps: rows of `log_gaps`, read anew for each micro-batch.
    """
    stretch = F.array(F.unix_millis("from_time"), F.unix_millis("to_time"))
    of_brokers = F.explode(F.array("broker_id", F.lit(CONTROLLER_ID))).alias("broker_id")
    per_broker = (
        gaps.where(F.col("reason") != BROKER_START)
        .select("cluster_id", of_brokers, stretch.alias("gap"))
        .groupBy("cluster_id", "broker_id")
        .agg(F.collect_list("gap").alias("gaps"))
    )
    joined = governed.join(F.broadcast(per_broker), ["cluster_id", "broker_id"], "left")
    reaching = F.expr(
        "filter(transform(gaps, gap -> array(gap[0], gap[1] + horizon_ms)), "
        "gap -> gap[0] < second_ms + 1000 AND gap[1] > second_ms)"
    )
    return joined.withColumn("horizon_ms", horizon_ms()).withColumn("gaps", reaching).drop("horizon_ms")
