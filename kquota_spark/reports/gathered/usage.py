"""What was used: by clients, by buckets, of the threads of brokers, and how it is spread over brokers.

Each broker enforces a limit by itself. So a bucket may use the limit times the number of brokers that lead its
partitions, and the same rule allows more with one more broker. Only clients under a request_percentage are charged for
request time, so its use is a lower bound.
"""

from __future__ import annotations

from typing import Any

from kquota_spark.reports.scope.audit_report import Skew, Talker, Talkers
from kquota_spark.reports.scope.broker_buckets import amount_per_rate, rate_of
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of

_RATE_UNIT = amount_per_rate()
_TOTALS = f"""
with of_brokers as (
  select quota_type, "user", client_id, broker_id,
         coalesce(sum(amount), (avg(rate_per_s) * (max(second_ms) - min(second_ms)) / 1000 * {_RATE_UNIT})::bigint, 0)
           as amount,
         sum(requests) as requests, sum(observed_throttle_ms) as observed_throttle_ms
  from used group by quota_type, "user", client_id, broker_id
), clients as (
  select quota_type, "user", client_id, sum(amount)::bigint as amount, sum(requests)::bigint as requests,
         sum(observed_throttle_ms)::bigint as observed_throttle_ms
  from of_brokers group by all
)
select *, sum(amount) over (partition by quota_type)::bigint as total, count(*) over (partition by quota_type) as found
from clients
qualify row_number() over (
  partition by quota_type order by amount desc, requests desc nulls last, "user", client_id) <= ?
order by quota_type, amount desc, requests desc nulls last, "user", client_id
"""  # noqa: S608 - names of ours
# With JMX, another broker may have no sample in the same second, so the peaks of brokers are added up.
_PEAKS = f"""
with of_seconds as (
  select quota_type, "user", client_id, is_log, if(is_log, null, broker_id) as of_broker, second_ms,
         coalesce(sum(amount) / {_RATE_UNIT}, max(rate_per_s)) as rate_per_s
  from used where (quota_type, "user", client_id) in (
    select (quota_type, "user", client_id) from (select unnest(?, recursive := true))
  ) group by quota_type, "user", client_id, is_log, of_broker, second_ms
)
select quota_type, "user", client_id, sum(peak)::double as peak_per_s from (
  select quota_type, "user", client_id, of_broker, max(rate_per_s) as peak from of_seconds group by all
) group by all
"""  # noqa: S608 - names of ours
# Only the active controller counts mutations.
_SKEW = f"""
select {BUCKET}, arg_max_null(limit_per_s, last_ms) as limit_per_s,
       list({{'broker_id': broker_id, 'rate_per_s': mean_rate_per_s, 'throttled_ms': throttled_ms}}
            order by broker_id) as brokers
from places where quota_type <> 'controller_mutation' and seconds > 0 group by all having limit_per_s > 0
order by max(mean_rate_per_s) / arg_max_null(limit_per_s, last_ms) desc, {BUCKET} limit ?
"""  # noqa: S608 - names of ours


def top_talkers(scope: Scope) -> tuple[Talkers, ...]:
    """The largest clients of each quota type; on a tenant's page, shares are of the tenant's own amount."""
    rows = scope.rows(_TOTALS, scope.top)
    wanted = [{name: row[name] for name in ("quota_type", "user", "client_id")} for row in rows]
    peaks = {_key(row): row["peak_per_s"] for row in scope.rows(_PEAKS, wanted)} if wanted else {}
    found: dict[str, list[Talker]] = {}
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        first.setdefault(row["quota_type"], row)
        found.setdefault(row["quota_type"], []).append(_talker(scope, row, peaks.get(_key(row), 0.0)))
    return tuple(
        Talkers(
            quota_type=quota_type,
            total=first[quota_type]["total"],
            talkers=tuple(talkers),
            others=first[quota_type]["found"] - len(talkers),
            others_amount=first[quota_type]["total"] - sum(talker.amount for talker in talkers),
        )
        for quota_type, talkers in found.items()
    )


def _talker(scope: Scope, row: dict[str, Any], peak_per_s: float) -> Talker:
    return Talker(
        user=row["user"],
        client_id=row["client_id"],
        quota_type=row["quota_type"],
        amount=row["amount"],
        share_percent=100.0 * row["amount"] / row["total"] if row["total"] else 0.0,
        requests=row["requests"],
        mean_per_s=rate_of(row["quota_type"], row["amount"], scope.covered_seconds),
        peak_per_s=peak_per_s,
        observed_throttle_ms=row["observed_throttle_ms"],
    )


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["quota_type"], row["user"], row["client_id"]


def skews(scope: Scope) -> list[Skew]:
    """The limited buckets nearest to their limit on their busiest broker, by the mean rate of active seconds."""
    return [_skew(row) for row in scope.rows(_SKEW, scope.top)]


def _skew(row: dict[str, Any]) -> Skew:
    used = {broker["broker_id"]: broker["rate_per_s"] for broker in row["brokers"]}
    mean, limit = sum(used.values()) / len(used), row["limit_per_s"]
    return Skew(
        bucket=bucket_of(row),
        limit_per_s=limit,
        used_per_s=used,
        throttled_ms={broker["broker_id"]: broker["throttled_ms"] for broker in row["brokers"]},
        max_to_mean=max(used.values()) / mean if mean else 1.0,
        cluster_limit_per_s=limit * len(used),
        with_one_more_broker_per_s=limit * (len(used) + 1),
    )
