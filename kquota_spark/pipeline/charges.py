"""CHARGES: what each line adds to the buckets of the four quota types, as points of the replay.

Every request of a client counts for its request quota, and few clients have one: only those that a rule could cover
get such points (`model.request_coverage`), and where there is no rule, nobody does. The rules are read anew in each
micro-batch, so the first one that appears is picked up by the next.

A line has as many parts as charges: 0 is its bytes, 1 its thread time, from 2 on the topics that it changed. Nearly
every line has part 0 alone, and for those the list of parts is a constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.formats.request import MOST_PERCENT
from kquota_spark.model.points import CONTROLLER_ID, Point, PointKind
from kquota_spark.model.quota_types import QuotaKey, QuotaType
from kquota_spark.model.request_replay import US_PER_PERCENT
from kquota_spark.schema.tables import POINT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHARGED_KEYS = ("cluster_id", "broker_id", "quota_type", "principal_type", "user", "client_id")

_IS_COVERED = """
    network_time_us IS NOT NULL AND (is_everyone OR array_contains(covered_users, user)
    OR array_contains(covered_client_ids, client_id))"""
_PARTS = """
    CASE WHEN NOT is_covered AND mutations IS NULL THEN array(0)
    ELSE filter(sequence(0, 1 + coalesce(size(mutations), 0)),
                i -> (i = 0 AND quota_type IS NOT NULL) OR (i = 1 AND is_covered) OR i > 1) END"""
_KIND = f"""
    CASE part WHEN 0 THEN point_kind
    WHEN 1 THEN IF(quota_type IS NULL AND mutations IS NULL,
                   {PointKind.REQUEST:d}, {PointKind.SHARED_REQUEST:d})
    ELSE mutation.point_kind END"""
_AMOUNT = f"""
    CASE part WHEN 0 THEN charged_bytes
    WHEN 1 THEN CAST(round(least(request_time_percent, {MOST_PERCENT:.0f}D) * {US_PER_PERCENT}) AS BIGINT)
    ELSE mutation.partitions END"""
# The throttle in the answer is that of the topics that were refused; the others were not held back.
_OBSERVED = f"""
    CASE WHEN part < 2 OR mutation.point_kind = {PointKind.REFUSED_MUTATION:d}
              OR mutation.point_kind >= {PointKind.PERMISSIVE_CREATE_TOPIC:d} THEN observed_throttle_ms
    ELSE 0 END"""
_FIELDS = {
    "connection_hash": "IF(part < 2, crc32(connection), mutation.topic_hash)",
    "amount": _AMOUNT,
    "observed_throttle_ms": _OBSERVED,
    "kind": _KIND,
    "network_time_us": "IF(part = 1, network_time_us, 0)",
}
_QUOTA_TYPE = f"""
    CASE part WHEN 0 THEN quota_type WHEN 1 THEN '{QuotaType.REQUEST.value}'
    ELSE '{QuotaType.CONTROLLER_MUTATION.value}' END"""


def to_coverage(rules: DataFrame, *, has_callback: bool) -> DataFrame:
    """One row: who could have a request quota at some time; see `model.request_coverage`.

    Args:
        rules: `quota_rules` of this cluster.
        has_callback: any quota may be anybody's.
    """
    carriers = rules.where(f"level > 0 AND {QuotaKey.REQUEST_PERCENTAGE.value} IS NOT NULL")
    is_everyone = F.lit(True) if has_callback else F.expr("user IS NULL AND client_id IS NULL")
    return carriers.agg(
        F.coalesce(F.bool_or(is_everyone), F.lit(False)).alias("is_everyone"),
        F.collect_set("user").alias("covered_users"),
        F.collect_set(F.expr("IF(user IS NULL, client_id, NULL)")).alias("covered_client_ids"),
    )


def to_charges(requests: DataFrame, coverage: DataFrame) -> DataFrame:
    """Points with the keys of their bucket's clients and their time, and heartbeats as rows without a point.

    Lines from the future are left out.

    Args:
        requests: rows of `requests`.
        coverage: the row of `to_coverage`.
    """
    used = requests.where("NOT is_out_of_time").crossJoin(F.broadcast(coverage))
    counted = used.withColumn("is_covered", F.expr(_IS_COVERED)).where(
        "is_covered OR quota_type IS NOT NULL OR mutations IS NOT NULL OR kind = 'heartbeat'"
    )
    parts = counted.select("*", F.explode(F.expr(_PARTS)).alias("part")).withColumn(
        "mutation", F.expr("get(mutations, part - 2)")
    )
    fields = [F.expr(_FIELDS.get(name, name)).alias(name) for name in Point._fields]
    keys = {"broker_id": f"IF(part < 2, broker_id, {CONTROLLER_ID})", "quota_type": _QUOTA_TYPE}
    return parts.select(
        *(F.expr(keys.get(name, name)).alias(name) for name in CHARGED_KEYS),
        F.timestamp_millis("record_time_ms").alias("record_time"),
        F.when(F.expr("part > 0 OR quota_type IS NOT NULL"), F.struct(*fields).cast(POINT)).alias("point"),
    )
