"""What the template of a page gets: tables of commands with their links, and the first screen of a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from kquota_spark.cli.options import bucket_text
from kquota_spark.cli.serve.contents import TIMELINE_COLUMNS, BusyError, Contents
from kquota_spark.cli.serve.links import bucket_address, period_with, report_address, timeline_address
from kquota_spark.cli.status.command import following_text
from kquota_spark.cli.text.page import Tone
from kquota_spark.cli.text.render import Colour, Report, Row
from kquota_spark.cli.top.details import bucket_line, chart_lines, client_report, harm_text, second_report
from kquota_spark.cli.top.feed import Details, Question
from kquota_spark.cli.top.lines import ORDERS, SPARK_TITLE, tone_of
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import person_percent
from kquota_spark.process.time_limit import SlowError
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.scope.period import parse_period
from kquota_spark.reports.timeline.top_buckets import SortBy

_TONES = {Colour.RED: "over", Colour.YELLOW: "near", Colour.FAINT: "faint"}
_TONES_OF_LINE: dict[Tone | None, str] = {
    Tone.OVER: "over",
    Tone.BAD: "near",
    Tone.FAINT: "faint",
    Tone.TITLE: "title",
}
_MOST_TEXT = 200
"""Maximum characters of a filter."""
_FIRST_COLUMNS = (
    "bucket", "type", "used", SPARK_TITLE, "rate", "limit", "total delay", "time throttled", "throttled requests",
)  # fmt: skip
MOST_PERCENT, SPARK_HEIGHT = 140.0, 20
"""Percent of the limit at the full height of a bar, and that height in units of SVG."""
_LATER = "The report is being made, or takes long: open it below."
_NO_DATA = "There is no traffic to report on in the last 24 hours."


def table_values(report: Report, tone_of_row: Callable[[Row], str] | None = None) -> dict[str, Any]:
    """A command's report for the template: its columns that have a title, with the same texts and colours.

    Args:
        report: the rows.
        tone_of_row: class of a row; None for the colour of the report.
    """

    def by_colour(row: Row) -> str:
        colour = report.colour(row)
        return "" if colour is None else _TONES[colour]

    tone = by_colour if tone_of_row is None else tone_of_row
    columns = [column for column in report.shown if column.title]
    rows = [(tone(row), [column.text(row) for column in columns]) for row in report.rows]
    return {"columns": columns, "rows": rows, "when_empty": report.when_empty}


def state_values(report: Report) -> dict[str, Any]:
    """The table of `kquota status`, parts that only follow from others within those, and its verdict."""
    rows = [
        {**row, "figure": "; ".join(filter(None, (row["figure"], following_text(report.rows, row["part"]))))}
        for row in report.rows
        if not row["follows"]
    ]
    table = table_values(replace(report, rows=rows), _tone_of_state)
    return {"table": table, "verdict": report.head}


def _tone_of_state(row: Row) -> str:
    return {"warn": "near", "fail": "over", "off": "faint"}.get(row["state"], "")


def first_values(contents: Contents, tenant: str | None, now_ms: int) -> dict[str, Any]:
    """The first screen of a report with the newest second, or one sentence with the reason for its absence.

    Args:
        contents: the tables.
        tenant: the user of the report; None for the cluster.
        now_ms: epoch ms.
    """
    try:
        live = contents.live(Question(owner=tenant))
        newest_ms = _newest_ms(live)
        period = None if newest_ms is None else period_with(newest_ms, now_ms, is_operator=tenant is None)
        if period is None:
            return {"missing": _NO_DATA}
        first = contents.first_screen(tenant, period, parse_period(period, now_ms))
    except (BusyError, SlowError):
        return {"missing": _LATER}
    except UserError as error:
        return {"missing": f"{error}." if tenant is None else _NO_DATA}
    return {
        "page": first.page, "linked": first.linked, "base": report_address(period), "stale": live.head,
    }  # fmt: skip


def _newest_ms(live: Report) -> int | None:
    """Start of the newest second, epoch ms; None for empty tables."""
    newest = live.envelope["newest_second"]
    return None if newest is None else round(datetime.fromisoformat(newest).timestamp() * 1_000)


def live_question(tenant: str | None, argument: Callable[[str, str], str]) -> Question:
    """The question of the live view; an order that does not exist is the usual one.

    Args:
        tenant: the user who asks; None for an operator.
        argument: value of an argument of the address by its name, or the second value if it is missing.
    """
    orders = {order.value: order for order in SortBy}
    return Question(
        owner=tenant,
        text=argument("filter", "").strip()[:_MOST_TEXT],
        sort=orders.get(argument("sort", ""), SortBy.USED),
        is_reversed=argument("reverse", "") == "1",
    )


def live_values(report: Report, question: Question, now_ms: int) -> dict[str, Any]:
    """The live view: its rows with links, the heads of its columns, and the sentences above it."""
    newest_ms = _newest_ms(report)
    period = None if newest_ms is None else period_with(newest_ms, now_ms, is_operator=question.owner is None)
    titles = [column.title for column in report.shown]
    columns = sorted(report.shown, key=lambda column: _place_of(column.title, titles))
    rows = [
        {
            "tone": "" if (colour := report.colour(row)) is None else _TONES[colour],
            "texts": [column.text(row) for column in columns],
            "bucket": bucket_text(row),
            "in_report": "" if period is None else bucket_address(row, period),
            "timeline": "" if question.owner is not None else timeline_address(row),
            "bars": _bars(row["used_percents"], has_tones=not report.head),
            "most": "" if row["limit_per_s"] is None else person_percent(row["peak_quota_used_percent"]),
        }
        for row in report.rows
    ]
    when_empty = report.when_empty
    if question.text and newest_ms is not None:
        when_empty = "No name of a bucket, a user or a client id matches the filter."
    return {
        "columns": columns, "rows": rows, "when_empty": when_empty,
        "heads": {title: _head(order, question) for title, order in ORDERS.items()},
        "question": question, "about": report.footer.replace("\n", "; "), "stale": report.head,
    }  # fmt: skip


def _place_of(title: str, titles: Sequence[str]) -> tuple[int, int]:
    """The place of a column on the page: the answer is at the left, where also a telephone shows it."""
    first = _FIRST_COLUMNS.index(title) if title in _FIRST_COLUMNS else len(_FIRST_COLUMNS)
    return first, titles.index(title)


def _bars(percents: Sequence[float | None], *, has_tones: bool) -> dict[str, str]:
    """The bars of a minute as paths of SVG by their tone, two units wide each, from left to right.

    Args:
        percents: percent of the limit in each second, the oldest first; None without requests.
        has_tones: whether bars near and over the limit have tones of their own.
    """
    paths = {"calm": "", "near": "", "over": ""}
    for number, percent in enumerate(percents):
        if percent is None:
            continue
        tone = tone_of(percent) if has_tones else None
        name = "calm" if tone is None else _TONES_OF_LINE[tone]
        height = max(min(percent, MOST_PERCENT) / MOST_PERCENT * SPARK_HEIGHT, 1.0)
        paths[name] += f"M{2 * number + 1} {SPARK_HEIGHT}v-{height:.1f}"
    return paths


def _head(order: SortBy, question: Question) -> tuple[str, str]:
    """The address of the live view in an order, and `aria-sort` of the column; empty if it is another order."""
    is_same = order is question.sort
    is_reversed = is_same and not question.is_reversed
    asked = {"sort": order.value, "reverse": "1" if is_reversed else "", "filter": question.text}
    address = f"/live?{urlencode({name: text for name, text in asked.items() if text}, errors='replace')}"
    if not is_same:
        return address, ""
    is_down = order not in (SortBy.NAME, SortBy.BROKER)
    return address, "descending" if is_down != question.is_reversed else "ascending"


def timeline_values(key: BucketKey, details: Details, now_ms: int) -> dict[str, Any]:
    """The timeline of one bucket in characters, its clients and its seconds."""
    period = period_with(details.newest_ms, now_ms, is_operator=True)
    row = {
        "quota_type": key.quota_type, "bucket_user": key.user, "bucket_client_id": key.client_id,
        "bucket_tags": key.tags,
    }  # fmt: skip
    return {
        "bucket": bucket_line(key, details),
        "said": harm_text(details.seconds, details.newest_ms),
        "chart": [
            (_TONES_OF_LINE.get(piece.tone, "") if piece.tone else "", piece.text)
            for line in chart_lines(details, TIMELINE_COLUMNS)
            for piece in line.pieces
        ],
        "clients": table_values(client_report(key, details)),
        "seconds": table_values(second_report(key, details), _tone_of_second),
        "in_report": "" if period is None else bucket_address(row, period),
    }


def _tone_of_second(row: Row) -> str:
    tone = tone_of(row["quota_used_percent"])
    return "" if tone is None else _TONES_OF_LINE[tone]
