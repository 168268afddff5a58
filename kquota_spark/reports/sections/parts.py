"""What a page is made of: sections of tiles, tables and charts. Texts are raw; whoever draws escapes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

MOST_ROWS = 200
"""Of one table: a page stays a page with 10,000 clients; CSV and JSON carry all that was gathered."""


class Tone(Enum):
    """How something stands; a drawing adds a word or a sign, never a colour alone."""

    PLAIN = "plain"
    GOOD = "good"
    NEAR = "near"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Tile:
    """One number with its name and what it is made of."""

    title: str
    value: str
    detail: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers are set to the right."""

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


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a caption; `left_out` says what is not in them."""

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
    """One thing of a section: a heading where there are several, a sentence, a picture and its table."""

    title: str
    note: str = ""
    chart: Chart | None = None
    table: Table | None = None
    is_table_open: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do, with what to run; `facts` are names and values, `instead` other things with what to run."""

    title: str
    change: str
    reason: str
    command: str
    facts: tuple[tuple[str, str], ...] = ()
    instead: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One question with its answer in a sentence, and what the answer rests on."""

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
    whose: str
    stretch: str
    made: str
    headline: str
    facts: tuple[Tile, ...]
    sections: tuple[Section, ...]


def table_of(
    caption: str,
    columns: tuple[Column, ...],
    rows: Iterable[tuple[Cell, ...]],
    count: int,
    noun: str = "rows",
) -> Table:
    """A table of the first `MOST_ROWS`; of `count` rows in all, those gathered or not, it says how many it lacks.

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
