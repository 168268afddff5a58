"""`kquota top`: the current state of quota buckets, on a full screen that follows the tables, or once as a table."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace

from kquota_spark.cli.options import (
    JMX_LEGEND,
    SettingsPlace,
    add_bucket_options,
    add_output_options,
    add_settings_options,
    length_argument,
    limit_of,
    settings_of,
)
from kquota_spark.cli.text.page import columns_of
from kquota_spark.cli.text.render import Colour, Report, Row, show
from kquota_spark.cli.top.age import Age, age_of, stale_after_ms
from kquota_spark.cli.top.feed import Answer, Feed, Question
from kquota_spark.cli.top.lines import ASCII_BARS, BARS, table_columns
from kquota_spark.cli.top.page import View
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import counted, iso_time
from kquota_spark.process.clock import now_ms
from kquota_spark.reports.timeline.top_buckets import COLUMNS, LIMIT_PERCENT, NEAR_PERCENT, SortBy
from kquota_spark.store.reading import utc_text

COMMANDS = {
    "top": (
        "answers",
        "what quota buckets do now: a live view of the newest minute of the tables",
        "kquota top",
        "kquota top --once --sort delay",
    ),
}
CODES = {
    "top": {129: "its terminal went away"},
}

_INTERVAL_MS = 5_000
_MOST_LIVE = 200


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `top`."""
    parser = subparsers.add_parser("top")
    add_settings_options(parser)
    parser.add_argument(
        "--once", action="store_true", help="print one table and end; the other output formats always do"
    )
    parser.add_argument(
        "--interval",
        type=length_argument,
        default=_INTERVAL_MS,
        metavar="T",
        help="time between two reads (default 5s)",
    )
    parser.add_argument(
        "--sort",
        choices=[sort.value for sort in SortBy],
        default=SortBy.USED.value,
        help="order (default used)",
    )
    parser.add_argument("--reverse", action="store_true", help="reverse the order")
    add_bucket_options(parser)
    parser.add_argument(
        "--per-broker",
        action="store_true",
        help="one row per bucket and broker; by default one per bucket, with its worst broker",
    )
    add_output_options(parser)
    parser.set_defaults(run=run_top)


def run_top(options: argparse.Namespace) -> int:
    """Show buckets until the user quits, or once.

    Raises:
        UserError: the tables cannot be read for a single table, or there is no terminal to draw on.
    """
    settings = settings_of(options, "tables")
    question = Question(
        user=options.user,
        client=options.client_id,
        broker=options.broker,
        type=options.type,
        sort=SortBy(options.sort),
        is_reversed=options.reverse,
        is_per_broker=options.per_broker,
        limit=limit_of(options),
    )
    feed = Feed(settings, SettingsPlace(options.config, options.tables))
    try:
        if options.once or options.output != "table":
            answer = feed.read(question)
            show(top_report(answer, columns_of(), age_of_answer(answer, settings, now_ms())), options.output)
        else:
            live = replace(question, limit=question.limit if options.limit else _MOST_LIVE)
            _watch(feed, settings, live, options.interval)
    finally:
        feed.close()
    return 0


def _watch(feed: Feed, settings: Settings, question: Question, interval_ms: int) -> None:
    if problem := _no_screen():
        raise UserError(f"{problem}: kquota top --once prints one table")
    from kquota_spark.cli.top.screen import watch

    view = View(
        cluster_id=settings.cluster_id,
        interval_ms=interval_ms,
        stale_after_ms=stale_after_ms(settings.stream),
        question=question,
    )
    watch(feed, view)


def _no_screen() -> str:
    """Why a full screen is not possible; empty if it is."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "top needs a terminal"
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return "this terminal cannot move its cursor (TERM)"
    if not _is_utf8(sys.stdout.encoding or ""):
        return f"this terminal is set to {sys.stdout.encoding}, top needs UTF-8"
    return ""


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("-", "") == "utf8"


def age_of_answer(answer: Answer, settings: Settings, time_ms: int) -> Age | None:
    """The age of the answer's newest second; None for an empty table.

    Args:
        answer: the buckets.
        settings: how often the job writes.
        time_ms: epoch ms.
    """
    if answer.newest_ms is None:
        return None
    return age_of(answer.newest_ms, time_ms, stale_after_ms(settings.stream))


def top_report(
    answer: Answer, columns: int, age: Age | None, *, more: str = "; --limit 0 shows all"
) -> Report:
    """The buckets as a table of limited width; stale ones begin with a line STALE, and have no colours.

    Args:
        answer: the buckets.
        columns: width of the table.
        age: of the newest second; None for an empty table.
        more: where the reader finds the buckets that are left out.
    """
    top, rows = answer.top, answer.top.rows
    bars = BARS if _is_utf8(sys.stdout.encoding or "utf-8") else ASCII_BARS
    is_stale = age is not None and age.is_stale
    is_live = age is not None and not is_stale
    newest = f"; the newest second is {utc_text(age.newest_ms)}" if age is not None and is_live else ""
    rest = f" of {top.total:,}{more}" if len(rows) < top.total else ""
    lines = [f"{counted(len(rows), 'bucket')}{rest}, by {answer.question.sort.value}{newest}"]
    lines += [JMX_LEGEND] if any(row["source"] == "jmx" for row in rows) else []
    return Report(
        command="kquota top",
        columns=(*COLUMNS, "shadow") if any("shadow" in row for row in answer.top.rows) else COLUMNS,
        rows=rows,
        shown=table_columns(rows, columns, bars),
        times=frozenset({"last_second"}),
        footer="\n".join(lines),
        head="" if age is None else age.stale_text,
        when_empty=_when_empty(age),
        colour=_no_colour if is_stale else _colour,
        envelope={
            "is_stale": is_stale,
            "newest_second": None if age is None else iso_time(age.newest_ms),
            "age_ms": None if age is None else age.age_ms,
        },
    )


def _when_empty(age: Age | None) -> str:
    if age is None:
        return "no buckets in the last minute: the table decisions is empty"
    minute = "the last minute of the tables" if age.is_stale else "the last minute"
    return f"no buckets in {minute}; the newest second is {utc_text(age.newest_ms)}"


def _no_colour(_: Row) -> None:
    return None


def _colour(row: Row) -> Colour | None:
    percent = row["quota_used_percent"] or 0.0
    return Colour.RED if percent > LIMIT_PERCENT else Colour.YELLOW if percent >= NEAR_PERCENT else None
