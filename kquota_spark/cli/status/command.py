"""`kquota status`: one screen for the whole installation; the exit code shows whether all parts are well."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kquota_spark.cli.exit_codes import DONE, ERROR, FOUND
from kquota_spark.cli.options import SettingsPlace, add_form_option, add_settings_options, settings_of
from kquota_spark.cli.status.part import Part, State, following
from kquota_spark.cli.status.verdict import Verdict, verdict
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.render import Report, Row, Shown, show
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import iso_time, person_ms
from kquota_spark.process.clock import now_ms

if TYPE_CHECKING:
    from kquota_spark.cli.status.of_enforcement import HolderQuestion

COMMANDS = {
    "status": (
        "answers",
        "does the audit run, in one line; then job, shippers, quota sources, lag, agreement, enforcement",
        "kquota status",
        "kquota status --output json",
    ),
}
CODES = {
    "status": {
        DONE: "the audit runs, and every part is ok or off",
        ERROR: "an error, or a usage error",
        FOUND: "the audit does not run, or a part is not ok",
    },
}

_COLUMNS = ("part", "state", "figure", "as_of", "age_ms", "next", "follows")
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
    """Show the verdict and all parts; returns `FOUND` if one is not well.

    Raises:
        UserError: the settings cannot be read.
    """
    status = whole_status(settings_of(options), SettingsPlace(options.config, options.tables), now_ms)
    if options.output == "table":
        _print(status)
    else:
        show(status_report(status), options.output)
    return DONE if status.verdict.is_ok else FOUND


class Status(NamedTuple):
    """The whole screen."""

    verdict: Verdict
    parts: Sequence[Part]
    newest_ms: int | None
    """Newest second of `decisions`, epoch ms; None without one."""
    time_ms: int
    """When it was so, epoch ms."""


def whole_status(settings: Settings, place: SettingsPlace, clock_ms: Callable[[], int]) -> Status:
    """The verdict and all parts; a part that cannot be read is there as well.

    Args:
        settings: the installation.
        place: the settings as the caller named them, for commands to run next.
        clock_ms: the wall clock, epoch ms; read again after the tables, which may change meanwhile.
    """
    from kquota_spark.cli.status.of_enforcement import HolderQuestion
    from kquota_spark.cli.status.of_lease import lease_parts
    from kquota_spark.cli.status.of_tables import parts_of_tables

    asked = HolderQuestion(settings)
    lease = lease_parts(settings, place, clock_ms())
    released_ms = next((part.as_of_ms for part in lease if part.state is State.OFF), None)
    of_tables = parts_of_tables(settings, place, released_ms, clock_ms)
    time_ms = clock_ms()
    tables = next(part for part in of_tables.parts if part.part == "tables")
    enforcement = _enforcement(settings, asked, tables, place, time_ms)
    parts = following([*of_tables.parts, *lease, *enforcement])
    found = verdict(settings, parts, of_tables.newest_ms, place, time_ms, has_tables=of_tables.has_tables)
    return Status(found, parts, of_tables.newest_ms, time_ms)


def _enforcement(
    settings: Settings, asked: HolderQuestion, tables: Part, place: SettingsPlace, time_ms: int
) -> Iterator[Part]:
    from kquota_spark.cli.status.of_enforcement import enforcer_part, freeze_part, lifted_part
    from kquota_spark.enforcement.edges.log import EnforcementLog

    try:
        log = EnforcementLog(settings).entries()
    except UserError as error:
        yield Part("enforcer", State.FAIL, str(error))
        log = []
    else:
        yield enforcer_part(settings, log, asked, place, time_ms)
    freeze = freeze_part(settings, place, time_ms)
    is_unknown = freeze.state is State.FAIL and tables.state is State.FAIL
    yield freeze.because(tables) if is_unknown else freeze
    yield lifted_part(log, place)


def status_report(status: Status) -> Report:
    """The parts as rows of a report, under the verdict."""
    newest_ms, found, time_ms = status.newest_ms, status.verdict, status.time_ms
    return Report(
        "kquota status",
        _COLUMNS,
        [_row(part, time_ms) for part in status.parts],
        _SHOWN,
        times=frozenset({"as_of"}),
        head=found.text,
        envelope={
            "verdict": found.text,
            "is_running": found.is_running,
            "is_ok": found.is_ok,
            "newest_second": None if newest_ms is None else iso_time(newest_ms),
            "age_ms": None if newest_ms is None else max(0, time_ms - newest_ms),
        },
    )


def _row(part: Part, time_ms: int) -> Row:
    age_ms = None if part.as_of_ms is None else max(0, time_ms - part.as_of_ms)
    return {
        "part": part.part,
        "state": part.state.value,
        "figure": part.figure,
        "as_of": part.as_of_ms,
        "age_ms": age_ms,
        "next": part.next,
        "follows": part.follows,
    }


def following_text(rows: Sequence[Row], name: str) -> str:
    """Which parts are not well only because of this one; empty if there are none.

    Args:
        rows: of all parts.
        name: of the part that has to be mended.
    """
    others = [row["part"] for row in rows if row["follows"] == name]
    return f"for the same reason not ok: {', '.join(others)}" if others else ""


def _age_text(age_ms: int | None) -> str:
    return "-" if age_ms is None else person_ms(age_ms)


def _print(status: Status) -> None:
    page = Page()
    page.paragraph("", terminal_text(status.verdict.text), Tone.TITLE, indent=0)
    page.line()
    rows = [_row(part, status.time_ms) for part in status.parts]
    for part, row in zip(status.parts, rows, strict=True):
        if part.follows:
            continue
        head = f"{part.part:<10} {part.state.value:<4} {_age_text(row['age_ms']):>8}"
        page.paragraph(head, terminal_text(part.figure), _TONES.get(part.state), indent=_HEAD)
        if others := following_text(rows, part.part):
            page.paragraph("", others, indent=_HEAD)
        if part.next:
            page.paragraph(" " * _HEAD + "->", part.next, indent=_HEAD + 3)
