"""Time throttled of each bucket, as a share of the clock time, and the length of single throttles.

A second counts if a throttle began in it or still ran, by the longest throttle that began in each second: a client that
is throttled for five seconds sends nothing in four of them. A second counts once for all brokers. A JMX sample contains
a mean of the last half to whole minute, so there the share is that of the samples with a throttle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import NamedTuple

from kquota_spark.reports.scope.audit_report import (
    MOST_CLIENTS,
    BucketName,
    ThrottledBucket,
    ThrottlePair,
    ThrottleSpread,
)
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of
from kquota_spark.schema.harm import time_throttled

_THROTTLED = f"""
with {time_throttled(BUCKET, "judged")}, of_buckets as (
  select {BUCKET}, min(least_limit_per_s) as limit_per_s, sum(throttled_ms)::bigint as throttled_ms,
         sum(throttled_requests)::bigint as throttled_requests, bool_or(is_log) as is_log,
         100.0 * sum(throttled_rows) / nullif(sum(seconds), 0) as of_samples_percent,
         arg_max(broker_id, (throttled_ms, throttled_rows, -broker_id)) as worst_broker_id,
         max(quota_used_percent) as peak_quota_used_percent
  from places group by all
)
select *, if(is_log, 100.0 * throttled_seconds / ?, of_samples_percent) as time_in_throttle_percent,
       count(*) over () as found, sum(throttled_ms) over ()::bigint as found_ms
from of_time join of_buckets using ({BUCKET})
order by throttled_ms desc, time_in_throttle_percent desc, {BUCKET} limit ?
"""  # noqa: S608 - names of ours
_FIGURES = (
    "limit_per_s", "throttled_ms", "throttled_requests", "throttled_seconds", "time_in_throttle_percent",
    "worst_broker_id", "peak_quota_used_percent",
)  # fmt: skip
_EPISODES = f"""
select {BUCKET.replace("bucket_tags", "coalesce(bucket_tags, '') as bucket_tags")}, count(*) as episodes
from violations where cluster_id = ? and start_time < make_timestamptz(?)
  and coalesce(end_time, last_second) >= make_timestamptz(?) group by all
"""  # noqa: S608 - names of ours
_NAMES = f"""
select {BUCKET}, list_sort(list_distinct(flatten(list(users)))) as users,
       list_sort(list_distinct(flatten(list(client_ids)))) as client_ids
from (select distinct {BUCKET}, users, client_ids from judged where is_throttled and ({BUCKET}) in (
  select (quota_type, "user", client_id, tags) from (select unnest(?, recursive := true))
)) group by all
"""  # noqa: S608 - names of ours
_SHARED = """
select mine.*, count(distinct second_ms) as throttled_seconds,
       sum(observed_throttle_ms)::bigint as throttled_ms,
       arg_max(broker_id, (observed_throttle_ms, -broker_id)) as worst_broker_id
from mine join used on used.quota_type = mine.quota_type and used.client_id = mine.bucket_client_id
where shared_with > 0 and observed_throttle_ms > 0 group by all order by throttled_seconds desc, mine.bucket_client_id
"""
MOST_USERS = 8
_STEPS_PER_OCTAVE = 4
# Four bins per octave: some hundred points, whatever the number of rows.
_BIN = f"if({{name}} < 1, 0, round(power(2, round(log2({{name}}) * {_STEPS_PER_OCTAVE}) / {_STEPS_PER_OCTAVE}), 1))"
# Requests of share consumers have no size, so they have no replay.
_PAIRS = f"""
select {_BIN.format(name="throttle_ms")} as replay_ms, {_BIN.format(name="observed_throttle_ms")} as brokers_ms,
       is_certain, count(*) as seconds
from judged
where is_log and observed_total_throttle_ms is not null and greatest(throttle_ms, observed_throttle_ms) > 0
  and coalesce(unsized_requests, 0) = 0
group by all order by all
"""  # noqa: S608 - names and numbers of ours
_SPREADS = """
select "user", count(*) as requests, sum(observed_throttle_ms)::bigint as throttled_ms,
       quantile_disc(observed_throttle_ms, list_transform(range(101), lambda step: step / 100.0)) as percentiles_ms
from requests
where cluster_id = $1 and kind = 'request' and observed_throttle_ms > 0 and "user" is not null
  and record_time_ms >= $2 and record_time_ms < $3 and coalesce("user" = $4, true)
group by "user" order by throttled_ms desc, "user" limit $5
"""


class Throttled(NamedTuple):
    """The first throttled buckets, how many more there are, and the total delay of those (ms)."""

    shown: list[ThrottledBucket]
    left_out: int
    left_out_ms: int


def throttled_buckets(scope: Scope) -> Throttled:
    """The buckets with the most total delay; those of JMX, which has no sums, by the share of time throttled.

    On a tenant's page, a bucket that is shared with others has only the tenant's own throttles, as the brokers logged
    them.
    """
    rows = scope.rows(_THROTTLED, scope.covered.to_ms, scope.covered_seconds, scope.top)
    count, total_ms = (rows[0]["found"], rows[0]["found_ms"]) if rows else (0, 0)
    during = scope.covered.to_ms * 1_000, scope.covered.from_ms * 1_000
    episodes = {bucket_of(row): row["episodes"] for row in scope.rows(_EPISODES, scope.cluster_id, *during)}
    inside = _clients(scope, map(bucket_of, rows))
    found = [
        ThrottledBucket(
            bucket=bucket,
            episodes=episodes.get(bucket, 0),
            clients=inside.get(bucket, ()),
            **{name: row[name] for name in _FIGURES},
        )
        for row in rows
        for bucket in (bucket_of(row),)
    ]
    if scope.tenant is not None:
        shared = _shared(scope)
        count, total_ms = count + len(shared), total_ms + sum(one.throttled_ms for one in shared)
        found = sorted([*found, *shared], key=lambda one: (-one.throttled_ms, -one.time_in_throttle_percent))
    shown = found[: scope.top]
    return Throttled(shown, count - len(shown), total_ms - sum(one.throttled_ms for one in shown))


def _clients(scope: Scope, buckets: Iterable[BucketName]) -> dict[BucketName, tuple[str, ...]]:
    wanted = [asdict(bucket) for bucket in buckets]
    if not wanted:
        return {}
    return {bucket_of(row): _pairs(row["users"], row["client_ids"]) for row in scope.rows(_NAMES, wanted)}


def _pairs(users: list[str] | None, client_ids: list[str] | None) -> tuple[str, ...]:
    """`user / client id`; only users if there are several of both, because it is unknown which belong together."""
    names, ids = users or [""], client_ids or [""]
    if len(names) > 1 and len(ids) > 1:
        return tuple(names[:MOST_CLIENTS])
    return tuple(f"{name} / {client_id}" for name in names for client_id in ids)[:MOST_CLIENTS]


def _shared(scope: Scope) -> list[ThrottledBucket]:
    return [
        ThrottledBucket(
            bucket=bucket_of(row),
            limit_per_s=None,
            throttled_ms=row["throttled_ms"],
            throttled_requests=None,
            throttled_seconds=row["throttled_seconds"],
            time_in_throttle_percent=100.0 * row["throttled_seconds"] / scope.covered_seconds,
            worst_broker_id=row["worst_broker_id"],
            episodes=0,
            peak_quota_used_percent=None,
            clients=(f"{scope.tenant} / {row['bucket_client_id']}",),
            shared_with=row["shared_with"],
        )
        for row in scope.rows(_SHARED)
    ]


def throttle_pairs(scope: Scope) -> tuple[ThrottlePair, ...]:
    """The longest throttles of each second and bucket, by replay and by brokers; none if JMX is the only source."""
    return tuple(ThrottlePair(**row) for row in scope.rows(_PAIRS))


def throttle_spreads(scope: Scope) -> tuple[ThrottleSpread, ...]:
    """Throttle times of the users with the most total delay; none if `requests` keeps no row of a throttled request."""
    asked = scope.asked
    of_users = scope.rows(_SPREADS, scope.cluster_id, asked.from_ms, asked.to_ms, scope.tenant, MOST_USERS)
    return tuple(ThrottleSpread(**row | {"percentiles_ms": tuple(row["percentiles_ms"])}) for row in of_users)
