"""`kquota status`: one screen for the whole installation; the exit code shows whether all parts are well."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from kquota_spark.cli.exit_codes import DONE, ERROR, FOUND
from kquota_spark.cli.options import SettingsPlace, add_form_option, add_settings_options, settings_of
from kquota_spark.cli.status.part import Part, State
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.render import Report, Row, Shown, show
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import person_ms
from kquota_spark.process.clock import now_ms

COMMANDS = {
    "status": (
        "look",
        "one screen: job, shippers, quota sources, lag, agreement, enforcement; and what to run next",
    ),
}
CODES = {
    "status": {DONE: "all is well", ERROR: "an error, or a usage error", FOUND: "a part is not well"},
}

_COLUMNS = ("part", "state", "figure", "as_of", "age_ms", "next")
_TONES = {State.WARN: Tone.BAD, State.FAIL: Tone.OVER, State.OFF: Tone.FAINT}
_HEAD = 27
"""Columns of part, state and age together."""
_SHOWN = (
    Shown("part", lambda row: row["part"], is_text=True),
    Shown("state", lambda row: row["state"], is_text=True),
    Shown("age", lambda row: _age_text(row["age_ms"])),
    Shown("figure", lambda row: row["figure"], is_text=True, keep=30),
    Shown("next", lambda row: row["next"], is_text=True, keep=20),
)


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `status`."""
    parser = subparsers.add_parser("status")
    add_settings_options(parser)
    add_form_option(parser)
    parser.set_defaults(run=run_status)


def run_status(options: argparse.Namespace) -> int:
    """Show all parts; returns `FOUND` if one is not well.

    Raises:
        UserError: the settings cannot be read.
    """
    settings, time_ms = settings_of(options), now_ms()
    parts = list(all_parts(settings, SettingsPlace(options.config, options.tables), time_ms))
    if options.output == "table":
        _print(parts, time_ms)
    else:
        show(status_report(parts, time_ms), options.output)
    return DONE if all(part.state.is_well for part in parts) else FOUND


def all_parts(settings: Settings, place: SettingsPlace, time_ms: int) -> Iterator[Part]:
    """All parts; a part that cannot be read has a line as well."""
    from kquota_spark.cli.status.of_enforcement import HolderQuestion, enforcer_part, freeze_part, lifted_part
    from kquota_spark.cli.status.of_lease import lease_parts
    from kquota_spark.cli.status.of_tables import parts_of_tables
    from kquota_spark.enforcement.edges.log import EnforcementLog

    asked = HolderQuestion(settings)
    try:
        yield from parts_of_tables(settings, place, time_ms)
    except UserError as error:
        yield Part("tables", State.FAIL, str(error))
    yield from lease_parts(settings, place, time_ms)
    try:
        log = EnforcementLog(settings).entries()
    except UserError as error:
        yield Part("enforcer", State.FAIL, str(error))
        log = []
    else:
        yield enforcer_part(settings, log, asked, place, time_ms)
    yield freeze_part(settings, place, time_ms)
    yield lifted_part(log, place)


def status_report(parts: list[Part], time_ms: int) -> Report:
    """The parts as rows of a report."""
    rows = [_row(part, time_ms) for part in parts]
    return Report("kquota status", _COLUMNS, rows, _SHOWN, times=frozenset({"as_of"}))


def _row(part: Part, time_ms: int) -> Row:
    age_ms = None if part.as_of_ms is None else max(0, time_ms - part.as_of_ms)
    return {
        "part": part.part,
        "state": part.state.value,
        "figure": part.figure,
        "as_of": part.as_of_ms,
        "age_ms": age_ms,
        "next": part.next,
    }


def _age_text(age_ms: int | None) -> str:
    return "-" if age_ms is None else person_ms(age_ms)


def _print(parts: list[Part], time_ms: int) -> None:
    page = Page()
    for part in parts:
        row = _row(part, time_ms)
        head = f"{part.part:<10} {part.state.value:<4} {_age_text(row['age_ms']):>8}"
        page.paragraph(head, terminal_text(part.figure), _TONES.get(part.state), indent=_HEAD)
        if part.next:
            page.paragraph(" " * _HEAD + "->", part.next, indent=_HEAD + 3)
