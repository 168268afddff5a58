"""`kquota backfill`: archived request logs into the table `requests`."""

from __future__ import annotations

import argparse
import glob
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.cli.options.options import add_settings_options, settings_of
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text

if TYPE_CHECKING:
    from kquota_spark.audit.past.backfill import Backfilled

_EXPECTED = "expected <broker id>=<path or pattern>, e.g. '1=/archive/broker1/kafka-request.log.*.gz'"


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `backfill`."""
    parser = subparsers.add_parser(
        "backfill",
        description="Parses archived request logs (plain or .gz) as the job does and appends them to the table"
        " requests, each file once. Stop the job first. Afterwards run kquota restate for the period of the files:"
        " it measures and judges them.",
    )
    add_settings_options(parser)
    parser.add_argument(
        "--file",
        action="append",
        required=True,
        metavar="ID=PATH",
        help="log of broker ID; a pattern in quotes takes several, in the order of their names; may be repeated",
    )
    parser.set_defaults(run=run_backfill)


def run_backfill(options: argparse.Namespace) -> int:
    """Append the files."""
    from kquota_spark.audit.past.backfill import backfill

    settings = settings_of(options)
    found: list[Backfilled] = []
    try:
        backfill(settings, _files(options.file), found.append)
    finally:
        for file in found:
            print(_told(file), file=sys.stderr)
    print(
        "next: kquota restate for this period, which measures and judges these lines",
        file=sys.stderr,
    )
    return 0


def _files(texts: Sequence[str]) -> list[tuple[int, Path]]:
    """The files of all options, those of a pattern sorted by name.

    Raises:
        UserError: an option is not of the form, or finds nothing.
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


def _told(file: Backfilled) -> str:
    from kquota_spark.store.reading import utc_text

    told = f"{terminal_text(str(file.path))}: {file.lines:,} lines"
    if file.unreadable:
        told += f", {file.unreadable:,} of them unreadable"
    if file.first_ms is not None and file.last_ms is not None:
        told += f", {utc_text(file.first_ms)} to {utc_text(file.last_ms)}"
    return told
