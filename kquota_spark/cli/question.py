"""The framework of commands that read tables: a `Question` finds rows, and prints them in every form.

A command declares its query and the columns to show. The framework adds options, times, clusters, sources, footers, the
agreement and the forms of output. The schema defines
the unit of a column by its name.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from kquota_spark.cli.exit_codes import DONE
from kquota_spark.cli.filters import (
    Conditions,
    Filter,
    add_period,
    bucket_conditions,
    filter_of,
)
from kquota_spark.cli.near_names import empty_text
from kquota_spark.cli.options import (
    PeriodOptions,
    add_filter_options,
    add_output_options,
    add_period_options,
    add_settings_options,
    footer_text,
    legend,
    limit_of,
    limited,
    percent_text,
    require_order,
    settings_of,
    spans_days,
    with_cluster,
    with_source,
)
from kquota_spark.cli.own_options import add_own, reader_of
from kquota_spark.cli.text import columns
from kquota_spark.cli.text.page import Page, print_line
from kquota_spark.cli.text.render import Colour, Report, Row, Shown, show
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import clock_time
from kquota_spark.reports.agreement.agreement import open_text, percent, total
from kquota_spark.schema.columns import Table
from kquota_spark.schema.units import Unit, unit_of
from kquota_spark.store.reading import Tables

column, own_column = columns.column, columns.own_column


@dataclass(frozen=True, slots=True)
class Flag:
    """An option of a single command. If it has an SQL condition, only matching rows are kept."""

    name: str
    about: str
    condition: str = "true"
    adds: str = ""
    """The module below `kquota_spark.cli` with the function `added`, which adds to the answer. Only a command with
    this flag loads it."""

    @property
    def key(self) -> str:
        """Its attribute in the parsed options."""
        return self.name.removeprefix("--").replace("-", "_")


class Asked(NamedTuple):
    """A question with its options: the argument of `Question.find`."""

    settings: Settings
    tables: Tables
    """With the question's own table opened."""
    wanted: Filter
    limit: int | None
    """Maximum rows; None for all."""
    flags: tuple[Flag, ...]
    """The flags of the question that were given."""
    own: Any
    """The values of `Question.declared`, else the result of `Question.own`."""
    is_for_people: bool
    """Whether the output is for people (a table) and not for programs (JSON, YAML, CSV)."""


class Found(NamedTuple):
    """The rows of an answer, and how to show them."""

    columns: tuple[str, ...]
    rows: Sequence[Row]
    """All rows, or the first ones up to the limit."""
    shown: tuple[Shown, ...] = ()
    footer: str = ""
    command: str = ""
    """The command in the envelope, if it differs from that of the question."""
    wanted: Filter | None = None
    """The filter in force, if it differs from that of the options."""
    when_empty: str = ""
    """The text if there are no rows. If it is empty, the newest row of the table gives the reason."""
    envelope: Mapping[str, Any] = MappingProxyType({})
    """Values of JSON and YAML beside the rows."""
    page: Callable[[Page], None] | None = None
    """Prints the answer for people; None prints a table of `shown`."""
    text: str = ""
    """The whole answer for people, as it is printed."""
    times: frozenset[str] = frozenset()
    """Columns of epoch ms that are not times by their name."""
    is_limited: bool = False
    """Whether the limit is applied already, to something else than rows."""
    code: int = DONE
    """The exit code."""
    warning: str = ""
    """Printed to standard error after the answer."""
    is_silent: bool = False
    """Whether only the exit code is wanted."""
    head: str = ""
    """Lines above the table; for people only."""
    notes: Sequence[str] = ()
    """Lines below the table and its footer, each wrapped; for people only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A command that reads tables.

    Attributes:
        command: its name.
        table: the table to query; its timestamps are the times of the rows. None: `find` opens the tables it needs.
        find: finds the rows; `by_sql` makes it from a query.
        modes: flags that ask another question instead, which then answers with its own options.
        flags: its own options beside those of all reading commands.
        options: adds the options that filter rows, without --since and --until; None for no such options.
        period: how the command describes --since and --until; None for a command without them.
        declared: a dataclass with the options that no other command has, see `own_options`; None for no such options.
        own: makes one value from options; for commands with options that are not `declared`.
        colour: the colour of a row that needs attention; None for no colour.
        empty_from: the table with the newest row that explains why there are no rows.
        has_agreement: whether the answer ends with the agreement of its verdicts.
        place: adds the options for the settings and the tables.
        form: adds the options for the form of the output.
        about: help of a subcommand; empty for a command of the registry.
    """

    command: str
    table: Table | None
    find: Callable[[Asked], Found]
    modes: tuple[tuple[Flag, Question], ...] = ()
    flags: tuple[Flag, ...] = ()
    options: Callable[[argparse.ArgumentParser], None] | None = add_filter_options
    period: PeriodOptions | None = PeriodOptions()
    declared: type[Any] | None = None
    own: Callable[[argparse.Namespace], Any] = lambda _: None
    colour: Callable[[Row], Colour | None] = lambda _: None
    empty_from: str = ""
    has_agreement: bool = True
    place: Callable[[argparse.ArgumentParser], None] = add_settings_options
    form: Callable[[argparse.ArgumentParser], None] = add_output_options
    about: str = ""

    def add_to(self, subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        """Add the command."""
        name = self.command.rpartition(" ")[2]
        parser = (
            subparsers.add_parser(name, help=self.about, description=self.about)
            if self.about
            else subparsers.add_parser(name)
        )
        self.place(parser)
        self._add_options(parser)
        parser.set_defaults(limit=None, run=self.run)
        self.form(parser)
        if self.modes:
            self._add_modes(parser)

    def _add_options(self, parser: argparse.ArgumentParser) -> None:
        if self.options is not None:
            self.options(parser)
        if self.declared is not None:
            add_own(parser, self.declared)
        if self.period is not None:
            add_period_options(parser, self.period)
        for flag in self.flags:
            parser.add_argument(flag.name, action="store_true", help=flag.about)

    def _add_modes(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags of the modes, and the options that only the modes have."""
        which = parser.add_mutually_exclusive_group()
        for flag, _ in self.modes:
            which.add_argument(flag.name, action="store_true", help=flag.about)
        names = [flag.name for flag, _ in self.modes]
        group = parser.add_argument_group(f"only with {' or '.join(names)}")
        for action, with_modes in self._options_of_modes():
            if len(with_modes) < len(names):
                action.help = f"{action.help} ({' or '.join(with_modes)} only)"
            group._add_action(action)

    def _options_of_modes(self) -> list[tuple[argparse.Action, list[str]]]:
        """The options that this question lacks, each with the flags of the modes that have it."""
        own = _parser_of(self)
        found: dict[str, tuple[argparse.Action, list[str]]] = {}
        for flag, question in self.modes:
            for action in _parser_of(question)._actions:
                if not own._option_string_actions.keys() & set(action.option_strings):
                    found.setdefault(action.dest, (action, []))[1].append(flag.name)
        return list(found.values())

    def _mode(self, options: argparse.Namespace) -> Question | None:
        """The question that a flag asks instead; None without such a flag.

        Raises:
            UserError: an option was given that the question does not have.
        """
        asked = [(flag, question) for flag, question in self.modes if getattr(options, flag.key)]
        given = {flag.name for flag, _ in asked}
        for action, with_modes in self._options_of_modes() if self.modes else ():
            if getattr(options, action.dest) != action.default and not given & set(with_modes):
                raise UserError(
                    f"{self.command}: {action.option_strings[0]} works only with {' or '.join(with_modes)}"
                )
        for flag, question in asked:
            self._require_no_other(vars(options), flag, question)
        return asked[0][1] if asked else None

    def _require_no_other(self, given: Mapping[str, object], flag: Flag, question: Question) -> None:
        """Check that only options of a mode were given with its flag.

        Raises:
            UserError: an option was given that the mode would ignore.
        """
        kept = _parser_of(question)._option_string_actions.keys()
        for action in _parser_of(self)._actions:
            if kept.isdisjoint(action.option_strings) and given[action.dest] != action.default:
                raise UserError(f"{self.command}: {action.option_strings[0]} works only without {flag.name}")

    def run(self, options: argparse.Namespace) -> int:
        """Query the tables and print the answer; returns the exit code.

        Raises:
            UserError: options contradict each other, or the tables cannot be read.
        """
        if (mode := self._mode(options)) is not None:
            return mode.run(options)
        settings, wanted = settings_of(options, "tables"), filter_of(options)
        require_order(wanted.since, wanted.until)
        flags = tuple(flag for flag in self.flags if getattr(options, flag.key))
        own = (self.own if self.declared is None else reader_of(self.declared))(options)
        limit = limit_of(options)
        with Tables(settings) as tables:
            if self.table is not None:
                tables.open(self.table.name, wanted.newer_than_ms)
            asked = Asked(settings, tables, wanted, limit, flags, own, options.output == "table")
            found = self._found(asked)
            if found.is_silent:
                return _done(found)
            if found.text and asked.is_for_people:
                print(found.text)
                return _done(found)
            page = Page()
            if is_page := asked.is_for_people and found.page is not None:
                found.page(page)
                sys.stdout.flush()  # the agreement reads large tables once more
            report = self._report(found, tables, found.wanted or wanted, limit)
        if not is_page:
            show(report, options.output)
        elif report.footer:
            page.paragraph("", report.footer, indent=0)
        for note in found.notes if asked.is_for_people else ():
            page.paragraph("", note, indent=0)
        return _done(found)

    def _found(self, asked: Asked) -> Found:
        """The rows, with what the flags add."""
        found = self.find(asked)
        for flag in asked.flags:
            if flag.adds:
                found = importlib.import_module(f"kquota_spark.cli.{flag.adds}").added(asked, found)
        return found

    def _report(self, found: Found, tables: Tables, wanted: Filter, limit: int | None) -> Report:
        report = Report(
            command=f"kquota {found.command or self.command}",
            columns=found.columns,
            rows=found.rows if found.is_limited else found.rows[:limit],
            shown=with_cluster(found.rows, found.shown) if found.shown else (),
            times=found.times.union(name for name in found.columns if unit_of(name) is Unit.TIME),
            head=found.head,
            footer=found.footer,
            when_empty=found.when_empty or self._why_empty(found, tables, wanted),
            colour=self.colour,
            envelope=found.envelope,
        )
        return _with_agreement(report, tables, wanted) if self.has_agreement else report

    def _why_empty(self, found: Found, tables: Tables, wanted: Filter) -> str:
        if found.rows or self.table is None:
            return ""
        source = self.empty_from or self.table.name
        if source != self.table.name:
            tables.open(source)
        return empty_text(wanted, self.table.name, tables, source)


def _parser_of(question: Question) -> argparse.ArgumentParser:
    """A parser with only the options of a question."""
    parser = argparse.ArgumentParser(add_help=False)
    question._add_options(parser)
    return parser


def _done(found: Found) -> int:
    if found.warning:
        print_line(f"kquota: {terminal_text(found.warning)}", sys.stderr)
    return found.code


def by_sql(
    sql: str,
    *,
    time: tuple[str, str],
    period: tuple[str, str],
    order: str,
    throttled: str,
    noun: str,
    shown: Callable[[Sequence[Row]], Iterable[Shown]],
    has_source: bool = True,
) -> Callable[[Asked], Found]:
    """A `find` for a query about buckets, newest rows first.

    Args:
        sql: the query without conditions and order; it names the columns of its table, times as epoch ms.
        time: the column with the time of a row, and its title.
        period: SQL of the first and of the last time of a row. --until bounds the first, and --since the last.
        order: SQL after `order by`.
        throttled: SQL condition of --throttled.
        noun: name of a row, in the singular.
        shown: makes the columns after the time column, for these rows.
        has_source: whether to add a source column if some rows are not from the log.
    """

    def find(asked: Asked) -> Found:
        where = _conditions(asked)
        found, has_more = limited(
            asked.tables, f"{sql}{where.sql}order by {order}", where.values, asked.limit
        )
        rows = found.dicts()
        columns = (moment(rows, *time), *shown(rows))
        footer = legend(rows, footer_text(rows, time[0], noun, has_more=has_more))
        return Found(found.columns, rows, with_source(rows, columns) if has_source else columns, footer)

    def _conditions(asked: Asked) -> Conditions:
        where = bucket_conditions(asked.wanted)
        first, last = period
        add_period(where, asked.wanted, last, first)
        if asked.wanted.is_throttled:
            where.add(throttled)
        for flag in asked.flags:
            where.add(flag.condition)
        return where

    return find


def _with_agreement(report: Report, tables: Tables, wanted: Filter) -> Report:
    """The report with the agreement of its verdicts; unchanged if no verdict was judged.

    The agreement is of the whole cluster from --since until --until. The other filters do not change it.
    """
    found = total(tables, wanted.span)
    if found is None:
        return report
    share = percent(found)
    envelope = {**report.envelope, "agreement": {"agreement_percent": share, **found}}
    if share is None or not report.rows:
        return replace(report, envelope=envelope)
    whole = "" if wanted.is_of_all else " (all clients)"
    line = f"{agreement_text(found)}{whole}"
    return replace(report, envelope=envelope, footer=f"{report.footer}\n{line}".lstrip("\n"))


def agreement_text(row: Row) -> str:
    """`agreement 99.99 % of 27,110 certain verdicts; 835 of 28,689 verdicts left open`, from sums."""
    left = open_text(row)
    share = percent_text(percent(dict(row)))
    return f"agreement {share} of {row['requests_judged']:,} certain verdicts{f'; {left}' if left else ''}"


def moment(rows: Sequence[Row], name: str, title: str) -> Shown:
    """A column with the time of day, and the day if the rows are of several days."""
    with_day = spans_days(rows, name)
    return Shown(title, lambda row: clock_time(row[name], with_day=with_day))
