"""`kquota connections`: the connections of each client, most total delay first.

A client with several connections waits on all of them at once. Its total delay can then exceed the time on the clock.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from kquota_spark.cli.filters import add_period, client_conditions
from kquota_spark.cli.options import TIME_FORMS, PeriodOptions, Since, counted, limited, spans_days
from kquota_spark.cli.question import Asked, Found, Question, column
from kquota_spark.cli.text.render import Row, Shown
from kquota_spark.formats.text.person_units import (
    clock_time,
    person_ms,
    person_span,
)
from kquota_spark.schema.tables import LEFT_OUT, REQUESTS
from kquota_spark.store.reading import utc_text

COMMANDS = {
    "connections": (
        "answers",
        "the connections of each client, most total delay first",
        "kquota connections --client-id legacy --since 1h",
    ),
}

_TIME = "make_timestamptz(record_time_ms * 1000)"
# A line that was delivered twice is one request. Both rows have these values in common.
_ONCE = """
select cluster_id, broker_id, "user", client_id, connection, record_time_ms,
       any_value(charged_bytes) as charged_bytes, any_value(observed_throttle_ms) as throttle_ms
from requests{where}
group by cluster_id, broker_id, "user", client_id, connection, record_time_ms, correlation_id, api_key, log_time_ms
"""
_SQL = f"""
with once as ({_ONCE}),
     found as (
  select cluster_id, "user", client_id, connection, broker_id, count(*) as requests,
         sum(charged_bytes)::bigint as charged_bytes,
         count(*) filter (throttle_ms > 0) as throttled_requests,
         coalesce(sum(throttle_ms), 0)::bigint as delay_ms,
         min(record_time_ms) as first_ms, max(record_time_ms) as last_ms
  from once group by all
)
select *, count(*) over () as of_all, sum(delay_ms) over ()::bigint as delay_of_all_ms,
       min(first_ms) over () as from_ms, max(last_ms) over () as to_ms
from found order by delay_ms desc, requests desc, cluster_id, "user", client_id, broker_id, connection
"""  # noqa: S608 - names of ours; {where} has ? for each value
_DAY_MS = 86_400_000
_OF_ALL = 4
"""Columns at the end of each row that are about all rows, whatever the limit."""


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", metavar="NAME", help="only this user")
    parser.add_argument("--client-id", "--client", metavar="ID", help="only this client id")


def _find(asked: Asked) -> Found:
    """One row per user, client id and connection. Requests of followers and forwarded copies are not of clients."""
    wanted = asked.wanted
    if wanted.since is None and (newest_ms := asked.tables.newest_ms(REQUESTS.name)) is not None:
        end_ms = newest_ms + 1 if wanted.until is None else wanted.until.time_ms
        wanted = replace(wanted, since=Since("", end_ms - _DAY_MS))
        asked.tables.open(REQUESTS.name, end_ms - _DAY_MS)
    where = client_conditions(wanted)
    where.add("kind = 'request' and not is_out_of_time")
    where.add("not coalesce(is_from_follower, false) and not coalesce(is_forwarded, false)")
    add_period(where, wanted, _TIME)
    found, has_more = limited(asked.tables, _SQL.format(where=where.sql), where.values, asked.limit)
    rows = found.dicts()
    with_day = bool(rows) and spans_days([{"ms": rows[0]["from_ms"]}, {"ms": rows[0]["to_ms"]}], "ms")
    times = (
        Shown("first seen", lambda row: clock_time(row["first_ms"], with_day=with_day), rank=6),
        Shown("last seen", lambda row: clock_time(row["last_ms"], with_day=with_day), rank=5),
    )
    footer = _footer(rows, has_more=has_more) + _left_out(asked) if rows else ""
    return Found(
        found.columns[:-_OF_ALL],
        rows,
        (*_SHOWN, *times),
        footer,
        when_empty=""
        if wanted.until is None
        else f"no connections with requests before {utc_text(wanted.until.time_ms)}",
        times=frozenset(("first_ms", "last_ms")),
    )


def _footer(rows: Sequence[Row], *, has_more: bool) -> str:
    of_all = rows[0]
    more = f", {len(rows):,} shown: --limit 0 shows all" if has_more else ""
    span_ms, delay_ms = of_all["to_ms"] - of_all["from_ms"], of_all["delay_of_all_ms"]
    during = f"{person_span(span_ms)} from {utc_text(of_all['from_ms'])}"
    why = "\nmore delay than time: several connections wait at once" if delay_ms > span_ms else ""
    return (
        f"{counted(of_all['of_all'], 'connection')}{more}; total delay {person_ms(delay_ms)} in {during}{why}"
    )


def _left_out(asked: Asked) -> str:
    """A note if `tables.requests` keeps no row of some requests: they are in no sum above."""
    sql = f"select coalesce(sum(lines), 0)::bigint from requests where kind = '{LEFT_OUT}'"  # noqa: S608 - ours
    count = asked.tables.query(sql).rows[0][0]
    return f"\nwithout requests that have no row of their own (tables.requests): {count:,}" if count else ""


def _client_address(row: Row) -> str:
    """The client's address and port in Kafka's connection id, `local-remote-processor-index`; else the whole id."""
    parts = (row["connection"] or "").split("-")
    return parts[1] if len(parts) in (3, 4) else row["connection"] or "-"


_SHOWN = (
    column("user"),
    column("client_id"),
    Shown("client address", _client_address, is_text=True, keep=15),
    column("broker_id"),
    column("requests", rank=4),
    column("charged_bytes", rank=3),
    column("throttled_requests"),
    column("delay_ms", about="by brokers"),
)
QUESTION = Question(
    command="connections",
    table=REQUESTS,
    find=_find,
    options=_options,
    period=PeriodOptions(since=f"from then on: {TIME_FORMS} (default the last day of the table)"),
    has_agreement=False,
)
add_commands = QUESTION.add_to
