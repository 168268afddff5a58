"""Why a table has no rows for a filter, and which existing name may have been meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from kquota_spark.cli.filters import Filter, add_period, client_conditions
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import person_name
from kquota_spark.reports.agreement.span import ALWAYS
from kquota_spark.store.reading import Tables, utc_text

_MOST_NAMES = 20_000
"""Maximum number of names to compare with; comparing that many takes half a second."""
_NAMES = """
select {column} from usage where {column} is not null union select {column} from quota_rules where {column} is not null
"""


def empty_text(wanted: Filter, noun: str, tables: Tables, table: str) -> str:
    """The reason why there are no rows: no match, or nothing processed yet.

    Args:
        wanted: the filter of the command. Its text is printed, and its names are compared with those in the tables.
        noun: name of a row, in the plural.
        tables: opened, including `table`.
        table: the table that was queried; it has a time column.
    """
    matching = f"no {noun} match {terminal_text(wanted.text)}" if wanted.text else f"no {noun}"
    newest_ms = tables.newest_ms(table)
    if newest_ms is None:
        return f"{matching}: the table {table} is empty, has the audit processed anything yet?"
    seen = terminal_text(_seen_text(wanted, noun, tables))
    return (
        f"{matching}{seen}; the table {table} reaches {utc_text(newest_ms)}"
        f"{meant(tables, wanted.user, wanted.client)}"
    )


def who_text(user: str | None, client_id: str | None) -> str:
    """`alice / etl`, `user alice` or `client etl`; not escaped for the terminal."""
    if user is not None and client_id is not None:
        return f"{person_name(user)} / {person_name(client_id)}"
    return f"user {person_name(user)}" if user is not None else f"client {person_name(client_id)}"


def _seen_text(wanted: Filter, noun: str, tables: Tables) -> str:
    """Whether the named client was seen in the period, so that no rows mean that nothing happened to it.

    Empty if the filter names no client, or without usage.
    """
    named = Filter(user=wanted.user, client=wanted.client, since=wanted.since, until=wanted.until)
    if named.user is None and named.client is None:
        return ""
    if not tables.open_if_there("usage", wanted.newer_than_ms) or tables.newest_ms("usage") is None:
        return ""
    where = client_conditions(named)
    add_period(where, named, "usage.second")
    sql = f"select epoch_ms(max(usage.second)) from usage{where.sql}"  # noqa: S608 - names of ours
    last_ms = tables.query(sql, where.values).rows[0][0]
    who, has_period = who_text(named.user, named.client), named.span != ALWAYS
    if last_ms is None:
        return f"; {who} was {'not seen in that time' if has_period else 'never seen'}"
    none = f"no {noun}" if named == wanted else "none that match"
    return f"; {who} was seen, last at {utc_text(last_ms)}, and has {none}{' in that time' if has_period else ''}"


def meant(tables: Tables, user: str | None, client_id: str | None) -> str:
    """`; did you mean --user alice?` if the tables contain only a similar name; else empty."""
    asked = (("--user", user, '"user"'), ("--client", client_id, "client_id"))
    hints = []
    for option, given, column in asked:
        if given:
            known = _known(tables, column)
            hints += [f"{option} {name}" for name in near(given, known) if given not in known]
    return terminal_text(f"; did you mean {' '.join(hints)}?") if hints else ""


def near(given: str, known: Iterable[str]) -> list[str]:
    """The most similar known name; empty if no name is similar."""
    same = [name for name in known if name.casefold() == given.casefold()]
    return same[:1] or get_close_matches(given, known, n=1)


def _known(tables: Tables, column: str) -> list[str]:
    for table in ("usage", "quota_rules"):
        tables.open_if_there(table)
    names = tables.query(f"{_NAMES.format(column=column)} order by 1 limit {_MOST_NAMES}").rows
    return [name for (name,) in names]
