"""`kquota connections`: the connections of each client, most total delay first.

A client with several connections waits on all of them at once. Its total delay can then exceed the time on the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kquota_spark.cli.filters import client_conditions
from kquota_spark.cli.options import TIME_FORMS, PeriodOptions, Since, counted_text, limited, only, spans_days
from kquota_spark.cli.question import Asked, Found, Question, column, own_column
from kquota_spark.cli.text.render import Row, Shown
from kquota_spark.formats.text.person_units import clock_time, person_ms, person_span
from kquota_spark.reports.clients.connections import OF_ALL, TIME, connections_sql, requests_without_row
from kquota_spark.schema.tables import REQUESTS
from kquota_spark.store.reading import utc_text

COMMANDS = {
    "connections": (
        "answers",
        "the connections of each client, most total delay first",
        "kquota connections --client-id legacy --since 1h",
    ),
}

_DAY_MS = 86_400_000
_WITHOUT = "without requests that have no row of their own (tables.requests)"


def _find(asked: Asked) -> Found:
    """One row per user, client id and connection."""
    wanted = asked.wanted
    if wanted.since is None and (newest_ms := asked.tables.newest_ms(REQUESTS.name)) is not None:
        end_ms = newest_ms + 1 if wanted.until is None else wanted.until.time_ms
        wanted = replace(wanted, since=Since("", end_ms - _DAY_MS))
        asked.tables.open(REQUESTS.name, end_ms - _DAY_MS)
    where = client_conditions(wanted, TIME)
    found, has_more = limited(asked.tables, connections_sql(where.parts), where.values, asked.limit)
    rows = found.dicts()
    ends = [{"ms": rows[0][name]} for name in ("from_ms", "to_ms")] if rows else []
    with_day = spans_days(ends, "ms")
    first = own_column("first seen", lambda row: clock_time(row["first_ms"], with_day=with_day), rank=6)
    last = own_column("last seen", lambda row: clock_time(row["last_ms"], with_day=with_day), rank=5)
    before = "" if wanted.until is None else f" before {utc_text(wanted.until.time_ms)}"
    footer = _footer(rows, requests_without_row(asked.tables), has_more=has_more) if rows else ""
    return Found(
        found.columns[: -len(OF_ALL)],
        rows,
        (*_SHOWN, first, last),
        footer,
        when_empty=before and f"no connections with requests{before}",
        times=frozenset(("first_ms", "last_ms")),
    )


def _footer(rows: Sequence[Row], without: int, *, has_more: bool) -> str:
    of_all, shown = rows[0], len(rows) if has_more else None
    span_ms, delay_ms = of_all["to_ms"] - of_all["from_ms"], of_all["delay_of_all_ms"]
    during = f"{person_span(span_ms)} from {utc_text(of_all['from_ms'])}"
    why = "\nmore delay than time: several connections wait at once" if delay_ms > span_ms else ""
    rest = f"\n{_WITHOUT}: {without:,}" if without else ""
    total = f"{counted_text(of_all['of_all'], 'connection', shown)}; total delay {person_ms(delay_ms)}"
    return f"{total} in {during}{why}{rest}"


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
    options=only(user="only this user", client_id="only this client id"),
    period=PeriodOptions(since=f"from then on: {TIME_FORMS} (default the last day of the table)"),
    has_agreement=False,
)
add_commands = QUESTION.add_to
