"""Options that commands share: settings and tables, form of output, filters of rows."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from kquota_spark.cli.settings_file import settings_from
from kquota_spark.cli.text.columns import column
from kquota_spark.cli.text.render import FORMATS, Row, Shown
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import entity_text
from kquota_spark.formats.text.person_units import bucket_text as person_bucket
from kquota_spark.formats.text.person_units import counted, iso_time
from kquota_spark.model.quotas.quota_types import TYPES
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS
from kquota_spark.process.clock import now_ms
from kquota_spark.store.reading import Result, Tables, utc_text

DEFAULT_CONFIG = Path("conf") / "kquota.yaml"
TIME_FORMS = "30s, 10m, 2h, 1d ago, an ISO time in UTC, or epoch milliseconds"
_TABLE_LIMIT = 50
_AGO = re.compile(r"([0-9]+)\s*(s|m|min|h|d)(?:\s+ago)?")
_EPOCH_MS = re.compile(r"[0-9]{12,15}")
_PRINTED_ZONE = " UTC"
"""The end of a time in messages, so that a printed time can be pasted."""
_AGO_MS = {"s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
RULE_LEGEND = "rule: u/ user, c/ client id, * the default"
JMX_LEGEND = "jmx: the broker's own rate, sampled; the throttle is a mean of its last minute"
_DAY_MS = 86_400_000


class Since(NamedTuple):
    """A point in time: the text as written, and epoch ms."""

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
    """The values of --config and --tables."""

    config: Path | None
    tables: str | None


def settings_of(options: argparse.Namespace, *uses: str) -> Settings:
    """The settings that --config names, with the root of --tables if the command has that option.

    Args:
        options: parsed options of the command.
        uses: sections that must be valid, see `settings_from`. Mistakes elsewhere are a warning.

    Raises:
        UserError: the file cannot be read, or a section that must be valid has a mistake.
    """
    path: Path | None = options.config
    if path is None and DEFAULT_CONFIG.exists():
        path = DEFAULT_CONFIG
    tables = getattr(options, "tables", None)
    options.has_only_defaults = path is None and tables is None  # an error about a setting then mentions it
    return settings_from(path, tables, *uses)


def add_form_option(parser: argparse.ArgumentParser, forms: Sequence[str] = FORMATS) -> None:
    """Add --output without --limit, for output that always has all rows."""
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
    """The maximum number of rows to show; None for all."""
    if options.limit is None:
        return _TABLE_LIMIT if options.output == "table" else None
    return options.limit or None


def add_yes_option(parser: argparse.ArgumentParser) -> None:
    """Add --yes."""
    parser.add_argument("--yes", action="store_true", help="do it; without, it only shows what it would do")


def add_client_option(parser: argparse._ActionsContainer, about: str) -> None:
    """Add the option of a client id, under both of its names."""
    parser.add_argument("--client-id", "--client", metavar="ID", help=about)


def add_bucket_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose buckets."""
    parser.add_argument(
        "--user", metavar="NAME", help="only this user, in a bucket of its own or inside another"
    )
    add_client_option(parser, "only this client id, likewise")
    parser.add_argument("--broker", type=whole_number, metavar="ID", help="only this broker")
    parser.add_argument("--type", choices=TYPES, help="only this quota type")


def add_filter_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that filter rows."""
    add_bucket_options(parser)
    parser.add_argument("--throttled", action="store_true", help="only where requests were throttled")


def only(**abouts: str) -> Callable[[argparse.ArgumentParser], None]:
    """Adds some of the options of `add_bucket_options`: those named, in this order.

    Args:
        abouts: the help of each by its name (`user`, `client_id`, `broker`, `type`); empty for the usual one.
    """
    whole = argparse.ArgumentParser(add_help=False)
    add_bucket_options(whole)
    usual = {action.dest: action for action in whole._actions}

    def add(parser: argparse.ArgumentParser) -> None:
        for name, about in abouts.items():
            action = copy(usual[name])
            action.help = about or action.help
            parser._add_action(action)

    return add


class PeriodOptions(NamedTuple):
    """How a command describes --since and --until, and its older names of them."""

    since: str = f"only from then on: {TIME_FORMS}"
    until: str = "only before then"
    older_since: tuple[str, ...] = ()
    older_until: tuple[str, ...] = ()


LAST_DAY = PeriodOptions(
    f"from then on: {TIME_FORMS} (default the last day of the tables)",
    "until then (default the newest second of the tables)",
)
"""The period of a command that shows the last day of the tables by default."""


def add_period_options(parser: argparse.ArgumentParser, words: PeriodOptions) -> None:
    """Add --since and --until."""
    add_time_option(parser, "--since", *words.older_since, about=words.since)
    add_time_option(parser, "--until", *words.older_until, about=words.until)


def add_time_option(parser: argparse.ArgumentParser, *names: str, about: str) -> None:
    """Add an option that takes a point in time."""
    parser.add_argument(*names, type=time_argument, metavar="T", help=about)


def since(text: str, now_ms: int) -> Since:
    """The time of a --since or --at.

    Raises:
        ValueError: neither a length of time, nor an ISO time, nor epoch milliseconds; or outside the years 1970 to
            9999, which the tables can hold.
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
    moment = datetime.fromisoformat(text.removesuffix(_PRINTED_ZONE))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)


def _length_ms(match: re.Match[str]) -> int:
    return int(match.group(1)) * _AGO_MS[match.group(2)]


def require_order(since: Since | None, until: Since | None) -> None:
    """Check the bounds of a period.

    Raises:
        UserError: --since is not before --until.
    """
    if since is not None and until is not None and since.time_ms >= until.time_ms:
        raise UserError(f"--since {utc_text(since.time_ms)} is not before --until {utc_text(until.time_ms)}")


def time_argument(text: str) -> Since:
    """`since` as a type of argparse, relative to the clock of this machine."""
    try:
        return since(text, now_ms())
    except (ValueError, OverflowError):
        expected = "a length of time (30s, 10m, 2h, 1d) or a time such as 2026-11-21T05:40:00Z, 1970 to 9999"
        raise argparse.ArgumentTypeError(f"{text!r}, expected {expected}") from None


def length_argument(text: str) -> int:
    """Milliseconds of a length of time such as 30s, 10m, 2h, 1d, as a type of argparse."""
    length = _AGO.fullmatch(text.strip())
    if length is not None and 0 < _length_ms(length) <= END_MS:
        return _length_ms(length)
    raise argparse.ArgumentTypeError(f"{text!r}, expected a length of time: 30s, 10m, 2h, 1d")


def whole_number(text: str) -> int:
    """A number without a sign, as a type of argparse."""
    if text.isascii() and text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}, expected a whole number")


def limited(tables: Tables, sql: str, values: Sequence[object], limit: int | None) -> tuple[Result, bool]:
    """The first rows of a query, and whether there are more than the limit.

    Args:
        tables: opened.
        sql: a trusted query without a limit of its own.
        values: for its `?`.
        limit: maximum rows; None for all.
    """
    if limit is None:
        return tables.query(sql, values), False
    found = tables.query(f"{sql} limit ?", [*values, limit + 1])
    return Result(found.columns, found.rows[:limit]), len(found.rows) > limit


def footer_text(rows: Sequence[Row], time: str, noun: str, *, has_more: bool) -> str:
    """The number of rows, their days, and how to show the rest.

    Args:
        rows: the shown rows.
        time: name of the time column, epoch ms.
        noun: name of a row, in the singular.
        has_more: whether the limit cut rows off.
    """
    if not rows:
        return ""
    days = [iso_time(extreme(row[time] for row in rows))[:10] for extreme in (min, max)]
    on = f"on {days[0]}" if days[0] == days[1] else f"from {days[0]} to {days[1]}"
    return f"{counted(len(rows), noun)}, newest first; times in UTC {on}{more_text(has_more)}"


def lines(*parts: str) -> str:
    """The parts that are not empty, each on a line."""
    return "\n".join(part for part in parts if part)


def more_text(has_more: object) -> str:
    """How to show the rows that the limit cut off, for the end of a footer; empty if there are none."""
    return "; there are more: --limit 0 shows all" if has_more else ""


def counted_text(total: int, noun: str, limit: int | None) -> str:
    """`1 bucket`, `7 buckets, 5 shown: --limit 0 shows all`."""
    return f"{counted(total, noun)}{more_of(total, limit)}"


def more_of(total: int, limit: int | None) -> str:
    """`, 5 shown: --limit 0 shows all`; empty if all are shown."""
    return f", {limit:,} shown: --limit 0 shows all" if limit and total > limit else ""


def spans_days(rows: Sequence[Row], time: str) -> bool:
    """Whether the rows are of several days, so that times of day alone are ambiguous."""
    return len({row[time] // _DAY_MS for row in rows}) > 1


def bucket_text(row: Row) -> str:
    """`user alice`, `client etl` or `alice / etl`; the bucket's own tags if a callback sets them, `group pay`."""
    return person_bucket(row["bucket_user"], row["bucket_client_id"], row["bucket_tags"])


def bucket_columns(keep: int = 24) -> tuple[Shown, ...]:
    """The columns that identify a bucket: broker, type, bucket (of which at least `keep` columns are shown), rule."""
    return (
        column("broker_id"),
        column("quota_type"),
        Shown("bucket", bucket_text, is_text=True, keep=keep),
        Shown("rule", rule_text, is_text=True, rank=9, note=RULE_LEGEND),
    )


def rule_text(row: Row) -> str:
    """The rule's entity in a short form that stays unique: `u/alice/c/*`."""
    # A sanitised name has no colon. A colon can only follow the module of a callback.
    rule = (row["rule"] or "-").rpartition(":")[2]
    # Names are sanitised here: no name contains a slash or a star, so no name can be mistaken for these.
    for long, short in (("users/", "u/"), ("clients/", "c/"), ("<default>", "*")):
        rule = rule.replace(long, short)
    return entity_text(rule)


def with_source(rows: Sequence[Row], shown: tuple[Shown, ...]) -> tuple[Shown, ...]:
    """The columns, with the source if some rows are not from the log."""
    if all(row["source"] == "log" for row in rows):
        return shown
    return (*shown, Shown("source", lambda row: row["source"], is_text=True, rank=3))


def legend(rows: Sequence[Row], *of_log: str) -> str:
    """The notes below the rows; the note about JMX only if rows are from JMX."""
    return "\n".join([*of_log, *([JMX_LEGEND] if any(row["source"] == "jmx" for row in rows) else [])])


def with_cluster(rows: Sequence[Row], shown: tuple[Shown, ...]) -> tuple[Shown, ...]:
    """The columns, with the cluster if the rows are of several clusters."""
    if len({row.get("cluster_id") for row in rows}) < 2:
        return shown
    return (Shown("cluster", lambda row: row["cluster_id"], is_text=True, keep=8), *shown)


def percent_text(share: float | None) -> str:
    """`99.93 %`; 100 only if no verdict differs, `-` if no verdict was judged."""
    if share is None:
        return "-"
    return f"{min(share, 99.99) if share < 100 else share:.2f} %"
