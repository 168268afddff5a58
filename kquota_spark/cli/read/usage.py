"""`kquota usage`: bytes, requests and rates of each client, with or without a quota."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kquota_spark.cli.filters import Conditions, Filter, add_period, client_conditions
from kquota_spark.cli.options import (
    Since,
    counted,
    footer_text,
    limited,
    more_text,
    with_source,
)
from kquota_spark.cli.question import Asked, Flag, Found, Question, column, moment
from kquota_spark.cli.text.render import Row, Shown
from kquota_spark.formats.text.person_units import (
    amount_text,
    iso_time,
    or_dash,
    person_name,
    person_span,
)
from kquota_spark.reports.scope.broker_buckets import amount_per_rate
from kquota_spark.schema.figures import figures_sql
from kquota_spark.schema.tables import USAGE
from kquota_spark.store.reading import Tables, utc_text

COMMANDS = {
    "usage": (
        "answers",
        "what each client used in the last day of the table, or since --since",
        "kquota usage --since 7d --limit 10",
        "kquota usage --by-second --client-id etl --since 10m",
    ),
}

_CLIENT = 'cluster_id, broker_id, quota_type, "user", client_id'
_DAY_MS = 86_400_000
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
_DELAY = column("delay_ms", about="by brokers")


def _find(asked: Asked) -> Found:
    """Totals of clients, largest first; with --by-second every second, newest first."""
    if asked.flags:
        return _by_second(asked)
    last_day = _last_day(asked.tables, asked.wanted.until) if asked.wanted.since is None else None
    if last_day is None:
        return _totals(asked)
    wanted = replace(asked.wanted, since=last_day)
    note = "the last day of the table: --since 7d asks for more"
    if asked.wanted.until is not None:
        note = "the last day before --until: --since asks for more"
    return _totals(asked._replace(wanted=wanted), f"\n{note}")


def _last_day(tables: Tables, until: Since | None) -> Since | None:
    """The beginning of the last day of the table or before --until; None if the table has no older rows."""
    newest_ms = tables.newest_ms("usage")
    if newest_ms is None:
        return None
    end_ms = newest_ms // 1_000 * 1_000 + 1_000
    start_ms = (end_ms if until is None else min(end_ms, until.time_ms)) - _DAY_MS
    is_longer = _has(tables, f"second < make_timestamptz({start_ms * 1_000})")
    return Since(iso_time(start_ms), start_ms) if is_longer else None


def _by_second(asked: Asked) -> Found:
    seconds, values = _seconds(asked.tables, asked.wanted)
    throttled = " where delay_ms > 0 " if asked.wanted.is_throttled else " "
    sql = f"select * from ({seconds}){throttled}order by second desc, {_CLIENT}"  # noqa: S608 - names of ours
    found, has_more = limited(asked.tables, sql, values, asked.limit)
    rows = found.dicts()
    shown = (
        moment(rows, "second", "time"),
        *_WHO,
        column("requests", rank=9),
        column("rate_per_s", rank=5),
        _DELAY,
    )
    footer = footer_text(rows, "second", "second", has_more=has_more) + _share_note(rows)
    return Found(found.columns, rows, with_source(rows, shown), footer, "usage --by-second")


def _totals(asked: Asked, note: str = "") -> Found:
    seconds, values = _seconds(asked.tables, asked.wanted)
    throttled = " having sum(delay_ms) > 0 " if asked.wanted.is_throttled else " "
    from_ms, to_ms = _span(asked.tables, asked.wanted)
    sql = f"{_TOTALS}from ({seconds}) group by {_CLIENT}{throttled}order by amount desc nulls last, {_CLIENT}"
    found, has_more = limited(asked.tables, sql, [max(to_ms - from_ms, 1), *values], asked.limit)
    rows = found.dicts()
    shown = (
        *_WHO,
        Shown("amount", _amount),
        column("requests", rank=9),
        column("mean_rate_per_s", rank=7, about="over all of that time"),
        column("peak_rate_per_s", rank=6, about="highest second"),
        _DELAY,
    )
    footer = (
        f"{counted(len(rows), 'client')}, most bytes first{more_text(has_more)}\n{person_span(to_ms - from_ms)} from "
        f"{utc_text(from_ms)}{note}{_share_note(rows)}"
    )
    return Found(found.columns, rows, with_source(rows, shown), footer, wanted=asked.wanted)


def _seconds(tables: Tables, wanted: Filter) -> tuple[str, list[object]]:
    where = client_conditions(wanted)
    add_period(where, wanted, "usage.second")
    if _has(tables, "source = 'jmx'"):
        where.add(_ONE_SOURCE)
    if _has(tables, "tile > 0"):
        return f"{_TILED}{where.sql}group by all", where.values
    return f"{_ROWS}{where.sql}", where.values


def _has(tables: Tables, condition: str) -> bool:
    """Whether there is such a row; statistics of the files mostly answer this."""
    return bool(tables.query(f"select 1 from usage where {condition} limit 1").rows)  # noqa: S608 - text of ours


def _span(tables: Tables, wanted: Filter) -> tuple[int, int]:
    """Start and end of what the table contains of the period, epoch ms. Means of all rows are over this time."""
    where = Conditions()
    add_period(where, wanted, "usage.second")
    sql = f"select epoch_ms(min(second)), epoch_ms(max(second)) from usage{where.sql}"  # noqa: S608 - names of ours
    first_ms, last_ms = tables.query(sql, where.values).rows[0]
    return (0, 0) if first_ms is None else (first_ms, last_ms + 1_000)


def _named(row: Row, column: str) -> str:
    """A name; an empty one from JMX means a bucket without that tag."""
    return person_name(row[column] or (None if row["source"] == "jmx" else ""))


def _amount(row: Row) -> str:
    least = "≥ " if row["unsized_requests"] else ""
    return or_dash(row["amount"], lambda amount: least + amount_text(row["quota_type"], amount))


def _share_note(rows: Sequence[Row]) -> str:
    count = sum(row["unsized_requests"] or 0 for row in rows)
    return f"\n≥: without {count:,} requests, whose size is not in the log" if count else ""


_WHO = (
    Shown("user", lambda row: _named(row, "user"), is_text=True, keep=12),
    Shown("client id", lambda row: _named(row, "client_id"), is_text=True, keep=12),
    column("quota_type"),
    column("broker_id"),
)
QUESTION = Question(
    command="usage", table=USAGE, find=_find, flags=(Flag("--by-second", "every second instead of totals"),)
)
add_commands = QUESTION.add_to
