"""The parts of a page: sections of tiles, tables and charts. Texts are raw; the code that draws a page escapes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

MOST_ROWS = 200
"""Maximum rows of one table, so that a page stays short with 10,000 clients; CSV and JSON contain all gathered rows."""


class Tone(Enum):
    """How good or bad a value is; a drawing adds a word or a sign, never a colour alone."""

    PLAIN = "plain"
    GOOD = "good"
    NEAR = "near"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Tile:
    """One number with its name and its parts."""

    title: str
    value: str
    detail: str
    tone: Tone = Tone.PLAIN
    href: str = ""
    """Its place on the page; empty for none."""


@dataclass(frozen=True, slots=True)
class Link:
    """A text, and its place on the page."""

    text: str
    href: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Worst:
    """One of the buckets with the most total delay: its figures, its cause, and the action of its advice card."""

    bucket: Link
    delay: str
    time: str
    cause: str = ""
    action: str = ""
    card: str = ""
    """Place of the advice card; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a page begins with: the answer, the worst buckets, and one line of links to the sections."""

    sentence: str
    tiles: tuple[Tile, ...] = ()
    worst: tuple[Worst, ...] = ()
    more: int = 0
    """Throttled buckets that are not among the worst."""
    others: tuple[tuple[str, Link], ...] = ()
    """Names and short answers of other sections."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers are aligned right."""

    title: str
    is_number: bool = False
    is_short: bool = False
    """Never broken over two lines."""

    @classmethod
    def numbers(cls, *titles: str) -> tuple[Column, ...]:
        """Columns of numbers."""
        return tuple(cls(title, is_number=True) for title in titles)


@dataclass(frozen=True, slots=True)
class Cell:
    """A value in human units; `exact` where the text is rounded, `bar_percent` for a bar beside the number."""

    text: str
    exact: str = ""
    bar_percent: float | None = None
    tone: Tone = Tone.PLAIN
    href: str = ""
    """Place of the bucket on the page."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a caption; `left_out` describes the rows that are missing."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of the table beside it: its kind, what it shows in words, and its points."""

    anchor: str
    kind: str
    label: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """One part of a section: a heading if there are several parts, a sentence, a picture and its table."""

    title: str
    note: str = ""
    chart: Chart | None = None
    table: Table | None = None
    is_table_open: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do, with its command; `facts` are names and values, `instead` are other remedies with commands."""

    title: str
    change: str
    reason: str
    command: str
    facts: tuple[tuple[str, str], ...] = ()
    instead: tuple[tuple[str, str], ...] = ()
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One question with its answer in a sentence, and the evidence for it."""

    anchor: str
    short: str
    title: str
    lead: str
    tone: Tone = Tone.PLAIN
    tiles: tuple[Tile, ...] = ()
    reasons: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    advice: tuple[Advice, ...] = ()
    definitions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """The whole page."""

    title: str
    subject: str
    period: str
    made: str
    badge: Link
    """Whether the page can be trusted."""
    opening: Opening
    sections: tuple[Section, ...]


def table_of(
    caption: str,
    columns: tuple[Column, ...],
    rows: Iterable[tuple[Cell, ...]],
    count: int,
    noun: str = "rows",
) -> Table:
    """A table of the first `MOST_ROWS` rows, with a note on how many of all `count` rows are missing.

    Args:
        caption: above the table.
        columns: in order.
        rows: cells in the order of the columns; read no further than needed.
        count: number of rows in all, gathered or not.
        noun: what a row is, in the plural.
    """
    shown = tuple(islice(rows, MOST_ROWS))
    left_out = count - len(shown)
    return Table(caption, columns, shown, f"and {left_out:,} more {noun}" if left_out else "")
