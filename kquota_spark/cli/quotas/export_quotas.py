"""`kquota export`: the quotas of a cluster, or of the tables as of any moment, as a file of ours or of another tool."""

from __future__ import annotations

import argparse
import sys
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.cli.chosen.cluster_choice import add_cluster_options, chosen_cluster
from kquota_spark.cli.options.options import add_tables_option, settings_of, time_argument
from kquota_spark.cli.quotas.quota_edits import entities_text
from kquota_spark.cli.text.page import print_as_it_is, say
from kquota_spark.cli.text.render import Report, Shown, show
from kquota_spark.errors import UserError
from kquota_spark.formats.exchange import NAMES
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.model.quotas.quota_set import QuotaSet, in_order
from kquota_spark.process.clock import now_ms
from kquota_spark.process.replaced_file import replace_file
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.formats.exchange.registry import Format

_MOST_TOLD = 20


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `export`."""
    parser = subparsers.add_parser(
        "export",
        description="{about}. Exit codes: 0 done, 1 an error, or quotas that the format cannot say, 2 wrong usage.",
    )
    parser.add_argument(
        "--format",
        choices=NAMES,
        metavar="F",
        help=f"{', '.join(NAMES)} (default by the suffix of --to, else {NAMES[0]})",
    )
    parser.add_argument(
        "--formats", action="store_true", help="only show what formats there are, and what they can say"
    )
    parser.add_argument("--to", type=Path, metavar="FILE", help="write there instead of to standard output")
    parser.add_argument(
        "--partial", action="store_true", help="leave out what the format cannot say, and tell what that is"
    )
    add_cluster_options(parser)
    tables = parser.add_argument_group("tables", "instead of a running cluster: what the audit has recorded")
    add_tables_option(tables)
    tables.add_argument(
        "--at",
        type=time_argument,
        metavar="T",
        help="as of then: 10m, 2h, 1d ago, an ISO time in UTC, or epoch milliseconds (default now)",
    )
    parser.set_defaults(run=run_export, usage=parser.error)


def run_export(options: argparse.Namespace) -> int:
    """Read and write.

    Raises:
        UserError: the source cannot be read, the file cannot be written, or the format cannot say it all.
        SystemExit: with 2: a cluster and the tables at once.
    """
    if options.formats:
        return _show_formats()
    form = _format_of(options)
    if options.at is not None or options.tables is not None:
        origin, quotas = _of_tables(options)
    else:
        with chosen_cluster(options) as cluster:
            origin, quotas = cluster.origin, cluster.read()
    if options.partial:
        quotas = _sayable(form, quotas)
    text = _written(form, quotas, is_partial=options.partial)
    if not quotas:
        say(terminal_text(f"kquota: note: no quotas in {origin}"), sys.stderr)
    if options.to is None:
        print_as_it_is(text)
    else:
        replace_file(options.to, text.encode())
        values = sum(map(len, quotas.values()))
        say(
            terminal_text(
                f"{entities_text(len(quotas))}, {values:,} values of {origin} in {options.to} ({form.name})"
            ),
            sys.stderr,
        )
    return 0


def _show_formats() -> int:
    from kquota_spark.formats.exchange.registry import FORMATS

    rows = [{"format": form.name, "about": form.about, "says": form.says} for form in FORMATS.values()]
    shown = tuple(Shown(name, itemgetter(name), is_text=True) for name in rows[0])
    show(Report("kquota export", tuple(rows[0]), rows, shown), "table")
    return 0


def _format_of(options: argparse.Namespace) -> Format:
    from kquota_spark.formats.exchange.registry import FORMATS, guess

    if options.format is not None:
        return FORMATS[options.format]
    by_suffix = guess("", str(options.to or ""))
    return by_suffix[0] if len(by_suffix) == 1 else FORMATS[NAMES[0]]


def _of_tables(options: argparse.Namespace) -> tuple[str, QuotaSet]:
    from kquota_spark.quotas.stored import stored_quota_set
    from kquota_spark.store.reading import open_tables

    given = [
        f"--{name.replace('_', '-')}"
        for name in ("context", "bootstrap_server", "command_config", "zookeeper")
        if getattr(options, name) is not None
    ]
    if given:
        options.usage(
            f"{', '.join(given)}: a cluster tells only what holds now; --at and --tables are of the tables"
        )
    settings = settings_of(options)
    at_ms = now_ms() if options.at is None else options.at.time_ms
    with open_tables(settings) as tables:
        stored = stored_quota_set(tables, settings, at_ms)
    if stored.known_through_ms is not None and stored.known_through_ms < at_ms:
        say(f"kquota: note: edits after {utc_text(stored.known_through_ms)} are not known", sys.stderr)
    return stored.origin, stored.quotas


def _sayable(form: Format, quotas: QuotaSet) -> QuotaSet:
    """What the format can say entity by entity; told is what it cannot."""
    refused: list[str] = []
    found = {}
    for entity in in_order(quotas):
        try:
            form.write({entity: quotas[entity]})
        except ValueError as error:
            refused += str(error).split("\n")
        else:
            found[entity] = quotas[entity]
    for problem in refused[:_MOST_TOLD]:
        say(terminal_text(f"kquota: left out: {problem}"), sys.stderr)
    if len(refused) > _MOST_TOLD:
        say(f"kquota: left out: {len(refused) - _MOST_TOLD:,} more", sys.stderr)
    return found


def _written(form: Format, quotas: QuotaSet, *, is_partial: bool) -> str:
    try:
        return form.write(quotas)
    except ValueError as error:
        problems = [f"{form.name} cannot say {problem}" for problem in str(error).split("\n")]
        if not is_partial:
            problems.append("nothing was written: --partial leaves these out, other formats may say them")
        raise UserError("\n".join(problems)) from error
