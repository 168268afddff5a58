"""`kquota doctor`: whether all lines are counted and tables can be trusted; `--before`: whether the audit can start."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from operator import itemgetter

from kquota_spark.cli.exit_codes import DONE, ERROR, FOUND
from kquota_spark.cli.options import (
    DEFAULT_CONFIG,
    add_form_option,
    add_settings_options,
    settings_of,
)
from kquota_spark.cli.settings_file import WHOLE_FILE
from kquota_spark.cli.text.render import Colour, Format, Report, Row, Shown, show_as_found
from kquota_spark.config.settings import Settings
from kquota_spark.config.substitution import missing_values
from kquota_spark.errors import UserError
from kquota_spark.process.check import Check, Status, fail, ok, warn
from kquota_spark.process.clock import now_ms

COMMANDS = {
    "doctor": ("judge", "check that every line is counted and every table is up to date"),
}
CODES = {
    "doctor": {DONE: "all checks pass", ERROR: "an error, or a usage error", FOUND: "a check fails"},
}

_COLUMNS = ("status", "what", "evidence", "advice")
_COLOURS = {Status.FAIL.value: Colour.RED, Status.WARN.value: Colour.YELLOW}


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `doctor`."""
    parser = subparsers.add_parser("doctor")
    add_settings_options(parser)
    parser.add_argument(
        "--before",
        action="store_true",
        help="ahead of the first run: settings, servers, the log topic, this machine",
    )
    add_form_option(parser)
    parser.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    """Run the checks; returns `FOUND` if one failed."""
    command = "kquota doctor"
    if options.before:
        command += " --before"
        checks = _before(options)
    else:
        from kquota_spark.doctor.checks import run_checks

        checks = run_checks(settings_of(options), now_ms())
    return show_checks(command, checks, options.output)


def show_checks(command: str, checks: Iterable[Check], form: Format) -> int:
    """Print each check when it is done; returns `FOUND` if one failed."""
    report = Report(
        command, _COLUMNS, (), shown=_SHOWN, colour=lambda row: _COLOURS.get(row["status"]), is_cut=False
    )
    found = (asdict(check) | {"status": check.status.value} for check in checks)
    rows = show_as_found(report, found, form)
    return FOUND if any(row["status"] == Status.FAIL.value for row in rows) else DONE


def _before(options: argparse.Namespace) -> Iterator[Check]:
    from kquota_spark.doctor.preflight import before_checks

    path = options.config or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
    try:
        settings: Settings = settings_of(options, WHOLE_FILE)
    except UserError as error:
        yield from (fail("settings", line, "correct the file") for line in str(error).splitlines())
        return
    if path is None:
        yield warn(
            "settings",
            f"no {DEFAULT_CONFIG}: built-in defaults",
            "kquota init --bootstrap-server HOST:PORT writes it",
        )
    elif (mistake := _refused_by_serve(settings)) is not None:
        yield fail("settings", f"{path}: {mistake}", "correct the file")
    else:
        yield ok("settings", f"{path} is valid")
    for line in missing_values(settings):
        yield warn("settings", line, "set it on the machines whose commands use it")
    yield from before_checks(settings, now_ms())


def _refused_by_serve(settings: Settings) -> str | None:
    """The first mistake in the settings of `kquota serve`; None if there is none, or if a variable is missing."""
    from kquota_spark.cli.serve.access import Access

    if any(missing_values(settings.serve)):
        return None
    try:
        Access(settings.serve, "127.0.0.1")
    except UserError as error:
        return str(error)
    return None


def _finding(row: Row) -> str:
    return f"{row['evidence']} -> {row['advice']}" if row["advice"] else str(row["evidence"])


_SHOWN = (
    Shown("check", itemgetter("status"), is_text=True, keep=5),
    Shown("what", itemgetter("what"), is_text=True, keep=17),
    Shown("evidence -> what to do", _finding, is_text=True),
)
