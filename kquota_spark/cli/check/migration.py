"""`kquota migration`: two sides of a migration or an upgrade, by their effect on the recorded traffic."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.cli.exit_codes import DONE, ERROR
from kquota_spark.cli.options import settings_of, time_argument, whole_number
from kquota_spark.cli.quotas.quota_sides import named_side, stored_side
from kquota_spark.cli.quotas.review import (
    HARM,
    PERSON,
    add_traffic_options,
    asked_of,
    budget_argument,
    code_of,
    print_review,
)
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.ports import Image
from kquota_spark.errors import UserError
from kquota_spark.model.compare.tried_brokers import TriedBrokers
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.any_file import STDIN

if TYPE_CHECKING:
    from kquota_spark.reports.migration.checking import Sides

COMMANDS = {
    "migration": (
        "quotas",
        "whether a migration or an upgrade changes what clients get, by the recorded traffic",
        "kquota migration --before old-zookeeper --after new-kraft --since 7d",
        "kquota migration --to-version 3.9 --since 1d",
    ),
}
CODES = {
    "migration": {
        DONE: "pass: no client gets anything else",
        ERROR: "an error, or a usage error",
        PERSON: "needs a person",
        HARM: "stop: mangled names, or more delay than the budget",
    },
}
_TABLES = "tables"


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `migration`."""
    parser = subparsers.add_parser(
        "migration",
        description="Compares two sides of a migration or an upgrade: two sets of quotas, or the same quotas with "
        "other brokers. Prints Markdown for a ticket: the clients that get another limit or verdict, with the delay "
        "before and after in the recorded traffic, and mangled names.",
    )
    about = "a file of quotas in any format, - for standard input, a saved context, tables, or tables@TIME"
    parser.add_argument(
        "--before", metavar="SIDE", help=f"{about}; left out: the quotas of the tables over time"
    )
    parser.add_argument("--after", metavar="SIDE", help="likewise; left out: the same quotas as before")
    brokers = parser.add_argument_group("brokers after", "settings that the change gives the brokers")
    brokers.add_argument(
        "--to-version", metavar="V", help="for example 3.9: up to 3.7 the sample ring is another one"
    )
    brokers.add_argument("--to-kraft", action="store_true", help="the brokers after are of KRaft")
    brokers.add_argument("--to-window-num", type=whole_number, metavar="N", help="quota.window.num")
    brokers.add_argument(
        "--to-window-size-seconds", type=whole_number, metavar="S", help="quota.window.size.seconds"
    )
    parser.add_argument(
        "--pass-delay", type=budget_argument, default=0, metavar="LENGTH",
        help="more total delay up to this needs no person: 0, 30s, 10min (default 0)",
    )  # fmt: skip
    add_traffic_options(parser)
    parser.set_defaults(run=run_migration_check)


def run_migration_check(options: argparse.Namespace) -> int:
    """Print the check; returns the verdict.

    Raises:
        UserError: a side or a table cannot be read.
    """
    from kquota_spark.reports.migration.checking import check
    from kquota_spark.reports.review.wording import MIGRATION
    from kquota_spark.store.reading import Tables

    settings = settings_of(options, "tables")
    if options.tables is not None:
        with Tables(settings) as tables:
            tables.require_root()
    asked = asked_of(options.since, options.budget_delay)
    found = check(
        settings,
        _sides(options.before, options.after, _brokers(options), settings),
        asked,
        options.pass_delay,
    )
    code = code_of(found)
    print_review(found, code, options.output, MIGRATION)
    return code


def _sides(before: str | None, after: str | None, brokers: TriedBrokers, settings: Settings) -> Sides:
    """Read what to compare.

    Args:
        before: the side before; None for the quotas of the tables over time.
        after: the side after; None for the same quotas.
        brokers: those after the change.
        settings: of the tables.

    Raises:
        UserError: nothing differs, or a side cannot be read.
    """
    from kquota_spark.reports.migration.checking import Sides, history_sides

    if before is None and after is not None:
        raise UserError("--after: name --before too")
    if after is None and not brokers.is_any:
        raise UserError(
            "nothing to compare: name --before and --after, or the brokers after, for example --to-version"
        )
    if before is None:
        return history_sides(settings, brokers)
    if before == after == STDIN:
        raise UserError("-: standard input is one side only; a file of this name is ./-")
    first = _side(before, settings)
    return Sides(first, first if after is None else _side(after, settings), brokers)


def _side(text: str, settings: Settings) -> Image:
    """The quotas of one side.

    Raises:
        UserError: they cannot be read.
    """
    name, mark, at = text.partition("@")
    if name != _TABLES or Path(text).exists():
        return named_side(text, has_copies=True)
    try:
        time_ms = time_argument(at).time_ms if mark else now_ms()
    except argparse.ArgumentTypeError as error:
        raise UserError(f"{text}: {error}") from None
    image = stored_side(settings, time_ms)
    return Image(f"{image.origin} as of {at}", image.quotas, cluster_id=image.cluster_id) if mark else image


def _brokers(options: argparse.Namespace) -> TriedBrokers:
    numbers = options.to_window_num, options.to_window_size_seconds
    if 0 in numbers:
        raise UserError("--to-window-num and --to-window-size-seconds: expected 1 or more")
    try:
        return TriedBrokers(options.to_version, *numbers, is_kraft=options.to_kraft)
    except ValueError:
        raise UserError(f"--to-version: {options.to_version!r}, expected e.g. 3.9 or 3.7.2") from None
