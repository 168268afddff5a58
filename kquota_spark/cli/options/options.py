"""Options that the commands share: which settings and tables, which form of output, which rows."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from kquota_spark.cli.text.render import FORMATS
from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS
from kquota_spark.process.clock import now_ms

DEFAULT_CONFIG = Path("conf") / "kquota.yaml"
TYPES = ("produce", "fetch", "request", "controller_mutation", "connection")
TIME_FORMS = "30s, 10m, 2h, 1d ago, an ISO time in UTC, or epoch milliseconds"
_TABLE_LIMIT = 50
_AGO = re.compile(r"(\d+)\s*(s|m|min|h|d)(?:\s+ago)?")
_EPOCH_MS = re.compile(r"\d{12,15}")
_AGO_MS = {"s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Since(NamedTuple):
    """A point in time, as written and as epoch milliseconds."""

    text: str
    time_ms: int


def add_settings_options(parser: argparse.ArgumentParser) -> None:
    """Add --config and --tables."""
    add_config_option(parser)
    add_tables_option(parser)


def add_tables_option(parser: argparse._ActionsContainer) -> None:
    """Add --tables."""
    parser.add_argument("--tables", metavar="PATH", help="root of the tables, instead of the settings' own")


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """Add --config."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"settings (default {DEFAULT_CONFIG} if it is there, else the built-in defaults)",
    )


class SettingsPlace(NamedTuple):
    """--config and --tables as given."""

    config: Path | None
    tables: str | None


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings that --config and, of commands that have it, --tables ask for.

    Raises:
        UserError: the file cannot be read or is not valid.
    """
    path: Path | None = options.config
    if path is None and DEFAULT_CONFIG.exists():
        path = DEFAULT_CONFIG
    return settings_from(path, getattr(options, "tables", None))


def settings_from(path: Path | None, tables: str | None) -> Settings:
    """The settings of a file, or the built-in ones; never those of the working directory.

    Raises:
        UserError: the file cannot be read or is not valid.
    """
    settings = Settings() if path is None else load_settings(path)
    return settings if tables is None else dataclasses.replace(settings, tables=tables)


def add_form_option(parser: argparse.ArgumentParser, forms: Sequence[str] = FORMATS) -> None:
    """Add --output; alone for what is never cut to a number of rows."""
    parser.add_argument("--output", choices=forms, default="table", help="form of the output (default table)")


def add_output_options(parser: argparse.ArgumentParser, forms: Sequence[str] = FORMATS) -> None:
    """Add --output and --limit."""
    add_form_option(parser, forms)
    parser.add_argument(
        "--limit",
        type=whole_number,
        metavar="N",
        help=f"at most N rows, 0 for all (default {_TABLE_LIMIT} in a table, all in the other forms)",
    )


def limit_of(options: argparse.Namespace) -> int | None:
    """The largest number of rows to show; None for all."""
    if options.limit is None:
        return _TABLE_LIMIT if options.output == "table" else None
    return options.limit or None


def add_yes_option(parser: argparse.ArgumentParser) -> None:
    """Add --yes."""
    parser.add_argument("--yes", action="store_true", help="do it; without, it only shows what it would do")


def add_bucket_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose buckets."""
    parser.add_argument(
        "--user", metavar="NAME", help="only this user, in a bucket of its own or inside another"
    )
    parser.add_argument("--client", metavar="ID", help="only this client id, likewise")
    parser.add_argument("--broker", type=whole_number, metavar="ID", help="only this broker")
    parser.add_argument("--type", choices=TYPES, help="only this quota type")


def add_filter_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose rows."""
    add_bucket_options(parser)
    add_time_option(parser, "--since", about=f"only from then on: {TIME_FORMS}")
    parser.add_argument("--throttled", action="store_true", help="only where requests were throttled")


def add_time_option(parser: argparse.ArgumentParser, *names: str, about: str) -> None:
    """Add an option that takes a moment."""
    parser.add_argument(*names, type=time_argument, metavar="T", help=about)


def since(text: str, now_ms: int) -> Since:
    """The time of a --since or --at.

    Raises:
        ValueError: neither a length of time, nor an ISO time, nor epoch milliseconds; or no time of the years
            1970 to 9999, the only ones that the tables hold.
    """
    time_ms = _time_ms(text.strip(), now_ms)
    if not BEGINNING_MS <= time_ms <= END_MS:
        raise ValueError(text)
    return Since(text, time_ms)


def _time_ms(text: str, now_ms: int) -> int:
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms - _length_ms(ago)
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)


def _length_ms(match: re.Match[str]) -> int:
    return int(match.group(1)) * _AGO_MS[match.group(2)]


def time_argument(text: str) -> Since:
    """`since` as a type of argparse, relative to the clock of this machine."""
    try:
        return since(text, now_ms())
    except (ValueError, OverflowError):
        expected = "a length of time (30s, 10m, 2h, 1d) or a time such as 2026-11-21T05:40:00Z, 1970 to 9999"
        raise argparse.ArgumentTypeError(f"{text!r}, expected {expected}") from None


def length_argument(text: str) -> int:
    """A length of time such as 30s, 10m, 2h, 1d in milliseconds, as a type of argparse."""
    length = _AGO.fullmatch(text.strip())
    if length is not None and 0 < _length_ms(length) <= END_MS:
        return _length_ms(length)
    raise argparse.ArgumentTypeError(f"{text!r}, expected a length of time: 30s, 10m, 2h, 1d")


def whole_number(text: str) -> int:
    """A number without sign, as a type of argparse."""
    if text.isascii() and text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}, expected a whole number")
