"""`kquota maintain`: deletes old dates, puts small files together, removes replaced files."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from functools import partial

from kquota_spark.cli.options.options import add_form_option, add_settings_options, settings_of
from kquota_spark.cli.text.render import Report, Row, Shown, show
from kquota_spark.process.clock import now_ms

_COLUMNS = ("table", "action", "date", "files", "note")


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `maintain`."""
    command = subparsers.add_parser(
        "maintain",
        description="Deletes dates beyond maintain.retention, puts the small files of closed dates together, and "
        "removes files that were replaced longer than maintain.file_retention ago. May run beside the audit.",
    )
    add_settings_options(command)
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    add_form_option(command)
    command.set_defaults(run=run_maintain)


def run_maintain(options: argparse.Namespace) -> int:
    """Maintain the tables, and list what was done.

    Raises:
        UserError: a table cannot be read or written.
    """
    from kquota_spark.audit.past.maintain import maintain, roll_up_agreement
    from kquota_spark.reports.agreement import agreement

    rows: list[Row] = []
    roll_ups = (partial(roll_up_agreement, rows_of=agreement.of_day),)
    for step in maintain(settings_of(options), now_ms(), is_dry_run=options.dry_run, roll_ups=roll_ups):
        rows.append(asdict(step))
        if sys.stderr.isatty():
            print(f"{step.table}: {step.action} {step.date}", file=sys.stderr)
    footer = "nothing was changed: this is what would be done" if options.dry_run else ""
    show(Report("kquota maintain", _COLUMNS, rows, shown=_SHOWN, footer=footer, is_cut=False), options.output)
    return 0


_SHOWN = (
    Shown("table", lambda row: row["table"], is_text=True),
    Shown("action", lambda row: row["action"], is_text=True),
    Shown("date", lambda row: row["date"], is_text=True),
    Shown("files", lambda row: f"{row['files']:,}"),
    Shown("note", lambda row: row["note"], is_text=True),
)
