"""The frame of reading commands: a `Question` is asked of the tables, and its rows are printed in every form.

A command declares what it asks and which columns it shows. Options, times, clusters, sources, footers, the agreement
and the forms of output are the frame's. What a column holds follows from its name and from the schema.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from kquota_spark.cli.near_names import empty_text
from kquota_spark.cli.options import (
    Conditions,
    Filter,
    add_filter_options,
    add_output_options,
    add_settings_options,
    add_since,
    bucket_conditions,
    filter_of,
    footer_text,
    legend,
    limit_of,
    limited,
    settings_of,
    spans_days,
    with_agreement,
    with_cluster,
    with_source,
)
from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.render import Colour, Report, Row, Shown, show
from kquota_spark.config.settings import Settings
from kquota_spark.formats.text.person_units import (
    clock_time,
    or_dash,
    person_count,
    person_ms,
    person_percent,
    rate_text,
)
from kquota_spark.schema.columns import Table
from kquota_spark.store.reading import Tables

_BY_SUFFIX: tuple[tuple[str, Callable[[Row, str], str]], ...] = (
    ("_per_s", lambda row, name: rate_text(row["quota_type"], row[name])),
    ("_percent", lambda row, name: person_percent(row[name])),
    ("_ms", lambda row, name: or_dash(row[name], person_ms)),
    ("requests", lambda row, name: or_dash(row[name], person_count)),
)
"""How a value is printed, by the end of its column's name: that is its unit."""


def column(name: str, title: str, *, rank: int = 0, note: str = "") -> Shown:
    """A column of the rows as people read it, by the unit that its name ends in.

    Args:
        name: of the column, e.g. `limit_per_s`.
        title: above it.
        rank: see `Shown`.
        note: see `Shown`.
    """
    text = next(text for suffix, text in _BY_SUFFIX if name.endswith(suffix))
    return Shown(title, lambda row: text(row, name), rank=rank, note=note)


@dataclass(frozen=True, slots=True)
class Flag:
    """An option of one command alone; with a condition in SQL it keeps the rows that this holds for."""

    name: str
    about: str
    condition: str = "true"

    @property
    def key(self) -> str:
        """Its attribute of the parsed options."""
        return self.name.removeprefix("--").replace("-", "_")


class Asked(NamedTuple):
    """A question with its options: what a function that finds rows is given."""

    settings: Settings
    tables: Tables
    """With the table of the question opened."""
    wanted: Filter
    limit: int | None
    """Maximum rows; None for all."""
    flags: tuple[Flag, ...]
    """Those of the question that were given."""
    own: Any
    """What `Question.own` makes of the options."""
    is_for_people: bool
    """Whether people read the answer: JSON, YAML and CSV are for programs."""


class Found(NamedTuple):
    """What was found, and how it is shown."""

    columns: tuple[str, ...]
    rows: Sequence[Row]
    """All of them, or the first up to the limit."""
    shown: tuple[Shown, ...] = ()
    footer: str = ""
    command: str = ""
    """The command as the envelope has it, if not that of the question."""
    wanted: Filter | None = None
    """The filter that holds, if it is not that of the options."""
    when_empty: str = ""
    """Printed if there are no rows. If it is empty, the frame explains it by the newest row of the table."""
    envelope: Mapping[str, Any] = MappingProxyType({})
    """What JSON and YAML say beside the rows."""
    page: Callable[[Page], None] | None = None
    """Prints the answer for people; None: as a table of `shown`."""
    times: frozenset[str] = frozenset()
    """Columns of epoch ms that are not of the table, or whose names do not end in `_second`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A reading command.

    Attributes:
        command: its name.
        table: what it asks; its timestamps are the times of the rows. None: `find` opens what it needs.
        find: finds the rows; `by_sql` makes it of a query.
        flags: options of its own beside those of all reading commands.
        options: adds the options that choose rows.
        own: one typed value of options that no other command has.
        colour: of a row that needs attention.
        empty_from: the table whose newest row explains why there are no rows.
        has_agreement: whether the answer ends with the agreement of its verdicts.
    """

    command: str
    table: Table | None
    find: Callable[[Asked], Found]
    flags: tuple[Flag, ...] = ()
    options: Callable[[argparse.ArgumentParser], None] = add_filter_options
    own: Callable[[argparse.Namespace], Any] = lambda _: None
    colour: Callable[[Row], Colour | None] = lambda _: None
    empty_from: str = ""
    has_agreement: bool = True

    def add_to(self, subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        """Add the command."""
        parser = subparsers.add_parser(self.command)
        add_settings_options(parser)
        self.options(parser)
        for flag in self.flags:
            parser.add_argument(flag.name, action="store_true", help=flag.about)
        add_output_options(parser)
        parser.set_defaults(run=self.run)

    def run(self, options: argparse.Namespace) -> int:
        """Ask the tables, and print the answer; the exit code."""
        settings, wanted = settings_of(options, "tables"), filter_of(options)
        flags = tuple(flag for flag in self.flags if getattr(options, flag.key))
        own, limit = self.own(options), limit_of(options)
        with Tables(settings) as tables:
            if self.table is not None:
                tables.open(self.table.name, wanted.newer_than_ms)
            asked = Asked(settings, tables, wanted, limit, flags, own, options.output == "table")
            found = self.find(asked)
            page = Page()
            if is_page := asked.is_for_people and found.page is not None:
                found.page(page)
                sys.stdout.flush()  # the agreement takes another look at large tables
            report = self._report(found, tables, found.wanted or wanted, limit)
        if not is_page:
            show(report, options.output)
        elif report.footer:
            page.paragraph("", report.footer, indent=0)
        return 0

    def _report(self, found: Found, tables: Tables, wanted: Filter, limit: int | None) -> Report:
        times = () if self.table is None else [each.name for each in self.table.columns if each.is_time]
        report = Report(
            command=f"kquota {found.command or self.command}",
            columns=found.columns,
            rows=found.rows[:limit],
            shown=with_cluster(found.rows, found.shown) if found.shown else (),
            times=found.times.union(
                name for name in found.columns if name in times or name.endswith("_second")
            ),
            footer=found.footer,
            when_empty=found.when_empty or self._why_empty(found, tables, wanted),
            colour=self.colour,
            envelope=found.envelope,
        )
        return with_agreement(report, tables, wanted) if self.has_agreement else report

    def _why_empty(self, found: Found, tables: Tables, wanted: Filter) -> str:
        if found.rows or self.table is None:
            return ""
        source = self.empty_from or self.table.name
        if source != self.table.name:
            tables.open(source)
        return empty_text(wanted, self.table.name, tables, source)


def by_sql(
    sql: str,
    *,
    time: tuple[str, str],
    since: str,
    order: str,
    throttled: str,
    noun: str,
    shown: Callable[[Sequence[Row]], Iterable[Shown]],
    notes: tuple[str, ...] = (),
    has_source: bool = True,
) -> Callable[[Asked], Found]:
    """Finds the rows of a query about buckets, newest first.

    Args:
        sql: the query without conditions and order; it names its table's columns, times as epoch ms.
        time: the column with the time of a row, and its title.
        since: SQL that --since bounds from below.
        order: SQL behind `order by`.
        throttled: the condition of --throttled.
        noun: what a row is, in the singular.
        shown: the columns behind that of the time, for these rows.
        notes: said below the rows.
        has_source: whether a column for the source is added if not all rows are from the log.
    """

    def find(asked: Asked) -> Found:
        where = _conditions(asked)
        found, has_more = limited(
            asked.tables, f"{sql}{where.sql}order by {order}", where.values, asked.limit
        )
        rows = found.dicts()
        columns = (moment(rows, *time), *shown(rows))
        footer = legend(rows, footer_text(rows, time[0], noun, has_more=has_more), *notes)
        return Found(found.columns, rows, with_source(rows, columns) if has_source else columns, footer)

    def _conditions(asked: Asked) -> Conditions:
        where = bucket_conditions(asked.wanted)
        add_since(where, asked.wanted, since)
        if asked.wanted.is_throttled:
            where.add(throttled)
        for flag in asked.flags:
            where.add(flag.condition)
        return where

    return find


def moment(rows: Sequence[Row], name: str, title: str) -> Shown:
    """A column with the time of day, with the day where the rows are of several."""
    with_day = spans_days(rows, name)
    return Shown(title, lambda row: clock_time(row[name], with_day=with_day))
