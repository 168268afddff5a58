"""`kquota doctor`: is every line counted, and may the tables be trusted; `--before`: can the audit start."""

from __future__ import annotations

import argparse

from kquota_spark.cli.options import (
    DEFAULT_CONFIG,
    add_form_option,
    add_settings_options,
    now_ms,
    settings_of,
)
from kquota_spark.cli.render import Colour, Report, Row, Shown, show
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.check import Check, Status, fail, ok, warn

_COLUMNS = ("status", "what", "evidence", "advice")
_FINDINGS = 2
_COLOURS = {Status.FAIL.value: Colour.RED, Status.WARN.value: Colour.YELLOW}


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `doctor`."""
    about = "check that every line is counted and every table is up to date; exit 2 if a check fails"
    parser = subparsers.add_parser("doctor", help=about, description=about)
    add_settings_options(parser)
    parser.add_argument(
        "--before",
        action="store_true",
        help="ahead of the first run: settings, servers, the log topic, this machine",
    )
    add_form_option(parser)
    parser.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    """Run the checks; 0, or 2 if one failed."""
    command = "kquota doctor"
    if options.before:
        command += " --before"
        checks = _before(options)
    else:
        from kquota_spark.io.checks import run_checks

        checks = run_checks(settings_of(options), now_ms())
    rows = [
        {"status": check.status.value, "what": check.what, "evidence": check.evidence, "advice": check.advice}
        for check in checks
    ]
    show(Report(command, _COLUMNS, rows, shown=_SHOWN, colour=_colour, is_cut=False), options.output)
    return _FINDINGS if any(check.status is Status.FAIL for check in checks) else 0


def _before(options: argparse.Namespace) -> list[Check]:
    from kquota_spark.io.preflight import before_checks

    path = options.config or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
    try:
        settings: Settings = settings_of(options)
    except UserError as error:
        return [fail("settings", line, "correct the file") for line in str(error).splitlines()]
    if path is None:
        first = warn(
            "settings", f"no {DEFAULT_CONFIG}: built-in defaults", "copy conf/kquota.yaml and adapt it"
        )
    else:
        first = ok("settings", f"{path} is valid")
    return [first, *before_checks(settings, now_ms())]


def _finding(row: Row) -> str:
    return f"{row['evidence']} -> {row['advice']}" if row["advice"] else str(row["evidence"])


_SHOWN = (
    Shown("check", lambda row: row["status"], is_text=True),
    Shown("what", lambda row: row["what"], is_text=True),
    Shown("evidence -> what to do", _finding, is_text=True),
)


def _colour(row: Row) -> Colour | None:
    return _COLOURS.get(row["status"])
