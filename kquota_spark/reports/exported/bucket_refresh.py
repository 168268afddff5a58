"""Sums for counters and highest values for gauges of each bucket in new decisions, in one pass over their files.

A second of a bucket counts as time throttled if one of its requests was throttled. A longer throttle counts until its
end, and overlaps count once: a client that is muted for 10 s sends one request in that time. A JMX sample counts for
the time since the previous one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kquota_spark.schema import harm
from kquota_spark.schema.key_columns import LOG_BEFORE_JMX
from kquota_spark.store.reading import Tables

RECENT_MS = 60_000
"""Period (ms) before the broker's newest decision; gauges show its highest value."""
_LONGEST_SAMPLE_MS = 60_000
_BUCKET = "broker_id, quota_type, bucket_user, bucket_client_id, tags"
_REFRESHED = f"""
create temp table refreshed as
with shown as (
  select unnest(?::int[]) as broker_id, unnest(?::varchar[]) as quota_type, unnest(?::varchar[]) as bucket_user,
         unnest(?::varchar[]) as bucket_client_id, unnest(?::varchar[]) as tags,
         unnest(?::bigint[]) as held_until_ms, unnest(?::bigint[]) as last_ms
), logged as (
  select unnest(?::int[]) as broker_id, unnest(?::varchar[]) as quota_type, true as is_logged
), judged as (
  select broker_id, quota_type, bucket_user, bucket_client_id, coalesce(bucket_tags, '') as tags,
         level, rule, limit_per_s, rate_per_s, quota_used_percent, amount, requests,
         {harm.LONGEST_THROTTLE_MS} as longest_ms, observed_throttle_ms,
         {harm.THROTTLED_REQUESTS} as delayed_requests, {harm.DELAY_MS} as delay_ms,
         requests_judged, requests_agreeing, coalesce(late, 0) as late, is_certain,
         source = 'log' as is_log,
         epoch_ms(second) as second_ms, {harm.HAS_VERDICT} as has_verdict,
         {harm.IS_THROTTLED} as is_throttled
  from decisions where cluster_id = ? and epoch_ms(second) >= ?
), spans as (
  select judged.*, shown.last_ms is not null as is_shown, held_until_ms,
         case when is_log then second_ms else greatest(second_ms - {_LONGEST_SAMPLE_MS},
           coalesce(lag(second_ms) over bucket, shown.last_ms, second_ms - 1000)) end as from_ms,
         case when is_log then second_ms + greatest(1000, coalesce(longest_ms, 0)) else second_ms end as until_ms
  from judged left join shown using ({_BUCKET}) left join logged using (broker_id, quota_type)
  where is_log or is_logged is null
  window bucket as (partition by is_log, {_BUCKET} order by second_ms)
), held as (
  select *, second_ms > max(second_ms) over (partition by broker_id) - {RECENT_MS} as is_recent,
    if(is_throttled, greatest(0, until_ms - greatest(from_ms, coalesce(held_until_ms, 0), coalesce(
      max(until_ms) filter (is_throttled) over (
        partition by is_log, {_BUCKET} order by second_ms rows between unbounded preceding and 1 preceding
      ), 0))), 0) as held_ms
  from spans
)
select {_BUCKET}, is_log, any_value(is_shown) as is_shown,
  arg_max({{'limit': limit_per_s, 'level': level, 'rule': rule}}, second_ms) filter (has_verdict) as newest,
  max(second_ms) as last_ms, max(until_ms) filter (is_throttled) as held_until_ms,
  max(rate_per_s) filter (is_recent) as rate_per_s, max(quota_used_percent) filter (is_recent) as quota_used_percent,
  coalesce(max(coalesce(longest_ms, observed_throttle_ms)) filter (is_recent), 0)::bigint as longest_throttle_ms,
  coalesce(sum(amount), 0)::bigint as amount,
  coalesce(sum(requests + late), 0)::bigint as requests,
  coalesce(sum(delayed_requests), 0)::bigint as throttled_requests,
  coalesce(sum(delay_ms), 0)::bigint as throttle_ms, sum(held_ms)::bigint as held_ms,
  coalesce(sum(amount) filter (limit_per_s is null), 0)::bigint as unmetered_amount,
  count(*) filter (is_log and has_verdict) as decisions,
  count(*) filter (is_log and has_verdict and is_certain) as certain_decisions,
  coalesce(sum(requests_judged), 0)::bigint as requests_judged,
  coalesce(sum(requests_agreeing), 0)::bigint as requests_agreeing
from held group by is_log, {_BUCKET}
{LOG_BEFORE_JMX}
"""  # noqa: S608 - names and numbers of ours
# Use is the larger one of two parts: of the bucket's own limit, and of the amount of its quota type on all brokers.
_COUNTS = ("amount", "requests", "throttled_requests", "throttle_ms", "held_ms")
_BUCKETS = f"""
select {_BUCKET}, newest['limit'], newest['level'], newest['rule'], last_ms, coalesce(held_until_ms, 0), rate_per_s,
  quota_used_percent, longest_throttle_ms, greatest(least(coalesce(quota_used_percent, 0) / 100, 1), coalesce(
  if(is_log, amount, rate_per_s) / nullif(sum(if(is_log, amount, rate_per_s)) over (partition by quota_type), 0), 0)
) as use, {", ".join(_COUNTS)} from refreshed order by is_shown desc, use desc, {_BUCKET} limit ?
"""  # noqa: S608 - names of ours
_TYPES = f"""
select quota_type, count(*) as buckets, {", ".join(f"sum({name})::bigint as {name}" for name in _COUNTS)}
from refreshed group by quota_type order by quota_type
"""  # noqa: S608 - names of ours
OF_PLACE = ("unmetered_amount", "decisions", "certain_decisions", "requests_judged", "requests_agreeing")
"""Columns that are summed for one quota type on one broker."""
_PLACES = f"""
select broker_id, quota_type, max(last_ms) as newest_ms, bool_or(is_log) as is_log,
       {", ".join(f"sum({name})::bigint as {name}" for name in OF_PLACE)}
from refreshed group by broker_id, quota_type order by broker_id, quota_type
"""  # noqa: S608 - names of ours


@dataclass(frozen=True, slots=True, order=True)
class BucketKey:
    """A bucket on one broker; `tags` are a callback's as JSON, else empty."""

    broker_id: int
    quota_type: str
    user: str
    client_id: str
    tags: str = ""


@dataclass(slots=True)
class Counts:
    """Sums, in the unit of the quota type and in ms."""

    amount: int = 0
    requests: int = 0
    throttled_requests: int = 0
    throttle_ms: int = 0
    held_ms: int = 0
    """Time throttled."""

    def add(self, more: Counts, times: int = 1) -> None:
        """Add other counts, or subtract them if `times` is -1."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + times * getattr(more, name))


@dataclass(frozen=True, slots=True)
class SeenBucket:
    """One bucket in the new decisions."""

    key: BucketKey
    limit_per_s: float | None
    level: int | None
    rule: str | None
    last_ms: int
    held_until_ms: int
    rate_per_s: float | None
    """Highest rate in the last minute of the broker."""
    quota_used_percent: float | None
    """Highest percent in that minute."""
    longest_throttle_ms: int
    """Longest throttle of one request in that minute; from JMX the broker's mean."""
    use: float
    """0 to 1; the buckets with the most use are chosen."""
    counts: Counts


@dataclass(frozen=True, slots=True)
class SeenPlace:
    """One quota type on one broker in the new decisions."""

    newest_ms: int
    is_log: bool
    unmetered_amount: int
    decisions: int
    certain_decisions: int
    requests_judged: int
    requests_agreeing: int


@dataclass(frozen=True, slots=True)
class Refresh:
    """The new decisions of one refresh."""

    buckets: tuple[SeenBucket, ...] = ()
    """The buckets with series, then those with the most use; the others are only in the sums of `types`."""
    types: Mapping[str, Counts] = field(default_factory=dict)
    bucket_counts: Mapping[str, int] = field(default_factory=dict)
    """Number of buckets, by quota type."""
    places: Mapping[tuple[int, str], SeenPlace] = field(default_factory=dict)


def read_refresh(
    tables: Tables,
    cluster_id: str,
    *,
    from_ms: int,
    shown: Mapping[BucketKey, tuple[int, int]],
    logged: Collection[tuple[int, str]],
    most: int,
) -> Refresh:
    """The buckets and sums of the opened decisions.

    Args:
        tables: with all of `decisions` opened, or some of its files.
        cluster_id: the cluster.
        from_ms: older seconds are left out, epoch ms.
        shown: for each bucket with series the end of its last throttle and its last second, epoch ms, as of the
            previous refresh.
        logged: brokers and quota types with a request log, where rows from JMX do not count.
        most: maximum number of buckets.

    Raises:
        UserError: a file cannot be read.
    """
    keys = list(shown)
    columns = ("broker_id", "quota_type", "user", "client_id", "tags")
    of_shown = [
        *([getattr(key, name) for key in keys] for name in columns),
        *([shown[key][part] for key in keys] for part in (0, 1)),
    ]
    of_logged = [[place[part] for place in logged] for part in (0, 1)]
    tables.query(_REFRESHED, [*of_shown, *of_logged, cluster_id, from_ms])
    types = tables.query(_TYPES).rows
    return Refresh(
        buckets=tuple(
            SeenBucket(*(BucketKey(*row[:5]), *row[5:14], Counts(*row[14:])))
            for row in tables.query(_BUCKETS, [most]).rows
        ),
        types={quota_type: Counts(*counts) for quota_type, _, *counts in types},
        bucket_counts={quota_type: count for quota_type, count, *_ in types},
        places={
            (broker_id, quota_type): SeenPlace(*seen)
            for broker_id, quota_type, *seen in tables.query(_PLACES).rows
        },
    )
