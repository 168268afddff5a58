"""What quota buckets do now: the last minute of `decisions` with one row per bucket, and the details of one bucket.

"Now" is the newest second of the table: tables of yesterday show their last minute. A bucket has a row only for seconds
with requests. Without one for ten seconds its rate is 0, because the broker's samples have expired by then.

A limit applies on each broker, so a bucket has figures per broker. One row per bucket shows those of its worst broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from kquota_spark.model.measure.muted_seconds import muted, seconds_of
from kquota_spark.reports.scope.broker_buckets import BucketKey, amount_per_rate
from kquota_spark.schema import harm
from kquota_spark.store.reading import Tables

WINDOW_S = 60
"""Period that is read (s)."""
RECENT_S = 10
"""Period of means and sums (s)."""
NEAR_PERCENT, LIMIT_PERCENT = 80.0, 100.0
"""Percent of the limit from which on a client is near it, and above which a broker throttles (KIP-13)."""
_MOST_NAMES = 20
_BUCKET = "cluster_id, quota_type, bucket_user, bucket_client_id, tags"
_KEY = f"{_BUCKET}, broker_id"
COLUMNS = (
    "cluster_id", "broker_id", "brokers", "quota_type", "bucket_user", "bucket_client_id", "bucket_tags", "level",
    "rule", "limit_per_s", "rate_per_s", "mean_rate_per_s", "quota_used_percent", "peak_quota_used_percent",
    "delay_ms", "throttled_requests", "time_throttled_s", "requests", "clients", "last_second", "is_certain",
    "source", "users", "client_ids", "used_percents",
)  # fmt: skip
"""Columns of a row, in the order of JSON and CSV; `used_percents` are the last 60 seconds, null without requests.

`broker_id` is the worst one, and `brokers` the number of brokers. `delay_ms` is the total delay in the last ten
seconds, and `time_throttled_s` the time throttled in them.
"""

# Rows without requests only count late ones, which came after later seconds of their bucket had been judged.
_RECENT = f"""
recent as materialized (
  select *, coalesce(bucket_tags, '') as tags,
         (newest_ms - epoch_ms(second)) // 1000 as age_s,
         {harm.IS_THROTTLED} as is_throttled, {harm.LONGEST_THROTTLE_MS} as longest_ms
  from decisions, (select ?::bigint as newest_ms)
  where epoch_ms(second) > newest_ms - {WINDOW_S * 1_000} and {harm.HAS_VERDICT}
)"""  # noqa: S608 - numbers of ours
_TOP = f"""
with {_RECENT}, chosen as (
  select distinct {_KEY} from recent {{where}}
), buckets as (
  select {_KEY}, any_value(bucket_tags) as bucket_tags,
         arg_min(struct_pack(
           rule := rule, level := level, limit_per_s := limit_per_s, rate_per_s := rate_per_s,
           used := quota_used_percent, is_certain := is_certain, source := source, second := epoch_ms(second),
           is_now := age_s < {RECENT_S} or source = 'jmx'), age_s) as last,
         coalesce(sum(amount) filter (age_s < {RECENT_S}) / {RECENT_S}.0 / {amount_per_rate()},
                  avg(rate_per_s) filter (source = 'jmx'), 0.0) as mean_rate_per_s,
         coalesce(sum({harm.DELAY_MS}) filter (age_s < {RECENT_S}),
                  max(observed_throttle_ms) filter (source = 'jmx'), 0)::bigint as delay_ms,
         coalesce(sum({harm.THROTTLED_REQUESTS}) filter (age_s < {RECENT_S}), 0)::bigint as throttled_requests,
         sum(requests) filter (age_s < {RECENT_S})::bigint as requests,
         max(quota_used_percent) as peak_quota_used_percent
  from recent semi join chosen using ({_KEY}) group by {_KEY}
), described as (
  select * exclude (last, requests), last.rule as rule, last.level as level, last.limit_per_s as limit_per_s,
         last.second as last_second, last.source as source, last.is_certain as is_certain,
         case when last.is_now then last.rate_per_s else 0.0 end as rate_per_s,
         case when last.limit_per_s is null then null when last.is_now then last.used else 0.0 end
           as quota_used_percent,
         case when last.source = 'log' then coalesce(requests, 0) end as requests
  from buckets
), worst as (
  select *, count(*) over (partition by {{one_row}}) as brokers,
         max(quota_used_percent) over (partition by {{one_row}}) as most_used
  from described qualify row_number() over (partition by {{one_row}} order by {{worst}}) = 1
), ranked as (
  select *, row_number() over (order by {{order}}) as place, count(*) over () as buckets,
         count(*) filter (most_used >= {NEAR_PERCENT}) over () as near,
         count(*) filter (most_used > {LIMIT_PERCENT}) over () as over_limit
  from worst order by place limit ?
), minutes as (
  select {_KEY}, list(struct_pack(age_s := age_s, used := coalesce(quota_used_percent, 0.0),
           is_throttled := is_throttled, longest_ms := longest_ms)) as seconds,
         list_sort(list_distinct(flatten(list(users)))) as users,
         list_sort(list_distinct(flatten(list(client_ids)))) as client_ids
  from recent semi join ranked using ({_KEY}) group by {_KEY}
)
select * from ranked join minutes using ({_KEY}) order by place
"""  # noqa: S608 - names and numbers of ours
_OF_BUCKET = """cluster_id = ? and broker_id = ? and quota_type = ? and bucket_user = ? and bucket_client_id = ?
  and coalesce(bucket_tags, '') = ?"""
_SECONDS = f"""
select epoch_ms(second) as second, rule, limit_per_s, rate_per_s, quota_used_percent, requests,
       throttle_ms, observed_throttle_ms, is_certain, source,
       {harm.DELAY_MS} as delay_ms, {harm.THROTTLED_REQUESTS} as delayed_requests, {harm.IS_THROTTLED} as is_throttled,
       {harm.LONGEST_THROTTLE_MS} as longest_ms
from decisions
where epoch_ms(second) > ? - {WINDOW_S * 1_000} and {harm.HAS_VERDICT} and {_OF_BUCKET}
order by decisions.second desc
"""  # noqa: S608 - names and numbers of ours
# `usage` has no buckets: a client is inside if the bucket contained its names in the same second.
_CLIENTS = f"""
with inside as (
  select second, users, client_ids from decisions where epoch_ms(second) > $1 - {WINDOW_S * 1_000} and
  cluster_id = $2 and broker_id = $3 and quota_type = $4 and bucket_user = $5 and bucket_client_id = $6
  and coalesce(bucket_tags, '') = $7 and coalesce(requests, 0) > 0
)
select "user", client_id, sum(amount)::bigint as amount, sum(requests)::bigint as requests,
       coalesce(sum(amount) filter (epoch_ms(usage.second) > $1 - {RECENT_S * 1_000}), 0) / {RECENT_S}.0
         / {amount_per_rate("$4")} as mean_rate_per_s,
       sum(observed_throttle_ms)::bigint as delay_ms, max(epoch_ms(usage.second)) as last_second
from usage join inside on usage.second = inside.second and list_contains(inside.users, "user")
  and list_contains(inside.client_ids, client_id)
where cluster_id = $2 and broker_id = $3 and quota_type = $4 and epoch_ms(usage.second) > $1 - {WINDOW_S * 1_000}
group by all order by amount desc, "user", client_id limit $8
"""  # noqa: S608 - names and numbers of ours

_EPISODES = f"""
select epoch_ms(start_time) as start_time, epoch_ms(end_time) as end_time, limit_per_s, peak_rate_per_s,
       peak_quota_used_percent, {harm.EPISODE_DELAY_MS} as delay_ms, {harm.EPISODE_REQUESTS} as delayed_requests
from violations where {_OF_BUCKET} order by violations.start_time desc limit ?
"""  # noqa: S608 - names of ours

_SHADOW = f"""
select {_BUCKET}, broker_id, sum(throttled_requests) > 0 as is_throttled from (
  select *, coalesce(bucket_tags, '') as tags from shadow_decisions
  where epoch_ms(second) > $1 - {WINDOW_S * 1_000} and epoch_ms(second) <= $1
    and (throttled_requests > 0) <> (enforced_throttled_requests > 0)
) group by all
"""  # noqa: S608 - names and numbers of ours


class SortBy(Enum):
    """The order of buckets; the value is its name for users."""

    USED = "used"
    RATE = "rate"
    DELAY = "delay"
    NAME = "name"
    BROKER = "broker"


_ORDER = {
    SortBy.USED: (("quota_used_percent", True), ("peak_quota_used_percent", True)),
    SortBy.RATE: (("rate_per_s", True), ("mean_rate_per_s", True)),
    SortBy.DELAY: (("delay_ms", True), ("throttled_requests", True)),
    SortBy.NAME: (("lower(concat_ws('/', bucket_user, bucket_client_id, tags))", False),),
    SortBy.BROKER: (("broker_id", False), ("quota_type", False)),
}
"""SQL expressions of each order, each with whether the largest comes first."""


class Where(NamedTuple):
    """A where clause of ours, empty for all rows, and the values for its `?`; one matching row includes a bucket."""

    sql: str
    values: Sequence[object]


@dataclass(frozen=True, slots=True)
class TopBuckets:
    """The first buckets of an order, and how many there are.

    Attributes:
        rows: dictionaries with the names of `COLUMNS`.
        total: number of matching rows.
        near: number of these at 80 % of their limit or more on some broker.
        over_limit: number of these above their limit.
    """

    rows: list[dict[str, Any]]
    total: int = 0
    near: int = 0
    over_limit: int = 0


def top_buckets(
    tables: Tables,
    newest_ms: int,
    where: Where,
    sort: SortBy = SortBy.USED,
    *,
    is_reversed: bool = False,
    is_per_broker: bool = False,
    limit: int | None,
) -> TopBuckets:
    """The buckets of the minute that ends with `newest_ms`.

    The worst broker of a bucket is the first in the order. If the order is by names or brokers, it is the broker where
    the largest part of the limit is used.

    Args:
        tables: with `decisions` opened for that minute.
        newest_ms: start of its last second, epoch ms.
        where: condition on columns of `decisions`.
        sort: what comes first, or with `is_reversed` last.
        is_reversed: whether to reverse the order.
        is_per_broker: one row per bucket and broker.
        limit: maximum rows; None for all.
    """
    is_of_figures = sort in (SortBy.USED, SortBy.RATE, SortBy.DELAY)
    sql = _TOP.format(
        where=where.sql,
        order=_order(sort, is_reversed=is_reversed),
        worst=_order(sort if is_of_figures else SortBy.USED),
        one_row=_KEY if is_per_broker else _BUCKET,
    )
    found = tables.query(sql, [newest_ms, *where.values, limit]).dicts()
    if not found:
        return TopBuckets([])
    first = found[0]
    return TopBuckets([_row(row) for row in found], first["buckets"], first["near"], first["over_limit"])


def with_shadow(tables: Tables, top: TopBuckets, newest_ms: int) -> TopBuckets:
    """The same buckets, those with another verdict under the shadow quotas with `shadow`: throttled or freed.

    Args:
        tables: with `shadow_decisions` opened for the minute.
        top: the buckets.
        newest_ms: start of the last second of the minute, epoch ms.
    """
    found: dict[tuple[Any, ...], set[bool]] = {}
    for *bucket, broker_id, is_throttled in tables.query(_SHADOW, [newest_ms]).rows:
        for broker in (broker_id, None):
            found.setdefault((*bucket, broker), set()).add(is_throttled)
    rows = []
    for row in top.rows:
        named = [row[name] for name in ("cluster_id", "quota_type", "bucket_user", "bucket_client_id")]
        broker = None if row["brokers"] > 1 else row["broker_id"]
        effects = found.get((*named, row["bucket_tags"] or "", broker), set())
        rows.append({**row, "shadow": "throttled" if True in effects else "freed" if effects else None})
    return replace(top, rows=rows)


def _order(sort: SortBy, *, is_reversed: bool = False) -> str:
    parts = [f"{what} {'desc' if down != is_reversed else 'asc'} nulls last" for what, down in _ORDER[sort]]
    return ", ".join([*parts, _KEY])


def _row(found: Mapping[str, Any]) -> dict[str, Any]:
    used_by_age = {second["age_s"]: second["used"] for second in found["seconds"]}
    names = {name: [one for one in found[name] or () if one is not None] for name in ("users", "client_ids")}
    is_log = found["source"] == "log"
    row = {
        **found,
        **{name: some[:_MOST_NAMES] for name, some in names.items()},
        "clients": max(map(len, names.values())),
        "time_throttled_s": time_throttled_s(found["seconds"], RECENT_S) if is_log else None,
        "used_percents": [used_by_age.get(age_s) for age_s in reversed(range(WINDOW_S))],
    }
    return {name: row[name] for name in COLUMNS}


def time_throttled_s(seconds: Iterable[Mapping[str, Any]], last_s: int) -> int:
    """Seconds in which a throttle began or still ran: the time throttled, as reports count it.

    Args:
        seconds: rows of one bucket on one broker, with `age_s`, `is_throttled` and `longest_ms`.
        last_s: only seconds younger than this count, s.
    """
    spans = [
        muted(-second["age_s"], second["longest_ms"] or 0) for second in seconds if second["is_throttled"]
    ]
    return seconds_of(spans, 1 - last_s, 1)


def bucket_seconds(tables: Tables, key: BucketKey, newest_ms: int) -> list[dict[str, Any]]:
    """The seconds of one bucket in the minute that ends with `newest_ms`, newest first."""
    return tables.query(_SECONDS, [newest_ms, *key]).dicts()


def bucket_clients(tables: Tables, key: BucketKey, newest_ms: int, limit: int) -> list[dict[str, Any]]:
    """The clients inside a bucket in the last minute, most used first; none if JMX is the bucket's only source.

    Args:
        tables: with `decisions` and `usage` opened for that minute.
        key: the bucket and its broker.
        newest_ms: start of the minute's last second, epoch ms.
        limit: maximum rows.
    """
    return tables.query(_CLIENTS, [newest_ms, *key, limit]).dicts()


def bucket_episodes(tables: Tables, key: BucketKey, limit: int) -> list[dict[str, Any]]:
    """The episodes of a bucket, newest first; none if the audit has not written the table `violations`."""
    return tables.query(_EPISODES, [*key, limit]).dicts() if tables.open_if_there("violations") else []


def bucket_first_ms(tables: Tables, key: BucketKey, from_ms: int) -> int | None:
    """The bucket's first second from a time on, epoch ms; None without one."""
    sql = f"select epoch_ms(min(second)) from decisions where epoch_ms(second) >= ? and {_OF_BUCKET}"  # noqa: S608
    first_ms: int | None = tables.query(sql, [from_ms, *key]).rows[0][0]
    return first_ms
