"""JUDGE of JMX: turns samples into `decisions` and `usage`. The rate is the broker's own, the limit that of the bucket.

JMX reports the state of a sensor at one moment. It is not known whether the bucket was above its limit between two
samples, so no decision is certain. There is no state: a row of `jmx_samples` gives one row of each table, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import CONNECTION, COUNTED, TYPES, Counted, QuotaType
from kquota_spark.pipeline.jmx.limits import with_limits
from kquota_spark.pipeline.known import Limits
from kquota_spark.schema.columns import Table
from kquota_spark.schema.tables import DECISIONS, USAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

JMX = "jmx"
MODEL_VARIANT = "broker's own rate (JMX)"
_RATES = {
    Counted.BYTES: "byte_rate",
    Counted.THREAD_TIME: "request_time_percent",
    Counted.PARTITIONS: "mutation_rate",
    Counted.CONNECTIONS: "connection_rate",
}
_KEPT = ("cluster_id", "event_date", "broker_id", "quota_type", "second", "rate_per_s", "source")
"""Columns that `usage` and `decisions` have in common."""


def jmx_usage_batch(decisions: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `usage` for rows of `decisions`: the rate of each bucket of users and client ids.

    Amounts are null, because a rate does not show them.
    """
    rated = decisions.filter(pc.field("quota_type") != CONNECTION)
    made = {
        "user": rated["bucket_user"],
        "client_id": rated["bucket_client_id"],
        "tile": pa.repeat(0, rated.num_rows),
    }
    arrays = []
    for field in USAGE.arrow_schema():
        if field.name in _KEPT:
            made[field.name] = rated[field.name]
        arrays.append(
            made[field.name].cast(field.type) if field.name in made else pa.nulls(rated.num_rows, field.type)
        )
    return pa.RecordBatch.from_arrays(arrays, schema=USAGE.arrow_schema())


def to_jmx_decisions(samples: DataFrame, load: Callable[[], Limits], config: RateConfig) -> DataFrame:
    """Rows of `decisions`: one per sample of a bucket, under the rule at the time of the sample.

    `config` sets how many seconds of its quota a token bucket holds (controller.quota.window.*).
    """
    governed = samples.transform(_only_of_buckets).transform(with_limits, load).transform(_only_rated)
    ip_tag = F.when(F.col("ip").isNotNull(), F.to_json(F.struct("ip")))
    made = {
        "bucket_tags": F.coalesce("bucket_tags", ip_tag),
        "quota_used_percent": _used_percent(config),
        "observed_throttle_ms": F.round("throttle_time_ms").cast("bigint"),
        "is_certain": F.lit(False),
        "is_rules_behind": F.coalesce(F.col("known_through_ms") <= F.col("sample_time_ms"), F.lit(True)),
        "model_variant": F.lit(MODEL_VARIANT),
        "source": F.lit(JMX),
        "users": _names("bucket_user"),
        "client_ids": _names("bucket_client_id"),
    }
    return _filled(governed, DECISIONS, made)


def _only_rated(samples: DataFrame) -> DataFrame:
    """Samples with the rate of a bucket. Those of broker and listener have no quota that is audited."""
    of_type = [F.when(F.col("quota_type") == name, F.col(_RATES[COUNTED[name]])) for name in TYPES]
    return (
        samples.transform(_only_of_buckets)
        .withColumns({"rate_per_s": F.coalesce(*of_type), "second": _second(F.col("sample_time_ms"))})
        .where(F.col("rate_per_s").isNotNull())
    )


def _only_of_buckets(samples: DataFrame) -> DataFrame:
    is_of_bucket = (F.col("quota_type") != CONNECTION) | F.col("ip").isNotNull()
    return samples.where((F.col("kind") == "sample") & is_of_bucket)


def _filled(frame: DataFrame, table: Table, made: Mapping[str, Column]) -> DataFrame:
    """Exactly the columns of a table: from `made`, or from the frame by name; null if JMX does not report them."""
    own = set(frame.columns)
    return frame.select(
        *(
            (made[name] if name in made else F.col(name) if name in own else F.lit(None))
            .cast(column.type)
            .alias(name)
            for column in table.columns
            if (name := column.name)
        )
    )


def _second(time_ms: Column) -> Column:
    return F.timestamp_seconds(F.floor(time_ms / 1_000))


def _used_percent(config: RateConfig) -> Column:
    """The part of the quota that is used, percent. Only above 100 the second is violated.

    That is a rate above its limit, or a token bucket below zero.
    """
    limit = F.col("limit_per_s")
    capacity = limit * (config.num_samples * config.window_ms / 1_000)
    of_tokens = 100.0 * (capacity - F.col("tokens")) / capacity
    is_mutation = F.col("quota_type") == QuotaType.CONTROLLER_MUTATION.value
    used = F.when(is_mutation, of_tokens).otherwise(100.0 * F.col("rate_per_s") / limit)
    return F.when(limit > 0, used)


def _names(column: str) -> Column:
    return F.when(F.col(column) != "", F.array(column)).otherwise(F.array().cast("array<string>"))
