"""`kquota backfill`, `restate` and `maintain`: write, recompute and clean up past days of the tables."""

from __future__ import annotations

import argparse
import glob
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.cli.options import (
    TIME_FORMS,
    add_form_option,
    add_settings_options,
    settings_of,
    time_argument,
)
from kquota_spark.cli.quotas.undo import settings_words
from kquota_spark.cli.text.render import Report, Row, Shown, show
from kquota_spark.embedded.setup.spark import prepare_spark
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.process.clock import now_ms
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.audit.past.backfill import Backfilled

COMMANDS = {
    "backfill": (
        "programs",
        "archived request logs into the tables",
        "kquota backfill --file 1=/archive/kafka-request.log.2026-11-20",
    ),
    "restate": (
        "programs",
        "recompute a closed period: late lines, quotas that were known too late",
        "kquota restate --from 2026-11-20T10:00 --to 2026-11-20T12:00",
    ),
    "maintain": (
        "programs",
        "delete old dates, compact closed ones, remove files that nobody reads; run it daily",
        "kquota maintain --dry-run",
        "kquota maintain",
    ),
}

_EXPECTED = "expected <broker id>=<path or pattern>, e.g. '1=/archive/broker1/kafka-request.log.*.gz'"


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `backfill`, `restate` and `maintain`."""
    backfill = subparsers.add_parser(
        "backfill",
        description="Parses archived request logs (plain or .gz) as the job does and appends them to the table"
        " requests, each file once. Stop the job first. Afterwards run kquota restate for the period of the files:"
        " it measures and judges them.",
    )
    add_settings_options(backfill)
    backfill.add_argument(
        "--file",
        action="append",
        required=True,
        metavar="ID=PATH",
        help="log of broker ID; a pattern in quotes takes several, in the order of their names; may be repeated",
    )
    backfill.set_defaults(run=run_backfill)
    restate = subparsers.add_parser(
        "restate",
        description="Recompute usage, decisions and violations of a closed period from requests, with the quotas "
        "that are known now. May run beside the audit; needs Spark, like spark-submit jobs/restate.py.",
    )
    add_settings_options(restate)
    restate.add_argument(
        "--from", dest="start", type=time_argument, required=True, metavar="T", help=TIME_FORMS
    )
    restate.add_argument(
        "--to", dest="end", type=time_argument, required=True, metavar="T", help="exclusive; likewise"
    )
    restate.set_defaults(run=run_restate)
    maintain = subparsers.add_parser(
        "maintain",
        description="Deletes dates beyond maintain.retention, puts the small files of closed dates together, and "
        "removes files that were replaced longer than maintain.file_retention ago. May run beside the audit.",
    )
    add_settings_options(maintain)
    maintain.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    add_form_option(maintain)
    maintain.set_defaults(run=run_maintain)


def run_backfill(options: argparse.Namespace) -> int:
    """Append archived log files to the table `requests`."""
    from kquota_spark.audit.past.backfill import backfill

    settings = settings_of(options, "tables", "checkpoints", "kafka", "quotas", "broker", "stream")
    found: list[Backfilled] = []
    try:
        backfill(settings, _files(options.file), found.append)
    finally:
        for file in found:
            print(_file_text(file), file=sys.stderr)
    print(f"next: {_restate(found, settings_words(options))}", file=sys.stderr)
    return 0


def _restate(found: Sequence[Backfilled], settings: Sequence[str]) -> str:
    """The command that restates the period of the files, with these words for its settings."""
    first = [file.first_ms for file in found if file.first_ms is not None]
    last = [file.last_ms for file in found if file.last_ms is not None]
    if not first or not last:
        return "kquota restate for the period of these files, which measures and judges their lines"
    from_ms, to_ms = min(first) // 1_000 * 1_000, max(last) // 1_000 * 1_000 + 1_000
    period = ["--from", iso_time(from_ms), "--to", iso_time(to_ms)]
    return terminal_text(shlex.join(["kquota", "restate", *period, *settings]))


def _files(texts: Sequence[str]) -> list[tuple[int, Path]]:
    """The files of all options with their broker ids; the files of a pattern are sorted by name.

    Raises:
        UserError: an option does not have the form `ID=PATH`, or matches no file.
    """
    files = []
    for text in texts:
        number, _, pattern = text.partition("=")
        if not (number.isascii() and number.isdigit() and pattern):
            raise UserError(f"--file: {text!r}, {_EXPECTED}")
        paths = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern))  # noqa: PTH207 - a pattern of the whole path
        if not paths:
            raise UserError(f"--file: {text!r}: no such file")
        files += [(int(number), Path(path)) for path in paths]
    return files


def _file_text(file: Backfilled) -> str:
    text = f"{terminal_text(str(file.path))}: {file.lines:,} lines"
    if file.unreadable:
        text += f", {file.unreadable:,} of them unreadable"
    if file.first_ms is not None and file.last_ms is not None:
        text += f", {utc_text(file.first_ms)} to {utc_text(file.last_ms)}"
    return text


def run_restate(options: argparse.Namespace) -> int:
    """Recompute a period, and print what was written.

    Raises:
        UserError: the period is not closed, Spark is missing, or a table cannot be read or written.
    """
    settings = settings_of(options, "tables", "checkpoints", "kafka", "quotas", "broker", "stream")
    prepare_spark("restate")
    from kquota_spark.audit.past.restate import run_restate as run

    done = run(settings, options.start.time_ms, options.end.time_ms)
    print(
        f"restated {utc_text(done.from_ms)} to {utc_text(done.to_ms)}: {done.usage_rows:,} rows of usage; "
        f"{done.decision_rows:,} of decisions, through {utc_text(done.decisions_to_ms)}"
    )
    if done.cold_buckets:
        print(
            f"{done.cold_buckets:,} buckets were in use without a pause for a day before: their samples may have "
            "opened elsewhere, and rates may differ a little from what the broker measured",
            file=sys.stderr,
        )
    if done.unsettled_buckets:
        print(
            f"{done.unsettled_buckets:,} buckets have not paused since: the audit continues with samples that lack "
            "the late requests; restate once more when they have",
            file=sys.stderr,
        )
    return 0


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def run_maintain(options: argparse.Namespace) -> int:
    """Maintain the tables, and list each step.

    Raises:
        UserError: a table cannot be read or written.
    """
    from kquota_spark.audit.past.maintain import maintain, roll_up_agreement
    from kquota_spark.reports.agreement import agreement
    from kquota_spark.reports.budgets.day_roll_up import BudgetRollUp
    from kquota_spark.reports.impact.kept_impacts import KeptImpacts
    from kquota_spark.reports.right_sizes.demand_roll_up import DemandRollUp
    from kquota_spark.reports.why.keeping import KeptCauses

    rows: list[Row] = []
    roll_ups = (
        partial(roll_up_agreement, rows_of=agreement.of_day),
        KeptImpacts(),
        KeptCauses(_progress),
        BudgetRollUp(),
        DemandRollUp(),
    )
    for step in maintain(
        settings_of(options, "tables", "maintain"), now_ms(), is_dry_run=options.dry_run, roll_ups=roll_ups
    ):
        rows.append(asdict(step))
        _progress(f"{step.table}: {step.action} {step.date}")
    footer = "nothing was changed: this is what would be done" if options.dry_run else ""
    columns = ("table", "action", "date", "files", "note")
    shown = (
        *(Shown(name, itemgetter(name), is_text=True) for name in columns[:3]),
        Shown("files", lambda row: f"{row['files']:,}"),
        Shown("note", itemgetter("note"), is_text=True),
    )
    show(Report("kquota maintain", columns, rows, shown, footer=footer, is_cut=False), options.output)
    return 0
