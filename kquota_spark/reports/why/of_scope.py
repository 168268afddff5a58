"""Why the worst buckets of a report were throttled, within bounds that keep the report fast."""

from __future__ import annotations

from collections.abc import Sequence

from kquota_spark.errors import UserError
from kquota_spark.model.attribution.causes import LEAST_DELAY_MS
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import BucketName, ThrottledBucket
from kquota_spark.reports.why.reasons import Reasons, is_covered, reasons
from kquota_spark.reports.why.recorded import Wanted
from kquota_spark.schema.harm import EPISODE_DELAY_MS, EPISODE_END

MOST_BUCKETS = 20
"""Maximum number of buckets with causes."""
_MOST_REQUESTS = 50_000
"""Maximum number of requests of one bucket; of a busier one the violation with the most total delay is explained."""
_REQUESTS = """
select coalesce(sum(requests), 0)::bigint as requests from used
where is_log and quota_type = ? and (? = '' or "user" = ?) and (? = '' or client_id = ?)
"""
_WORST = f"""
select greatest(epoch_ms(start_time), ?) as from_ms, least(epoch_ms({EPISODE_END}), ?) as to_ms from violations
where cluster_id = ? and quota_type = ? and bucket_user = ? and bucket_client_id = ? and bucket_tags is null
  and epoch_ms(start_time) < ? and epoch_ms({EPISODE_END}) > ?
order by {EPISODE_DELAY_MS} desc nulls last, start_time limit 1
"""  # noqa: S608 - names of ours


def reasons_of(scope: Scope, throttled: Sequence[ThrottledBucket]) -> dict[BucketName, Reasons]:
    """Why buckets were throttled, those with the most total delay.

    Buckets that a tenant shares are left out, because their causes would name others. Nothing is returned if the
    tables lack the requests or the quotas.

    Args:
        scope: the report's tables and period.
        throttled: the throttled buckets.
    """
    ordered = sorted(throttled, key=lambda one: (-one.delay_ms, one.bucket))
    chosen = [
        one.bucket
        for one in ordered
        if one.delay_ms >= LEAST_DELAY_MS and not one.shared_with and is_covered(one.bucket)
    ]
    try:
        wanted = [_period(scope, bucket) for bucket in chosen[:MOST_BUCKETS]]
        return {found.bucket: found for found in reasons(scope.settings, wanted, _MOST_REQUESTS)}
    except UserError:
        return {}


def reasons_of_shared(scope: Scope, throttled: Sequence[ThrottledBucket]) -> list[Reasons]:
    """The same for buckets that a tenant shares with others; the caller must not show the names in it.

    Args:
        scope: the report's tables and period.
        throttled: the throttled buckets.
    """
    shared = [
        one.bucket
        for one in throttled
        if one.shared_with and one.delay_ms >= LEAST_DELAY_MS and is_covered(one.bucket)
    ]
    wanted = [Wanted(bucket, scope.covered.from_ms, scope.covered.to_ms) for bucket in shared[:MOST_BUCKETS]]
    try:
        return reasons(scope.settings, wanted, _MOST_REQUESTS)
    except UserError:
        return []


def _period(scope: Scope, bucket: BucketName) -> Wanted:
    """The period of the report, or for a busy bucket that of its worst violation in it."""
    names = bucket.user, bucket.user, bucket.client_id, bucket.client_id
    whole = Wanted(bucket, scope.covered.from_ms, scope.covered.to_ms)
    [row] = scope.rows(_REQUESTS, bucket.quota_type, *names)
    if row["requests"] <= _MOST_REQUESTS:
        return whole
    own = scope.cluster_id, bucket.quota_type, bucket.user, bucket.client_id
    worst = scope.rows(_WORST, whole.from_ms, whole.to_ms, *own, whole.to_ms, whole.from_ms)
    return whole if not worst else Wanted(bucket, worst[0]["from_ms"], worst[0]["to_ms"])
