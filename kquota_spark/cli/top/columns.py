"""Columns of `kquota top`, and which of them fit into so many columns of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kquota_spark.cli.options.listing import RULE_LEGEND, bucket_text, rule_text
from kquota_spark.cli.text.render import Row, Shown
from kquota_spark.cli.text.sparkline import BARS, sparkline
from kquota_spark.formats.text.escape import cut_inside, terminal_text, width
from kquota_spark.formats.text.person_units import (
    broker_text,
    or_dash,
    person_ms,
    person_percent,
    rate_text,
    type_text,
)
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.timeline.top_buckets import SortBy

GAP = "  "
SPARK_TITLE = "last 60 s"
_SPARK_CELLS = (60, 30, 20, 15, 12)
"""Parts of a minute that are equally long."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        title: its heading.
        text: the cell of a row; may hold names of clients, so it is escaped when drawn.
        rank: the larger, the earlier it is left out of a narrow terminal.
        least: columns that it needs at the least.
        sort: the order that it stands for.
        is_text: at the left, and may be cut.
    """

    title: str
    text: Callable[[Row], str]
    rank: int
    least: int
    sort: SortBy | None = None
    is_text: bool = False


def _broker(row: Row) -> str:
    """`1`, or `1 of 3` where it is the worst of several."""
    of_all = f" of {row['brokers']}" if row["brokers"] > 1 else ""
    return f"{broker_text(row['broker_id'])}{of_all}"


def _throttled_requests(row: Row) -> str:
    return or_dash(row["requests"], lambda requests: f"{row['throttled_requests']:,} of {requests:,}")


COLUMNS = (
    Column("broker", _broker, 5, 6, SortBy.BROKER),
    Column("type", lambda row: type_text(row["quota_type"]), 4, 7, is_text=True),
    Column("bucket", bucket_text, 0, 16, SortBy.NAME, is_text=True),
    Column("rule", rule_text, 9, 8, is_text=True),
    Column("limit", lambda row: rate_text(row["quota_type"], row["limit_per_s"]), 3, 9),
    Column("rate", lambda row: rate_text(row["quota_type"], row["rate_per_s"]), 2, 9, SortBy.RATE),
    Column("10 s mean", lambda row: rate_text(row["quota_type"], row["mean_rate_per_s"]), 10, 9),
    Column("used", lambda row: person_percent(row["quota_used_percent"]), 1, 7, SortBy.USED),
    Column("total delay", lambda row: person_ms(row["throttled_ms"]), 6, 11, SortBy.DELAY),
    Column("time throttled", lambda row: or_dash(row["throttled_seconds"], lambda held: f"{held} s"), 8, 14),
    Column("throttled requests", _throttled_requests, 11, 18),
    Column("clients", lambda row: str(row["clients"]), 11, 7),
)
_CLUSTER = Column("cluster", lambda row: str(row["cluster_id"]), 0, 8, is_text=True)
_SPARK_RANK = 7


def _columns_of(rows: Sequence[Row]) -> tuple[Column, ...]:
    """All columns; the cluster is one where rows of several are shown.

    The broker is never left out where only it tells two rows of a bucket apart.
    """
    buckets = {BucketKey.of(row)._replace(broker_id=0) for row in rows}
    own = COLUMNS if len(buckets) == len(rows) else (replace(COLUMNS[0], rank=0), *COLUMNS[1:])
    return own if len({row["cluster_id"] for row in rows}) < 2 else (_CLUSTER, *own)


class Fitted(NamedTuple):
    """Columns that are shown with their widths, and how many bars follow; 0 for none."""

    columns: tuple[tuple[Column, int], ...]
    spark_cells: int


def fitted(rows: Sequence[Row], columns: int) -> Fitted:
    """The columns that fit, the least important left out first; then names get what is left, then the bars.

    Numbers are never cut.
    """
    all_of_them = _columns_of(rows)
    natural = {column.title: _natural(column, rows) for column in all_of_them}
    widths = {
        column.title: column.least if column.is_text else max(column.least, natural[column.title])
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
    for column in sorted((column for column in shown if column.is_text), key=lambda column: column.rank):
        more = min(max(natural[column.title] - widths[column.title], 0), spare)
        widths[column.title] += more
        spare -= more
    room = _SPARK_CELLS[-1] + spare
    cells = next(cells for cells in _SPARK_CELLS if cells <= room) if has_spark else 0
    return Fitted(tuple((column, min(widths[column.title], columns)) for column in shown), cells)


def _natural(column: Column, rows: Sequence[Row]) -> int:
    return max([width(column.title), *(width(terminal_text(column.text(row))) for row in rows)])


def _needed(shown: Sequence[Column], widths: Mapping[str, int], *, has_spark: bool) -> int:
    spark = len(GAP) + _SPARK_CELLS[-1] if has_spark else 0
    return sum(widths[column.title] for column in shown) + len(GAP) * (len(shown) - 1) + spark


def cell(column: Column, row: Row, columns: int) -> str:
    """The text of a cell, escaped, in exactly so many columns."""
    return padded(terminal_text(column.text(row)), columns, is_text=column.is_text)


def padded(text: str, columns: int, *, is_text: bool) -> str:
    """Escaped text, cut and filled up to so many columns."""
    fitting = cut_inside(text, columns)
    blanks = " " * (columns - width(fitting))
    return fitting + blanks if is_text else blanks + fitting


def table_columns(rows: Sequence[Row], columns: int, bars: str = BARS) -> tuple[Shown, ...]:
    """The same columns for a plain table."""
    found = fitted(rows, columns)
    shown = [
        Shown(
            column.title,
            column.text,
            column.is_text,
            keep=column.least,
            note=RULE_LEGEND if column.title == "rule" else "",
        )
        for column, _ in found.columns
    ]
    if found.spark_cells:
        shown.append(Shown(SPARK_TITLE, lambda row: sparkline(row["used_percents"], found.spark_cells, bars)))
    return tuple(shown)
