"""The windows of demand of each bucket, counted in SQL: what was served, and what its connections would have sent.

A window has ten seconds. It is throttled if a throttle began or still ran in it. The pace of a throttled window is the
sum over its connections: their bytes, divided by the seconds in which they were not muted. There is none if one of them
had less than two such seconds.

In the first window of a throttle nothing had to wait yet, so its pace is the demand. For a client that does not catch
up it is the demand in the others too. Muted seconds and bytes of connections are in the points of `usage`, and only
the points of throttled windows are read.

Each date (UTC) is counted by itself, so that the windows of a closed date can be kept: see `kept_days`. A throttle does
not reach over midnight, and the first window of a date is never the first one of a throttle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.model.rightsize.demand import BIN_GROWTH, WINDOW_MS, interval_of, is_natural
from kquota_spark.model.rightsize.target import DayWindows
from kquota_spark.rightsize.buckets import BUCKET, SET_VARIABLE, Buckets, Place, choose, conditions_on
from kquota_spark.schema.harm import HAS_VERDICT, IS_THROTTLED, LONGEST_THROTTLE_MS, mute_end_ms
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.dated_files import DAY_MS, day_ms
from kquota_spark.store.reading import Tables

if TYPE_CHECKING:
    import pyarrow as pa

_WINDOWS_OF_DAY = DAY_MS // WINDOW_MS
_LEAST_FREE_MS = 2_000
_ROWS_AT_ONCE = 10_000
_MOST_NAMES = 20
"""Maximum number of names in a decision: a list with so many may lack others."""
_KEY = f"broker_id, {BUCKET}"
_DURING = f"""cluster_id = getvariable('rightsize_cluster') and {FROM_LOG} and quota_type in ('produce', 'fetch')
  and {{table}}.second >= make_timestamptz(getvariable('rightsize_from_ms')::bigint * 1000)
  and {{table}}.second < make_timestamptz(getvariable('rightsize_to_ms')::bigint * 1000)"""
# A quota that was removed leaves a limit of null, which counts. Rows of late requests alone have no limit of their own.
_QUOTA = f"""arg_max(struct_pack(limit_per_s := limit_per_s, rule := rule), decisions.second)
         filter ({HAS_VERDICT})"""
_OF_DECISIONS = _DURING.format(table="decisions") + " and bucket_tags is null{is_wanted}"
# Few buckets are copied in one pass over each table, because a pass over weeks takes most of the time.
_ROWS = f"""
create or replace temp table rightsize_rows as
select cluster_id, source, {_KEY}, bucket_tags, second, rule, limit_per_s, requests, amount, throttle_ms,
       observed_throttle_ms, throttled_requests, observed_throttled_requests, observed_total_throttle_ms, users,
       client_ids
from decisions where {_OF_DECISIONS}
"""  # noqa: S608 - names of ours
_USED = f"""
create or replace temp table rightsize_used as
select cluster_id, source, broker_id, quota_type, "user", client_id, second, points from usage_points as usage
where {_DURING.format(table="usage")}{{is_client}}
  and (broker_id, quota_type, epoch_ms(usage.second) // {WINDOW_MS}) in (
  select (broker_id, quota_type, window_no) from rightsize_windows where is_throttled)
"""  # noqa: S608 - names of ours
_MUTE_END = mute_end_ms("epoch_ms(decisions.second)", LONGEST_THROTTLE_MS, "true")
_SERVED = f"""
create or replace temp table rightsize_served as
select {_KEY}, epoch_ms(decisions.second) // {WINDOW_MS} as window_no, sum(amount)::bigint as amount,
       max(if({IS_THROTTLED}, {_MUTE_END}, null)) as muted_until_ms,
       min(decisions.second) as first, {_QUOTA} as quota
from {{decisions}} where {_OF_DECISIONS} group by all
"""  # noqa: S608 - names of ours
# The windows from one on that a throttle holds in, of the same date.
_HELD = f"""range({{first}}, least(({{end_ms}} - 1) // {WINDOW_MS},
  ({{first}} // {_WINDOWS_OF_DAY} + 1) * {_WINDOWS_OF_DAY} - 1) + 1)"""
_WINDOWS = f"""
create or replace temp table rightsize_windows as
with held as (
  select distinct {_KEY}, unnest({_HELD.format(first="window_no", end_ms="muted_until_ms")}) as window_no
  from rightsize_served where muted_until_ms is not null
), whole as (
  select {_KEY}, window_no, coalesce(amount, 0) as amount, held.window_no is not null as is_throttled
  from rightsize_served full join held using ({_KEY}, window_no)
)
select *, is_throttled and window_no % {_WINDOWS_OF_DAY} > 0 and not coalesce(
         lag(is_throttled) over before and lag(window_no) over before = window_no - 1, false) as is_first
from whole where (window_no + 1) * {WINDOW_MS} <= getvariable('rightsize_to_ms')::bigint
window before as (partition by {_KEY} order by window_no)
"""  # noqa: S608 - names of ours
# Also a bucket without traffic has a first second, and its newest limit counts.
_HEADS = f"""
create or replace temp table rightsize_heads as
select {_KEY}, max(window_no) as newest, max_by(quota, window_no) as quota, epoch_ms(min(first)) as first_ms
from rightsize_served group by all
"""  # noqa: S608 - names of ours
_NEWEST_HEADS = f"""
select {_KEY}, max_by(quota, newest) as quota, min(first_ms) from rightsize_heads group by all
"""  # noqa: S608 - names of ours
_HAS_ROWS = f"""
select exists(from decisions where {_OF_DECISIONS} and second <= make_timestamptz(?::bigint * 1000))
"""
_FIRST_SECONDS = f"""
select {_KEY}, {_QUOTA}, epoch_ms(min(decisions.second))
from {{decisions}} where {_OF_DECISIONS} group by all having sum(amount) > 0 or bool_or({IS_THROTTLED}) order by all
"""  # noqa: S608 - names of ours
_NEWEST_QUOTAS = f"select {_KEY}, {_QUOTA} from decisions where {_OF_DECISIONS} group by all"  # noqa: S608 - of ours
_DAY = f"epoch_ms({{}}.second) // {DAY_MS}"
# The clients inside a bucket on a date: by the lists of its decisions, which have at most 20 names, and by its tags. A
# client has the tags of four buckets; the join of all buckets with all clients would be quadratic.
_INSIDE = f"""
create or replace temp table rightsize_inside as
with lists as (
  select distinct {BUCKET}, {_DAY.format("decisions")} as day, coalesce(users, []) as users,
         coalesce(client_ids, []) as client_ids
  from {{decisions}} where {_OF_DECISIONS} and ({_KEY}) in (
    select ({_KEY}) from rightsize_served where muted_until_ms is not null)
), clients as (
  select distinct quota_type, "user", client_id, {_DAY.format("usage")} as day
  from {{usage}} where {_DURING.format(table="usage")}{{is_client}}
), tagged as (
  select *, if(has_user, "user", '') as bucket_user, if(has_client_id, client_id, '') as bucket_client_id
  from clients, (values (true, true), (true, false), (false, true), (false, false)) as tags (has_user, has_client_id)
)
select distinct {BUCKET}, "user", client_id, day from lists join tagged using ({BUCKET}, day)
where (len(users) in (0, {_MOST_NAMES}) or list_contains(users, "user"))
  and (len(client_ids) in (0, {_MOST_NAMES}) or list_contains(client_ids, client_id))
"""  # noqa: S608 - names of ours
_POINTS = f"""
create or replace temp table rightsize_points as
with found as (
  select {_KEY}, unnest(points) as point
  from {{points}} as usage join rightsize_inside using (quota_type, "user", client_id)
  join rightsize_windows using ({_KEY})
  where is_throttled and window_no = epoch_ms(usage.second) // {WINDOW_MS} and day = {_DAY.format("usage")}
    and {_DURING.format(table="usage")}{{is_client}}
)
select {_KEY}, point.connection_hash as connection, point.record_time_ms as at_ms,
       coalesce(point.amount, 0) as amount, coalesce(point.observed_throttle_ms, 0) as throttle_ms
from found
"""  # noqa: S608 - names of ours
_PACES = f"""
create or replace temp table rightsize_paces as
with sent as (
  select {_KEY}, connection, at_ms // {WINDOW_MS} as window_no, sum(amount) as amount from rightsize_points group by all
), spans as (
  select {_KEY}, connection, at_ms, at_ms + throttle_ms as end_ms,
         unnest({_HELD.format(first=f"(at_ms // {WINDOW_MS})", end_ms="(at_ms + throttle_ms)")}) as window_no
  from rightsize_points where throttle_ms > 0
), muted as (
  select {_KEY}, connection, window_no,
         sum(least(end_ms, (window_no + 1) * {WINDOW_MS}) - greatest(at_ms, window_no * {WINDOW_MS})) as muted_ms
  from spans group by all
), each as (
  select {_KEY}, window_no, coalesce(amount, 0) as amount, {WINDOW_MS} - coalesce(muted_ms, 0) as free_ms
  from sent full join muted using ({_KEY}, connection, window_no)
)
select {_KEY}, window_no,
       if(min(free_ms) < {_LEAST_FREE_MS}, null, sum(amount * 1000.0 / free_ms)) as pace_per_s
from each group by all
"""  # noqa: S608 - names of ours
_RATIOS = f"""
create or replace temp table rightsize_ratios as
select {_KEY}, first.window_no, second.pace_per_s / first.pace_per_s as ratio
from rightsize_windows join rightsize_paces as first using ({_KEY}, window_no)
join rightsize_paces as second using ({_KEY})
where is_first and second.window_no = rightsize_windows.window_no + 1 and first.pace_per_s > 0
  and second.pace_per_s is not null and second.window_no % {_WINDOWS_OF_DAY} > 0
"""  # noqa: S608 - names of ours
_BIN = f"greatest(0, floor(ln(greatest({{}}, 1)) / ln({BIN_GROWTH}) + 1e-12))::int"
_LOW, _PACE = _BIN.format(f"amount * 1000.0 / {WINDOW_MS}"), _BIN.format("pace_per_s")
_CELLS = f"""
create or replace temp table rightsize_cells as
select {_KEY}, (getvariable('rightsize_to_ms')::bigint - 1 - window_no * {WINDOW_MS}) // {DAY_MS} as age,
       {_LOW} as low, if(pace_per_s is null, null, {_PACE}) as pace, is_throttled, is_first, count(*) as windows,
       list(ratio order by window_no) filter (ratio is not null) as ratios
from rightsize_windows left join rightsize_paces using ({_KEY}, window_no)
left join rightsize_ratios using ({_KEY}, window_no)
where amount > 0 or is_throttled
group by all
"""  # noqa: S608 - names of ours
_COUNTED = f"""
select {_KEY}, age, low, pace, is_throttled, is_first, windows from rightsize_cells order by all
"""  # noqa: S608 - names of ours
_MEDIANS = f"""
select {_KEY}, median(ratio) from (select {_KEY}, unnest(ratios) as ratio from rightsize_cells) group by all
"""  # noqa: S608 - names of ours
_HAS_PACES = "select exists(from rightsize_windows where is_throttled) and exists(from usage)"
_NO_PACES = f"""
create or replace temp table rightsize_paces as
select {_KEY}, window_no, null::double as pace_per_s from rightsize_windows where false
"""  # noqa: S608 - names of ours
_OF_KEPT = "from demand_days where cluster_id = getvariable('rightsize_cluster'){is_wanted}"
_KEPT_HEADS = f"""
insert into rightsize_heads
select distinct {_KEY}, (epoch_ms(event_date) // {DAY_MS} + 1) * {_WINDOWS_OF_DAY} - 1,
       struct_pack(limit_per_s := limit_per_s, rule := rule), epoch_ms(first_second) {_OF_KEPT}
"""
_KEPT_CELLS = f"""
insert into rightsize_cells
select {_KEY}, getvariable('rightsize_to_ms')::bigint // {DAY_MS} - 1 - epoch_ms(event_date) // {DAY_MS}, low_bin,
       pace_bin, is_throttled, is_first, windows, pace_ratios {_OF_KEPT} and windows > 0
"""
_ROWS_TO_KEEP = f"""
select getvariable('rightsize_cluster') as cluster_id, ?::date as event_date, {_KEY}, quota.rule, quota.limit_per_s,
       make_timestamptz(first_ms * 1000) as first_second, low as low_bin, pace as pace_bin, is_throttled, is_first,
       coalesce(windows, 0) as windows, ratios as pace_ratios
from rightsize_heads left join rightsize_cells using ({_KEY})
order by quota_type, bucket_user, bucket_client_id, broker_id, low, pace, is_throttled, is_first
"""  # noqa: S608 - names of ours


class BucketWindows(NamedTuple):
    """The windows of a bucket of one broker."""

    place: Place
    limit_per_s: float | None
    """The newest limit; None is none."""
    rule: str | None
    first_ms: int
    """Its first second in the period, epoch ms."""
    windows: Sequence[DayWindows]


class Asked(NamedTuple):
    """Which history to read. Times are epoch ms."""

    cluster_id: str
    from_ms: int
    to_ms: int
    """The end of the history."""
    buckets: Buckets = None


def bucket_windows(tables: Tables, asked: Asked, *, has_kept: bool = False) -> Iterator[BucketWindows]:
    """The windows of each bucket that a quota of bytes counts, also without a limit.

    Args:
        tables: with `decisions` and `usage` opened from the start of the history on.
        asked: the cluster, the history and the buckets.
        has_kept: `demand_days` is opened too, with dates that the other two tables lack; the history ends at midnight.

    Raises:
        UserError: the tables cannot be read.
    """
    _count(tables, asked)
    if has_kept:
        is_wanted = conditions_on(asked.buckets).of_bucket
        for sql in (_KEPT_HEADS, _KEPT_CELLS):
            tables.query(sql.format(is_wanted=is_wanted))
    ratios = {row[:4]: row[4] for row in tables.query(_MEDIANS).rows}
    heads = {row[:4]: row[4:] for row in tables.query(_NEWEST_HEADS).rows}
    for key, rows in groupby(_counted(tables), key=itemgetter(0, 1, 2, 3)):
        quota, first_ms = heads[key]
        natural = is_natural(ratios.get(key))
        windows = [
            DayWindows(
                age, interval_of(low, pace, is_throttled=throttled, is_natural=natural or first), count
            )
            for _, _, _, _, age, low, pace, throttled, first, count in rows
        ]
        yield BucketWindows(Place(*key), *_quota(quota), first_ms, windows)


def _counted(tables: Tables) -> Iterator[tuple[Any, ...]]:
    """The rows of `_COUNTED`. All buckets have millions of them, so only a part is in memory as Python objects."""
    for batch in tables.arrow(_COUNTED).to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def has_rows_until(tables: Tables, asked: Asked, until_ms: int) -> bool:
    """Whether any bucket has a row from the start of the history until a time.

    Args:
        tables: with `decisions` opened from the start of the history on.
        asked: the cluster and the history.
        until_ms: the last time that counts, epoch ms.

    Raises:
        UserError: the table cannot be read.
    """
    _set_variables(tables, asked)
    return bool(tables.query(_HAS_ROWS.format(is_wanted=""), [until_ms]).rows[0][0])


def buckets_alone(tables: Tables, asked: Asked) -> list[BucketWindows]:
    """Each bucket as in `bucket_windows`, without its windows: they take most of the time.

    Args:
        tables: with `decisions` and `usage` opened from the start of the history on.
        asked: the cluster, the history and the buckets.

    Raises:
        UserError: the tables cannot be read.
    """
    found = tables.query(_FIRST_SECONDS.format(**_parts(tables, asked))).rows
    return [BucketWindows(Place(*row[:4]), *_quota(row[4]), row[5], []) for row in found]


def newest_quotas(tables: Tables, asked: Asked) -> dict[Place, tuple[float | None, str | None]]:
    """The newest limit of each bucket with traffic in a period, and its rule; None is none.

    Args:
        tables: the tables; `decisions` is opened here.
        asked: the cluster and the period; all buckets are read.

    Raises:
        UserError: the table cannot be read.
    """
    tables.open("decisions", asked.from_ms)
    _set_variables(tables, asked)
    rows = tables.query(_NEWEST_QUOTAS.format(is_wanted="")).rows
    return {Place(*row[:4]): _quota(row[4]) for row in rows if row[4] is not None}


def day_rows(tables: Tables, cluster_id: str, day: str) -> pa.Table:
    """The rows of `demand_days` of one date, without its form and its digests.

    Args:
        tables: with `decisions` and `usage` opened for this date.
        cluster_id: the cluster.
        day: ISO date.

    Raises:
        UserError: the tables cannot be read.
    """
    _count(tables, Asked(cluster_id, day_ms(day), day_ms(day) + DAY_MS))
    return tables.arrow(_ROWS_TO_KEEP, [day])


def _count(tables: Tables, asked: Asked) -> None:
    """Count the windows of the opened tables, into `rightsize_heads` and `rightsize_cells`."""
    parts = _parts(tables, asked)
    tables.query(_SERVED.format(**parts))
    tables.query(_WINDOWS)
    if tables.query(_HAS_PACES).rows[0][0]:
        tables.open_points()
        if asked.buckets is not None:
            tables.query(_USED.format(**parts))
        for sql in (_INSIDE, _POINTS, _PACES):
            tables.query(sql.format(**parts))
    else:
        tables.query(_NO_PACES)
    for sql in (_RATIOS, _HEADS, _CELLS):
        tables.query(sql)


def _quota(found: Mapping[str, Any] | None) -> tuple[float | None, str | None]:
    """Limit and rule; a bucket of late requests alone has none. A limit of 0, as ZooKeeper accepts it, is none."""
    return (None, None) if found is None else (found["limit_per_s"] or None, found["rule"])


def _set_variables(tables: Tables, asked: Asked) -> None:
    values = {"cluster": asked.cluster_id, "from_ms": asked.from_ms, "to_ms": asked.to_ms}
    for name, value in values.items():
        tables.query(SET_VARIABLE.format(name=name), [value])


def _parts(tables: Tables, asked: Asked) -> dict[str, str]:
    """The tables that queries read, and conditions on their rows beside the period; few buckets are copied first."""
    _set_variables(tables, asked)
    if asked.buckets is None:
        return {
            "is_wanted": "", "is_client": "", "decisions": "decisions", "usage": "usage", "points": "usage_points",
        }  # fmt: skip
    choose(tables, asked.buckets)
    conditions = conditions_on(asked.buckets)
    tables.query(_ROWS.format(is_wanted=conditions.of_bucket))
    return {
        "is_wanted": "",
        "is_client": conditions.of_client,
        "decisions": "rightsize_rows as decisions",
        "usage": "rightsize_used as usage",
        "points": "rightsize_used",
    }
