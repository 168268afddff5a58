"""OBSERVE: what a micro-batch wrote, counted on the way into its table, for the job's own metrics.

Spark reports the sums with the progress of the query (`observedMetrics`): no second look at the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.model.quota_types import QuotaType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OBSERVATION = "kquota"
"""Name of the observation in a query's progress."""
BROKERS = "brokers"
"""Of its values the one that is a set of bits, no count."""


def observed_requests(requests: DataFrame) -> DataFrame:
    """Rows of `requests`, counted, and the brokers among them.

    These as bits of a number, because Spark refuses to collect a set here: brokers whose ids differ by a multiple of 63
    share one. Of two such the driver does not notice the second; it finds it when it looks next, at the latest at its
    start.
    """
    return requests.observe(
        OBSERVATION,
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.col("kind") == "unreadable").alias("unreadable"),
        F.count_if("is_out_of_time").alias("out_of_time"),
        F.count_if(F.col("kind") == "gap").alias("gaps"),
        F.bit_or(F.expr("IF(kind = 'request', shiftleft(1L, CAST(pmod(broker_id, 63) AS INT)), 0L)")).alias(
            BROKERS
        ),
        F.max(F.when(~F.col("is_out_of_time"), F.col("record_time_ms"))).alias("newest_ms"),
    )


def observed_usage(usage: DataFrame) -> DataFrame:
    """Rows of `usage`, counted."""
    return usage.observe(OBSERVATION, F.count(F.lit(1)).alias("rows"), _newest_second())


def observed_decisions(decisions: DataFrame) -> DataFrame:
    """Rows of `decisions`, counted, with their agreement per quota type."""
    return decisions.observe(
        OBSERVATION,
        F.count(F.lit(1)).alias("rows"),
        F.sum("late").alias("late"),
        F.count_if("is_rules_behind").alias("rules_behind"),
        _newest_second(),
        *(
            F.sum(F.when(F.col("quota_type") == quota_type.value, F.col(column))).alias(
                f"{name}_{quota_type}"
            )
            for quota_type in QuotaType
            for name, column in (("judged", "requests_judged"), ("agreeing", "requests_agreeing"))
        ),
    )


def _newest_second() -> Column:
    return F.max(F.unix_millis("second")).alias("newest_ms")
