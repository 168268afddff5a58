"""`kquota usage`: bytes, requests and rates of each client, with or without a quota."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kquota_spark.cli.filters import Conditions, add_period, client_conditions
from kquota_spark.cli.options import Since, footer_text, limited, more_text, with_source
from kquota_spark.cli.question import Asked, Flag, Found, Question, column, moment
from kquota_spark.cli.text.render import Row, Shown
from kquota_spark.formats.text.person_units import (
    amount_text,
    counted,
    iso_time,
    or_dash,
    person_name,
    person_span,
)
from kquota_spark.reports.clients.client_usage import SECOND, by_second_sql, last_day_ms, span_of, totals_sql
from kquota_spark.schema.tables import USAGE
from kquota_spark.store.reading import utc_text

COMMANDS = {
    "usage": (
        "answers",
        "what each client used in the last day of the table, or since --since",
        "kquota usage --since 7d --limit 10",
        "kquota usage --by-second --client-id etl --since 10m",
    ),
}

_REQUESTS = column("requests", rank=9)
_DELAY = column("delay_ms", about="by brokers")
_MEAN = column("mean_rate_per_s", rank=7, about="over all of that time")
_PEAK = column("peak_rate_per_s", rank=6, about="highest second")


def _find(asked: Asked) -> Found:
    """Totals of clients, largest first; with --by-second every second, newest first."""
    if asked.flags:
        return _by_second(asked)
    until = asked.wanted.until
    start_ms = None if asked.wanted.since else last_day_ms(asked.tables, until and until.time_ms)
    if start_ms is None:
        return _totals(asked)
    wanted = replace(asked.wanted, since=Since(iso_time(start_ms), start_ms))
    note = "the last day of the table: --since 7d asks for more"
    if until is not None:
        note = "the last day before --until: --since asks for more"
    return _totals(asked._replace(wanted=wanted), f"\n{note}")


def _by_second(asked: Asked) -> Found:
    where = client_conditions(asked.wanted, SECOND)
    sql = by_second_sql(asked.tables, where.parts, is_throttled=asked.wanted.is_throttled)
    found, has_more = limited(asked.tables, sql, where.values, asked.limit)
    rows = found.dicts()
    rate = column("rate_per_s", rank=5)
    shown = (moment(rows, "second", "time"), *_WHO, _REQUESTS, rate, _DELAY)
    footer = footer_text(rows, "second", "second", has_more=has_more) + _share_note(rows)
    return Found(found.columns, rows, with_source(rows, shown), footer, "usage --by-second")


def _totals(asked: Asked, note: str = "") -> Found:
    where, period = client_conditions(asked.wanted, SECOND), Conditions()
    add_period(period, asked.wanted, SECOND)
    from_ms, to_ms = span_of(asked.tables, period.sql, period.values)
    sql = totals_sql(asked.tables, where.parts, is_throttled=asked.wanted.is_throttled)
    found, has_more = limited(asked.tables, sql, [max(to_ms - from_ms, 1), *where.values], asked.limit)
    rows = found.dicts()
    shown = (*_WHO, Shown("amount", _amount), _REQUESTS, _MEAN, _PEAK, _DELAY)
    during = f"{person_span(to_ms - from_ms)} from {utc_text(from_ms)}{note}"
    count = f"{counted(len(rows), 'client')}, most bytes first{more_text(has_more)}"
    footer = f"{count}\n{during}{_share_note(rows)}"
    return Found(found.columns, rows, with_source(rows, shown), footer, wanted=asked.wanted)


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
