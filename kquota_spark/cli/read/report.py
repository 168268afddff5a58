"""`kquota report`: one page about a period, for people, tickets, spreadsheets or programs; once or on a schedule."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.cli.exit_codes import DONE, ERROR
from kquota_spark.cli.options import (
    TIME_FORMS,
    PeriodOptions,
    Since,
    add_period_options,
    add_settings_options,
    require_order,
    settings_of,
    whole_number,
)
from kquota_spark.cli.text.page import Page, print_line
from kquota_spark.cli.text.render import Report, json_report
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.process.clock import now_ms
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.reports.scope.period import Period
    from kquota_spark.reports.sections import AuditReport

COMMANDS = {
    "report": (
        "answers",
        "a page about a day or any period: who was throttled, who is near a limit, who used what",
        "kquota report --to report.html",
        "kquota report --since 2h --tenant alice --to alice.md",
    ),
}
CODES = {
    "report": {ERROR: "an error, or a page could not be made"},
}

_SUFFIXES = {"html": "html", "md": "md", "csv": "csv.zip", "json": "json"}
_FORMATS_OF_ENDINGS = {
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".csv": "csv",
    ".csv.zip": "csv",
    ".json": "json",
}
_TOP = 20
_DAY_MS = 86_400_000


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `report`."""
    command = subparsers.add_parser(
        "report",
        description="Writes one self-contained HTML page (or Markdown, CSV, JSON) about a period. It answers: "
        "can you trust the numbers, who was throttled, who is near a limit, who used how much? It also shows what "
        "changed, what is unprotected, and what to do. The page opens without a network.",
    )
    add_settings_options(command)
    command.add_argument(
        "--period", type=_period, metavar="T",
        help="day (yesterday), week, today, last:2h, or FROM..TO in UTC (default day)",
    )  # fmt: skip
    add_period_options(
        command, PeriodOptions(f"instead of --period, from then on: {TIME_FORMS}", "until then (default now)")
    )
    command.add_argument("--tenant", metavar="USER", help="this user's own page, with no data of others")
    command.add_argument(
        "--format", "--output", choices=tuple(_SUFFIXES),
        help="html, md for a ticket, csv (a zip archive, one file per section), json "
        "(default: by the ending of --to, else html)",
    )  # fmt: skip
    command.add_argument(
        "--top", type=_least_one, default=_TOP, metavar="N", help=f"lists show the first N (default {_TOP})"
    )
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--to", metavar="FILE",
        help="file to write, in the format of its ending (.html, .md, .csv, .csv.zip, .json); - is standard output",
    )  # fmt: skip
    where.add_argument(
        "--folder", type=Path, metavar="DIR",
        help="for schedules: write a dated file into this folder, and the same as latest.html",
    )  # fmt: skip
    command.add_argument(
        "--tenants", choices=("all",), help="with --folder: besides, a page for each user into DIR/tenants"
    )
    command.set_defaults(run=run_report)


def run_report(options: argparse.Namespace) -> int:
    """Write the page, and print its path and its headline.

    Raises:
        UserError: there is nothing to report on, or something cannot be read or written.
    """
    if options.tenants and options.folder is None:
        raise UserError("--tenants: needs --folder, the folder that the pages are written into")
    if options.tenants and options.tenant is not None:
        raise UserError("--tenants: all users' pages and --tenant, one user's: give one of them")
    form = report_format(options.to, options.format)
    time_ms = now_ms()
    made = Made(
        settings_of(options, "tables"),
        _asked_period(options.period, options.since, options.until, time_ms),
        time_ms,
        options.top,
        form,
    )
    if options.folder is not None:
        return _write_folder(made, options.folder, options.tenant, has_tenants=options.tenants)
    report = made.report(options.tenant)
    if options.to == "-":
        _print(made, report)
    else:
        _write(made, report, Path(options.to or f"kquota-report-{made.stem(options.tenant)}.{made.suffix}"))
    return 0


def _asked_period(period: Period | None, since: Since | None, until: Since | None, time_ms: int) -> Period:
    """The period of --since and --until, else that of --period, else yesterday."""
    from kquota_spark.reports.scope.period import Period

    if since is None and until is None:
        return period or _period("day")
    if period is not None:
        raise UserError("--period: leave it out, or leave out --since and --until")
    require_order(since, until)
    to_ms = time_ms if until is None else until.time_ms
    from_ms = to_ms - _DAY_MS if since is None else since.time_ms
    if from_ms >= to_ms:
        raise UserError(f"--since {utc_text(from_ms)} is not before now, {utc_text(to_ms)}")
    return Period(from_ms, to_ms)


def report_format(to: str | None, asked: str | None) -> str:
    """The format to write: by the ending of `--to`, else by `--format`, else HTML if `--to` names no file.

    Args:
        to: file name or `-`; None for the default name.
        asked: value of `--format`; None if it is not given.

    Raises:
        UserError: the ending and `--format` contradict each other, or neither names a format.
    """
    if to is None or to == "-":
        return asked or "html"
    name = Path(to).name.lower()
    ending = next((ending for ending in _FORMATS_OF_ENDINGS if name.endswith(ending)), None)
    if ending is None and asked is None:
        *first, last = _FORMATS_OF_ENDINGS
        known = f"{', '.join(first)} or {last}"
        raise UserError(f"--to {to}: no format has this ending: use {known}, or add --format")
    of_ending = asked if ending is None else _FORMATS_OF_ENDINGS[ending]
    if asked not in (None, of_ending):
        raise UserError(
            f"--to {to} is {of_ending} and --format is {asked}: leave out --format, or change the ending"
        )
    return str(of_ending)


@dataclass(frozen=True, slots=True)
class Made:
    """Values that all pages of one run share: tables, period, creation time, length of lists, format."""

    settings: Settings
    period: Period
    made_at_ms: int
    top: int
    form: str

    @property
    def suffix(self) -> str:
        """The ending of file names."""
        return _SUFFIXES[self.form]

    def report(self, tenant: str | None) -> AuditReport:
        """The report as data, of the cluster or of one user."""
        from kquota_spark.reports.pages.gathering import gather_report

        return gather_report(
            self.settings, self.period, made_at_ms=self.made_at_ms, tenant=tenant, top=self.top
        )

    def stem(self, tenant: str | None) -> str:
        """The file name without ending: cluster, user if there is one, and period."""
        from kquota_spark.reports.pages.page_names import period_name, safe_name

        names = [self.settings.cluster_id, *([] if tenant is None else [tenant])]
        return "-".join([*map(safe_name, names), period_name(self.period)])

    def drawn(self, report: AuditReport) -> bytes:
        """The report as bytes in the requested format."""
        # Each format imports its own libraries, so only the requested one is loaded.
        if self.form == "html":
            from kquota_spark.reports.pages.page_html import html_page

            return html_page(report).encode()
        if self.form == "md":
            from kquota_spark.reports.pages.page_markdown import markdown_page

            return markdown_page(report).encode()
        from kquota_spark.reports.pages.page_data import csv_archive, plain_report

        if self.form == "csv":
            return csv_archive(report)
        row = plain_report(report)
        return json_report(Report("kquota report", tuple(row), [row], shown=())).encode()


def _write_folder(made: Made, folder: Path, tenant: str | None, *, has_tenants: bool) -> int:
    from kquota_spark.reports.pages.gathering import tenants_seen
    from kquota_spark.reports.pages.page_names import safe_name

    _make(folder)
    of_tenant = "" if tenant is None else f"-{safe_name(tenant)}"
    report = made.report(tenant)
    for name in (made.stem(tenant), f"latest{of_tenant}"):
        _write(made, report, folder / f"{name}.{made.suffix}", is_silent=name.startswith("latest"))
    if not has_tenants:
        return 0
    _make(folder / "tenants")
    users = tenants_seen(made.settings, made.period)
    failed = 0
    for number, user in enumerate(users, 1):
        if sys.stderr.isatty():
            print(f"\r{number:,} of {len(users):,} users", end="", file=sys.stderr, flush=True)
        try:
            own = made.report(user)
        except UserError as error:
            print_line(f"kquota: page of user {terminal_text(user)}: {terminal_text(str(error))}", sys.stderr)
            failed += 1
            continue
        for name in (made.stem(user), f"{safe_name(user)}-latest"):
            _write(made, own, folder / "tenants" / f"{name}.{made.suffix}", is_silent=True)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    print_line(f"{terminal_text(str(folder / 'tenants'))}: pages of {len(users) - failed:,} users")
    return ERROR if failed else DONE


def _write(made: Made, report: AuditReport, path: Path, *, is_silent: bool = False) -> None:
    from kquota_spark.process.replaced_file import replace_file
    from kquota_spark.reports.pages.opening import opening

    replace_file(path, made.drawn(report))
    if not is_silent:
        begun = opening(report)
        others = "; ".join(f"{name}: {answer.text}" for name, answer in begun.others)
        print_line(terminal_text(str(path)))
        Page().paragraph("", terminal_text(begun.sentence), indent=0)
        if others:
            Page().paragraph("", terminal_text(others), indent=0)


def _print(made: Made, report: AuditReport) -> None:
    if made.form == "csv" and sys.stdout.isatty():
        raise UserError("--to -: the CSV form is a zip archive: give a file, or a pipe that unpacks it")
    sys.stdout.flush()
    sys.stdout.buffer.write(made.drawn(report))
    sys.stdout.buffer.flush()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made: {error.strerror}: give another folder") from error


def _period(text: str) -> Period:
    from kquota_spark.reports.scope.period import parse_period

    try:
        return parse_period(text, now_ms())
    except ValueError as error:
        raise argparse.ArgumentTypeError(terminal_text(str(error))) from None


def _least_one(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}, expected 1 or more")
    return number
