"""What clients used, from the table `usage`: totals of each client, or every second."""

from __future__ import annotations

from collections.abc import Sequence

from kquota_spark.reports.scope.broker_buckets import amount_per_rate
from kquota_spark.schema.figures import figures_sql
from kquota_spark.schema.tables import USAGE
from kquota_spark.store.reading import Tables

SECOND = "usage.second"
"""The time of a row, a timestamp."""
_DAY_MS = 86_400_000
_CLIENT = 'cluster_id, broker_id, quota_type, "user", client_id'
_UNIT = amount_per_rate()
# The rate of a second from the log is its amount. A JMX sample has the broker's rate, in the unit of the limit.
_RATE = f"if(amount is null, rate_per_s, rate_per_s / {_UNIT})"
_AMOUNTS = f"amount, requests, duplicates, {_RATE} as rate_per_s, {figures_sql(USAGE)}, unsized_requests"
# A second with more than 10,000 requests is split over several rows (tiles), which are summed before anything else.
# Summing tiles and excluding JMX beside the log take half of the time or more, so both are done only if needed.
_ROWS = f"select {_CLIENT}, epoch_ms(usage.second) as second, {_AMOUNTS}, source from usage"  # noqa: S608 - names of ours
_TILED = f"""
select {_CLIENT}, epoch_ms(usage.second) as second, sum(amount)::bigint as amount,
       sum(requests)::bigint as requests, sum(duplicates)::bigint as duplicates,
       sum({_RATE}) as rate_per_s, sum(observed_throttle_ms)::bigint as delay_ms,
       any_value(source) as source, sum(unsized_requests)::bigint as unsized_requests
from usage
"""  # noqa: S608 - names of ours
_ONE_SOURCE = """(source = 'log' or (cluster_id, broker_id, quota_type) not in (
  select distinct cluster_id, broker_id, quota_type from usage where source = 'log'
))"""
"""Keeps rows from JMX only if no log has the cluster, broker and quota type: nothing is counted twice."""
_TOTALS = f"""
select {_CLIENT}, sum(amount)::bigint as amount, sum(requests)::bigint as requests,
       sum(duplicates)::bigint as duplicates,
       coalesce(sum(amount) * 1000.0 / {_UNIT} / ?, avg(rate_per_s)) as mean_rate_per_s,
       max(rate_per_s) as peak_rate_per_s, sum(delay_ms)::bigint as delay_ms,
       count(*) as active_seconds, min(second) as first_second, max(second) as last_second,
       any_value(source) as source, sum(unsized_requests)::bigint as unsized_requests
"""


def by_second_sql(tables: Tables, conditions: Sequence[str], *, is_throttled: bool) -> str:
    """The query for one row per client and second, newest first.

    Args:
        tables: with `usage` opened.
        conditions: on rows of `usage`, with a `?` for each value.
        is_throttled: only seconds in which a request was throttled.
    """
    throttled = " where delay_ms > 0 " if is_throttled else " "
    return f"select * from ({_seconds(tables, conditions)}){throttled}order by second desc, {_CLIENT}"  # noqa: S608 - ours


def totals_sql(tables: Tables, conditions: Sequence[str], *, is_throttled: bool) -> str:
    """The query for one row per client, largest amount first; its first `?` is the time for the means, ms.

    Args:
        tables: with `usage` opened.
        conditions: on rows of `usage`, with a `?` for each value.
        is_throttled: only clients with a throttled request.
    """
    throttled = " having sum(delay_ms) > 0 " if is_throttled else " "
    seconds = _seconds(tables, conditions)
    return (
        f"{_TOTALS}from ({seconds}) group by {_CLIENT}{throttled}order by amount desc nulls last, {_CLIENT}"
    )


def _seconds(tables: Tables, conditions: Sequence[str]) -> str:
    parts = [*conditions, *([_ONE_SOURCE] if _has(tables, "source = 'jmx'") else [])]
    where = f" where {' and '.join(parts)} " if parts else " "
    return f"{_TILED}{where}group by all" if _has(tables, "tile > 0") else f"{_ROWS}{where}"


def last_day_ms(tables: Tables, until_ms: int | None) -> int | None:
    """The start of the last day of the table or before `until_ms` (epoch ms); None if the table has no older rows."""
    newest_ms = tables.newest_ms("usage")
    if newest_ms is None:
        return None
    end_ms = newest_ms // 1_000 * 1_000 + 1_000
    start_ms = (end_ms if until_ms is None else min(end_ms, until_ms)) - _DAY_MS
    return start_ms if _has(tables, f"second < make_timestamptz({start_ms * 1_000})") else None


def _has(tables: Tables, condition: str) -> bool:
    """Whether there is such a row; statistics of the files mostly answer this."""
    return bool(tables.query(f"select 1 from usage where {condition} limit 1").rows)  # noqa: S608 - text of ours


def span_of(tables: Tables, where: str, values: Sequence[object]) -> tuple[int, int]:
    """Start and end (epoch ms) of what the table contains of a period. Means of all rows are over this time.

    Args:
        tables: with `usage` opened.
        where: the where clause with the period.
        values: for its `?`.
    """
    sql = f"select epoch_ms(min(second)), epoch_ms(max(second)) from usage{where}"  # noqa: S608 - names of ours
    first_ms, last_ms = tables.query(sql, values).rows[0]
    return (0, 0) if first_ms is None else (first_ms, last_ms + 1_000)
