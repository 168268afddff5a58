"""`kquota doctor`: whether all lines are counted and tables can be trusted; `--before`: whether the audit can start."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kquota_spark.cli.exit_codes import DONE, ERROR, FOUND
from kquota_spark.cli.options import (
    DEFAULT_CONFIG,
    add_form_option,
    add_settings_options,
    settings_of,
)
from kquota_spark.cli.settings_file import WHOLE_FILE
from kquota_spark.cli.text.page import Page, Tone, print_line
from kquota_spark.cli.text.render import Format, Report, show
from kquota_spark.config.settings import Settings
from kquota_spark.config.substitution import missing_values
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import type_text
from kquota_spark.process.check import Check, Status, fail, ok, warn
from kquota_spark.process.clock import now_ms

COMMANDS = {
    "doctor": (
        "answers",
        "check that every line is counted and every table is up to date",
        "kquota doctor --before",
        "kquota doctor",
    ),
}
CODES = {
    "doctor": {DONE: "all checks pass", ERROR: "an error, or a usage error", FOUND: "a check fails"},
}

_COLUMNS = ("status", "what", "evidence", "advice")
_TONES = {Status.FAIL: Tone.OVER, Status.WARN: Tone.BAD}
_NAME = 18
"""Columns of a check's name."""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `doctor`."""
    parser = subparsers.add_parser("doctor")
    add_settings_options(parser)
    parser.add_argument(
        "--before",
        action="store_true",
        help="ahead of the first run: settings, servers, the log topic, this machine",
    )
    parser.add_argument("--all", action="store_true", help="print the checks that are ok too")
    add_form_option(parser)
    parser.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    """Run the checks; returns `FOUND` if one failed."""
    if options.before:
        verdict = partial(before_verdict, options.config)
        return show_checks(
            "kquota doctor --before", _before(options), options.output, verdict, is_whole=options.all
        )
    from kquota_spark.doctor.checks import run_checks

    settings = settings_of(options)
    verdict = partial(_verdict, settings.cluster_id)
    if options.output == "table" and (agreed := _agreement(settings)):
        Page().paragraph("", agreed, indent=0)
        sys.stdout.flush()
    checks = run_checks(settings, now_ms)
    return show_checks(
        "kquota doctor", checks, options.output, verdict, is_whole=options.all, cluster_id=settings.cluster_id
    )


def _agreement(settings: Settings) -> str:
    """The agreement of all decisions, with what it leaves out; empty without tables, which a check reports."""
    from kquota_spark.cli.question import agreement_text
    from kquota_spark.reports.agreement.agreement import total
    from kquota_spark.store.reading import Tables

    try:
        with Tables(settings) as tables:
            found = total(tables)
    except UserError:
        return ""
    return "" if found is None or not found["requests_judged"] else agreement_text(found)


def show_checks(
    command: str,
    checks: Iterable[Check],
    form: Format,
    verdict: Callable[[Counts], str],
    *,
    is_whole: bool = True,
    cluster_id: str = "",
) -> int:
    """Print the checks; in a table those that are not ok come first, each when it is done.

    Args:
        command: name in the envelope of the answer.
        checks: in the order in which they are made.
        form: of the output; all but the table have every check.
        verdict: makes the last line.
        is_whole: whether a table has the checks that are ok as well.
        cluster_id: a table leaves out this name at the start of the evidence; empty for none.

    Returns:
        `FOUND` if a check failed.
    """
    found = list[Check]()
    for check in checks:
        found.append(check)
        if form == "table" and check.status is not Status.OK:
            _print(check, cluster_id)
    counts = Counts(*(sum(check.status is status for check in found) for status in Status))
    text = verdict(counts)
    if form == "table":
        for check in found:
            if is_whole and check.status is Status.OK:
                _print(check, cluster_id)
        if counts.ok and not is_whole:
            print_line(f"{_checks(counts.ok)} {'is' if counts.ok == 1 else 'are'} ok (--all shows them)")
        print_line(terminal_text(text))
    else:
        rows = [asdict(check) | {"status": check.status.value} for check in found]
        show(Report(command, _COLUMNS, rows, (), envelope={"verdict": text, **counts._asdict()}), form)
    return FOUND if counts.fail else DONE


class Counts(NamedTuple):
    """Number of checks by status; the names are those of `Status`."""

    ok: int
    warn: int
    fail: int

    @property
    def text(self) -> str:
        """Those that are not ok, as `2 checks fail, 1 warns`."""
        parts = list[str]()
        for count, one, many in ((self.fail, "fails", "fail"), (self.warn, "warns", "warn")):
            if count:
                noun = f"{count:,}" if parts else _checks(count)
                parts.append(f"{noun} {one if count == 1 else many}")
        return ", ".join(parts)


def _checks(count: int) -> str:
    return f"{count:,} check{'' if count == 1 else 's'}"


def _verdict(cluster_id: str, counts: Counts) -> str:
    """The last line after a run."""
    if counts.fail:
        return f"{cluster_id}: {counts.text}: do not rely on the results before it is mended"
    if counts.warn:
        return f"{cluster_id}: {counts.text}: the results are right, or they show where they are not"
    return f"{cluster_id}: every line is counted, and every table is up to date"


def before_verdict(config: Path | None, counts: Counts) -> str:
    """The last line of the checks ahead of a run: whether it can start, and with which command."""
    if counts.fail:
        return f"not ready: {counts.text}"
    given = f" --config {shlex.quote(os.fspath(config))}" if config else ""
    return f"ready: kquota audit{given} starts it{f' ({counts.text})' if counts.warn else ''}"


def _print(check: Check, cluster_id: str) -> None:
    """One check: status, name and evidence, and below it what to do."""
    page, lead = Page(), f"{check.status.value:<5}  {_name(check.what):<{_NAME}}  "
    is_cut = sys.stdout.isatty()
    evidence = check.evidence.removeprefix(f"{cluster_id}: ") if cluster_id else check.evidence
    texts = [evidence, f"fix: {check.advice}"] if check.advice else [evidence]
    for label, text in zip((lead, ""), texts, strict=False):
        if is_cut:
            page.paragraph(label, terminal_text(text), _TONES.get(check.status), indent=len(lead))
        else:
            print_line(f"{label:<{len(lead)}}{terminal_text(text)}")
    sys.stdout.flush()


def _name(what: str) -> str:
    """The name for people: types of quotas have a short form."""
    *words, last = what.split(" ")
    return terminal_text(" ".join([*words, type_text(last)]))


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
