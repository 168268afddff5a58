"""EPISODES: decisions above their limit to `violations`, one row an episode, open ones included.

A bucket's violated seconds belong to one episode while no gap between them is longer than the configured
one. The result is a function of the decisions alone: it does not depend on which came in one batch.

A broker's JMX makes episodes only of those types of quota that its log tells nothing of: see `only_one_source`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.model.points import CONTROLLER_ID
from kquota_spark.model.quota_types import QuotaType
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.schema.tables import VIOLATIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The log comes half a minute later than JMX: each tells the time of its own episodes.
_CLOCK = ("cluster_id", "broker_id", "source")
_BUCKET = ("cluster_id", "broker_id", "quota_type", "bucket_user", "bucket_client_id", "bucket_tags")
_NAMES = 20
LOG_SILENCE_S = 600


def only_violated(decisions: DataFrame) -> DataFrame:
    """Seconds above the limit; exactly at the limit is allowed (Kafka's `Quota.acceptable`)."""
    return decisions.where("quota_used_percent > 100")


def with_source(rows: DataFrame) -> DataFrame:
    """Rows of a release that had no JMX say nothing of a source: they are of the log."""
    return rows.withColumn("source", F.coalesce("source", F.lit("log")))


def only_one_source(decisions: DataFrame, around: DataFrame) -> DataFrame:
    """Leave out decisions from JMX where the same broker's log tells of the same type of quota.

    Both see the same violation, at their own seconds. The log, which misses nothing, counts; when it has said
    nothing for `LOG_SILENCE_S`, the shipper is away or there is none, and JMX counts.

    Args:
        decisions: a batch of decisions.
        around: decisions of the time of the batch and of `LOG_SILENCE_S` before, from the table.
    """
    place = ["cluster_id", "teller", "quota_type"]
    told = around.where(FROM_LOG).transform(_with_teller).groupBy(*place)
    newest = F.broadcast(told.agg(F.max("second").alias("log_second")))
    with_log = decisions.transform(_with_teller).join(newest, place, "left")
    silence_ms = F.unix_millis("second") - F.unix_millis("log_second")
    is_told = F.coalesce(silence_ms <= LOG_SILENCE_S * 1_000, F.lit(False))
    return with_log.where(F.expr(FROM_LOG) | ~is_told).select(*decisions.columns)


def _with_teller(decisions: DataFrame) -> DataFrame:
    """Whose log tells of it: of mutations there is one bucket in the cluster, whichever broker's JMX shows it."""
    is_mutation = F.col("quota_type") == QuotaType.CONTROLLER_MUTATION.value
    return decisions.withColumn(
        "teller", F.when(is_mutation, F.lit(CONTROLLER_ID)).otherwise(F.col("broker_id"))
    )


def to_violations(decisions: DataFrame, still_open: DataFrame, gap_s: float) -> DataFrame:
    """Rows of `violations` that are new or changed.

    Args:
        decisions: a batch of decisions, of one source where there are two; later than what made `still_open`.
        still_open: rows of `violations` without an end.
        gap_s: seconds without violation that end an episode.
    """
    decisions, still_open = decisions.transform(with_source), still_open.transform(with_source)
    clock = _clock(decisions)
    pieces = only_violated(decisions).transform(_as_pieces).unionByName(still_open.transform(_reopened))
    by_time = Window.partitionBy(*_BUCKET).orderBy("start_time")
    before = by_time.rowsBetween(Window.unboundedPreceding, -1)
    gap = F.unix_millis("start_time") - F.unix_millis(F.max("last_second").over(before))
    is_first = F.when(gap <= int(gap_s * 1_000), 0).otherwise(1)
    numbered = pieces.withColumn("is_first", is_first).withColumn("episode", F.sum("is_first").over(by_time))
    return (
        numbered.groupBy(*_BUCKET, "episode")
        .agg(*_sums())
        .join(F.broadcast(clock), [*_CLOCK], "left")
        .transform(_with_identity, gap_s)
        .select(*VIOLATIONS.names)
    )


def _clock(decisions: DataFrame) -> DataFrame:
    """How far each broker's log has come. The controller's bucket is rarely used: its clock is the cluster's."""
    newest = F.max("second").alias("clock")
    of_brokers = decisions.where(f"broker_id <> {CONTROLLER_ID}").groupBy(*_CLOCK).agg(newest)
    of_clusters = decisions.groupBy("cluster_id", "source").agg(newest)
    return of_brokers.unionByName(of_clusters.withColumn("broker_id", F.lit(CONTROLLER_ID)))


def _as_pieces(violated: DataFrame) -> DataFrame:
    """A violated second in the shape of an episode of one second."""
    return violated.select(
        *_BUCKET,
        F.col("second").alias("start_time"),
        F.col("second").alias("last_second"),
        "level",
        "rule",
        "limit_per_s",
        F.col("rate_per_s").alias("peak_rate_per_s"),
        F.col("quota_used_percent").alias("peak_quota_used_percent"),
        F.lit(1).cast("bigint").alias("violated_seconds"),
        F.col("total_throttle_ms").alias("throttled_ms"),
        "throttled_requests",
        "source",
        "users",
        "client_ids",
    )


def _reopened(still_open: DataFrame) -> DataFrame:
    return still_open.transform(with_source).drop("event_date", "episode_id", "end_time")


def _sums() -> list[Column]:
    def names(column: str) -> Column:
        return F.slice(F.array_sort(F.array_distinct(F.flatten(F.collect_list(column)))), 1, _NAMES)

    return [
        F.max("last_second").alias("last_second"),
        F.min_by("level", "start_time").alias("level"),
        F.min_by("rule", "start_time").alias("rule"),
        F.min("limit_per_s").alias("limit_per_s"),
        F.max("peak_rate_per_s").alias("peak_rate_per_s"),
        F.max("peak_quota_used_percent").alias("peak_quota_used_percent"),
        F.sum("violated_seconds").alias("violated_seconds"),
        F.sum("throttled_ms").alias("throttled_ms"),
        F.sum("throttled_requests").alias("throttled_requests"),
        F.max_by("source", "last_second").alias("source"),
        names("users").alias("users"),
        names("client_ids").alias("client_ids"),
        F.min("start_time").alias("start_time"),
    ]


def _with_identity(episodes: DataFrame, gap_s: float) -> DataFrame:
    """The id, made of bucket and start; and the end, once the broker's time has moved past the gap."""
    silence_ms = F.unix_millis("clock") - F.unix_millis("last_second")
    after_last = F.timestamp_millis(F.unix_millis("last_second") + 1_000)
    # A NUL between the parts: no name can hold one, so two buckets never make the same text.
    identity = F.concat_ws("\x00", *_BUCKET, F.unix_millis("start_time"))
    return episodes.withColumns(
        {
            "episode_id": F.substring(F.sha2(identity, 256), 1, 32),
            "event_date": F.to_date("start_time"),
            "end_time": F.when(silence_ms > int(gap_s * 1_000), after_last),
        }
    )
