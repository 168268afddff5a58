"""Every bucket of the period in a few figures, so that a reader of the report finds each of them."""

from __future__ import annotations

from kquota_spark.reports.scope.audit_report import PeriodBucket
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of

# A bucket of a user and a client id names its client itself.
_BUCKETS = f"""
with inside as (
  select {BUCKET}, list_sort(list_distinct(flatten(list(users)))) as users,
         list_sort(list_distinct(flatten(list(client_ids)))) as client_ids
  from (
    select distinct {BUCKET}, users, client_ids from judged where bucket_user = '' or bucket_client_id = ''
  ) group by all
), figures as (
  select {BUCKET}, list_sort(list(distinct broker_id)) as brokers,
         arg_max(limit_per_s, last_ms) as limit_per_s, max(certain_used_percent) as peak_quota_used_percent,
         sum(throttled_ms)::bigint as throttled_ms, sum(throttled_requests)::bigint as throttled_requests
  from places group by all
)
select figures.*, inside.users, inside.client_ids from figures left join inside using ({BUCKET})
where limit_per_s is not null or throttled_ms > 0
order by throttled_ms desc, peak_quota_used_percent desc nulls last, {BUCKET}
"""  # noqa: S608 - names of ours


def period_buckets(scope: Scope) -> tuple[PeriodBucket, ...]:
    """The buckets with a limit, most total delay first, then the nearest to the limit.

    A tenant's page has no bucket that the tenant shares with others.
    """
    return tuple(
        PeriodBucket(
            bucket=bucket_of(row),
            brokers=tuple(row["brokers"]),
            limit_per_s=row["limit_per_s"],
            peak_quota_used_percent=row["peak_quota_used_percent"],
            throttled_ms=row["throttled_ms"],
            throttled_requests=row["throttled_requests"],
            users=() if row["bucket_user"] else tuple(row["users"] or ()),
            client_ids=() if row["bucket_client_id"] else tuple(row["client_ids"] or ()),
        )
        for row in scope.rows(_BUCKETS)
    )
