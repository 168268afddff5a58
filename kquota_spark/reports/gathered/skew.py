"""How the use of a bucket is spread over brokers, and what its limit means for the cluster.

Each broker enforces the limit by itself, so a bucket may use the limit times the brokers that lead its partitions:
one broker more, and the same rule lets more through.
"""

from __future__ import annotations

from typing import Any

from kquota_spark.reports.scope.audit_report import Skew
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of

# Mutations are counted by the active controller alone.
_SKEW = f"""
select {BUCKET}, arg_max_null(limit_per_s, last_ms) as limit_per_s,
       list({{'broker_id': broker_id, 'rate_per_s': mean_rate_per_s, 'throttled_ms': throttled_ms}}
            order by broker_id) as brokers
from places where quota_type <> 'controller_mutation' and seconds > 0 group by all having limit_per_s > 0
order by max(mean_rate_per_s) / arg_max_null(limit_per_s, last_ms) desc, {BUCKET} limit ?
"""  # noqa: S608 - names of ours


def skews(scope: Scope) -> list[Skew]:
    """The limited buckets that are nearest to their limit on their busiest broker, averaged over active seconds."""
    return [_skew(row) for row in scope.rows(_SKEW, scope.top)]


def _skew(row: dict[str, Any]) -> Skew:
    used = {broker["broker_id"]: broker["rate_per_s"] for broker in row["brokers"]}
    mean = sum(used.values()) / len(used)
    limit = row["limit_per_s"]
    return Skew(
        bucket=bucket_of(row),
        limit_per_s=limit,
        used_per_s=used,
        throttled_ms={broker["broker_id"]: broker["throttled_ms"] for broker in row["brokers"]},
        max_to_mean=max(used.values()) / mean if mean else 1.0,
        cluster_limit_per_s=limit * len(used),
        with_one_more_broker_per_s=limit * (len(used) + 1),
    )
