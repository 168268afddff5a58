"""Parts of the lines of `kquota top`: coloured pieces, columns that fit, bars. Independent of the terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kquota_spark.cli.options import RULE_LEGEND, bucket_text, rule_text
from kquota_spark.cli.text.columns import column
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.render import Row, Shown
from kquota_spark.formats.text.escape import cut, cut_inside, terminal_text, width
from kquota_spark.formats.text.person_units import (
    broker_text,
    or_dash,
)
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.timeline.top_buckets import LIMIT_PERCENT, NEAR_PERCENT, SortBy

GAP = "  "
SPARK_TITLE = "last 60 s"
BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.:-=+*#"
_PERCENT_OF_BAR = 20.0
"""Percent of the limit per bar. The upper three of eight bars are over the limit, which shows without colours too."""
_SPARK_CELLS = (60, 30, 20, 15, 12)
"""Numbers of bars that divide a minute into equal parts."""


class Piece(NamedTuple):
    """Escaped text in one tone."""

    text: str
    tone: Tone | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line; the chosen one is drawn reversed."""

    pieces: Sequence[Piece] = ()
    is_chosen: bool = False


def line_of(text: str, tone: Tone | None = None) -> Line:
    """A line in one tone."""
    return Line([Piece(text, tone)])


def tone_of(percent: float | None) -> Tone | None:
    """The tone for a percentage of a limit."""
    if percent is None or percent < NEAR_PERCENT:
        return None
    return Tone.OVER if percent > LIMIT_PERCENT else Tone.BAD


class ScreenPage(Page):
    """A page that keeps its lines instead of writing them; the screen of `top` is always UTF-8."""

    def __init__(self, columns: int) -> None:
        super().__init__(io.StringIO(), columns)
        self.lines: list[Line] = []

    def has(self, characters: str) -> bool:
        """Always true: the screen can show every character."""
        return True

    def line(self, text: str = "", tone: Tone | None = None) -> None:
        """Keep a line, cut at the right edge."""
        self.lines.append(line_of(cut(text, self.columns), tone))


def _broker(row: Row) -> str:
    """`1`, or `1 of 3` for the worst of several brokers."""
    of_all = f" of {row['brokers']}" if row["brokers"] > 1 else ""
    return f"{broker_text(row['broker_id'])}{of_all}"


def _throttled_requests(row: Row) -> str:
    return or_dash(row["requests"], lambda requests: f"{row['throttled_requests']:,} of {requests:,}")


COLUMNS = (
    Shown("broker", _broker, keep=6, rank=5),
    column("quota_type", keep=7, rank=4),
    Shown("bucket", bucket_text, is_text=True, keep=16),
    Shown("rule", rule_text, is_text=True, keep=8, rank=9, note=RULE_LEGEND),
    column("limit_per_s", keep=9, rank=3),
    column("rate_per_s", keep=9, rank=2),
    column("mean_rate_per_s", "10 s mean", keep=9, rank=10),
    column("quota_used_percent", keep=7, rank=1),
    column("delay_ms", keep=11, rank=6),
    Shown(
        "time throttled", lambda row: or_dash(row["time_throttled_s"], lambda s: f"{s} s"), keep=14, rank=8
    ),
    Shown("throttled requests", _throttled_requests, keep=18, rank=11),
    Shown("clients", lambda row: str(row["clients"]), keep=7, rank=11),
)
"""Each column needs its `keep`; the larger its rank, the earlier a narrow terminal leaves it out."""
_SHADOW = Shown("shadow", lambda row: row.get("shadow") or "-", is_text=True, keep=9, rank=6)
"""What the shadow quotas do to the bucket; only if they do something to any."""
ORDERS = {
    "broker": SortBy.BROKER,
    "bucket": SortBy.NAME,
    "rate": SortBy.RATE,
    "used": SortBy.USED,
    "total delay": SortBy.DELAY,
}
"""The order that marks a column."""
_CLUSTER = Shown("cluster", lambda row: str(row["cluster_id"]), is_text=True, keep=8)
_SPARK_RANK = 7


def _columns_of(rows: Sequence[Row]) -> tuple[Shown, ...]:
    """All columns, with the cluster if rows of several are shown.

    The broker is never left out if only the broker distinguishes two rows of a bucket.
    """
    buckets = {BucketKey.of(row)._replace(broker_id=0) for row in rows}
    own: tuple[Shown, ...]
    own = COLUMNS if len(buckets) == len(rows) else (replace(COLUMNS[0], rank=0), *COLUMNS[1:])
    own = (*own, _SHADOW) if any(row.get("shadow") for row in rows) else own
    return own if len({row["cluster_id"] for row in rows}) < 2 else (_CLUSTER, *own)


class Fitted(NamedTuple):
    """The shown columns with their widths, and the number of bars after them; 0 for none."""

    columns: tuple[tuple[Shown, int], ...]
    spark_cells: int


def fitted(rows: Sequence[Row], columns: int) -> Fitted:
    """The columns that fit, the least important left out first. Names get the remaining width, then the bars.

    Numbers are never cut.
    """
    all_of_them = _columns_of(rows)
    natural = {column.title: _natural(column, rows) for column in all_of_them}
    widths = {
        column.title: column.keep if column.is_text else max(column.keep, natural[column.title])
        for column in all_of_them
    }
    shown, has_spark = list(all_of_them), True
    while len(shown) > 1 and _needed(shown, widths, has_spark=has_spark) > columns:
        last = max(shown, key=lambda column: column.rank)
        if has_spark and last.rank < _SPARK_RANK:
            has_spark = False
        else:
            shown.remove(last)
    spare = max(columns - _needed(shown, widths, has_spark=has_spark), 0)
    for text in sorted((one for one in shown if one.is_text), key=lambda one: one.rank):
        more = min(max(natural[text.title] - widths[text.title], 0), spare)
        widths[text.title] += more
        spare -= more
    room = _SPARK_CELLS[-1] + spare
    cells = next(cells for cells in _SPARK_CELLS if cells <= room) if has_spark else 0
    return Fitted(tuple((column, min(widths[column.title], columns)) for column in shown), cells)


def _natural(column: Shown, rows: Sequence[Row]) -> int:
    return max([width(column.title), *(width(terminal_text(column.text(row))) for row in rows)])


def _needed(shown: Sequence[Shown], widths: Mapping[str, int], *, has_spark: bool) -> int:
    spark = len(GAP) + _SPARK_CELLS[-1] if has_spark else 0
    return sum(widths[column.title] for column in shown) + len(GAP) * (len(shown) - 1) + spark


def cell(column: Shown, row: Row, columns: int) -> str:
    """The escaped text of a cell, in exactly this many columns."""
    return padded(terminal_text(column.text(row)), columns, is_text=column.is_text)


def padded(text: str, columns: int, *, is_text: bool) -> str:
    """Escaped text, cut or padded to this many columns."""
    fitting = cut_inside(text, columns)
    blanks = " " * (columns - width(fitting))
    return fitting + blanks if is_text else blanks + fitting


def table_columns(rows: Sequence[Row], columns: int, bars: str = BARS) -> tuple[Shown, ...]:
    """The same columns for a plain table."""
    found = fitted(rows, columns)
    shown = [replace(column, rank=0) for column, _ in found.columns]
    if found.spark_cells:
        shown.append(
            Shown(SPARK_TITLE, lambda row: _sparkline(row["used_percents"], found.spark_cells, bars))
        )
    return tuple(shown)


def _sparkline(percents: Sequence[float | None], cells: int, bars: str) -> str:
    return "".join(bar(percent, bars) for percent in slots(percents, cells))


def slots(values: Sequence[float | None], cells: int) -> Iterator[float | None]:
    """The largest value of each of `cells` equal parts; None for a part without values."""
    count = len(values)
    for cell in range(cells):
        part = values[cell * count // cells : (cell + 1) * count // cells]
        yield max((value for value in part if value is not None), default=None)


def bar(percent: float | None, bars: str = BARS) -> str:
    """A bar, one step higher per 20 %, the highest from 140 %; a blank for no value."""
    if percent is None:
        return " "
    return bars[min(max(int(percent / _PERCENT_OF_BAR), 0), len(bars) - 1)]
