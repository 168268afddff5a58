"""Which columns of a table fit into a width, how wide each is, and its lines. Pure text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kquota_spark.cli.text.wrapping import folded
from kquota_spark.formats.text.distinct_cuts import distinct_cuts
from kquota_spark.formats.text.escape import width

GAP = "  "
SMALLEST_TEXT = 6
"""Columns that a text has at the least."""


class Column(Protocol):
    """What a layout needs of a column; `cli.text.render.Shown` is one."""

    @property
    def title(self) -> str:
        """Its heading."""

    @property
    def is_text(self) -> bool:
        """Whether it stands at the left and may be cut."""

    @property
    def keep(self) -> int:
        """Columns that a text keeps while another can be left out."""

    @property
    def rank(self) -> int:
        """The larger, the earlier it is left out; 0 for never."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A table that fits.

    Attributes:
        chosen: places of the columns that are shown, among all of them.
        columns: these columns.
        widths: of each of them.
        cells: the texts of each of them, row by row.
        is_cut: whether texts are cut; else the last column is wrapped.
    """

    chosen: Sequence[int]
    columns: Sequence[Column]
    widths: Sequence[int]
    cells: Sequence[Sequence[str]]
    is_cut: bool

    def header(self) -> Iterator[str]:
        """The titles, in as many lines as the longest needs."""
        titles = [
            list(folded(column.title, columns))
            for column, columns in zip(self.columns, self.widths, strict=True)
        ]
        height = max(map(len, titles))
        for index in range(height):
            # Short titles stand on the lowest line, just above their values.
            at = [index - height + len(title) for title in titles]
            texts = [title[place] if place >= 0 else "" for title, place in zip(titles, at, strict=True)]
            yield line(self.columns, texts, self.widths)

    def rows(self) -> Iterator[list[str]]:
        """The lines of each row: one, where texts are cut."""
        shown = [
            self._fitting(index, column.is_text and self.is_cut) for index, column in enumerate(self.columns)
        ]
        for texts in zip(*shown, strict=True):
            parts = [texts[-1]] if self.is_cut else list(folded(texts[-1], self.widths[-1]))
            blank = [""] * (len(texts) - 1)
            yield [
                line(self.columns, [*(blank if number else texts[:-1]), part], self.widths)
                for number, part in enumerate(parts)
            ]

    def _fitting(self, index: int, is_cut: bool) -> Sequence[str]:
        texts = self.cells[index]
        if not is_cut:
            return texts
        forms = distinct_cuts(texts, self.widths[index])
        return [forms[text] for text in texts]


def fitted(columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int, *, is_cut: bool) -> Layout:
    """The columns that fit: long titles are broken first, then columns left out by rank, then texts cut.

    Args:
        columns: all of them, in their order.
        cells: the escaped texts of each, row by row.
        room: columns of the terminal.
        is_cut: whether texts may be cut; else the last column gets what is left.
    """
    chosen = _chosen(columns, cells, room)
    shown = [columns[index] for index in chosen]
    texts = [cells[index] for index in chosen]
    values = [max(map(width, of_column), default=0) for of_column in texts]
    widths = [max(value, _longest_word(column.title)) for column, value in zip(shown, values, strict=True)]
    if is_cut:
        _shrink(shown, widths, room)
    else:
        others = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
        widths[-1] = max(min(widths[-1], room - others), SMALLEST_TEXT)
    _widen_titles(shown, widths, room)
    return Layout(chosen, shown, widths, texts, is_cut)


def line(columns: Sequence[Column], texts: Sequence[str], widths: Sequence[int]) -> str:
    """Texts filled up to their widths, numbers at the right."""
    padded = []
    for column, text, wide in zip(columns, texts, widths, strict=True):
        blanks = " " * (wide - width(text))
        padded.append(text + blanks if column.is_text else blanks + text)
    return GAP.join(padded).rstrip()


def _chosen(columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """Which columns are shown, so that texts keep what they should."""
    least = []
    for column, texts in zip(columns, cells, strict=True):
        natural = max(map(width, texts), default=0)
        value = min(natural, column.keep) if column.is_text else natural
        least.append(max(value, _longest_word(column.title)))
    chosen = list(range(len(columns)))
    while sum(least[index] for index in chosen) + len(GAP) * (len(chosen) - 1) > room:
        last = max(chosen, key=lambda index: columns[index].rank)
        if columns[last].rank == 0:
            break
        chosen.remove(last)
    return chosen


def _shrink(columns: Sequence[Column], widths: list[int], room: int) -> None:
    """The widest text that has more than it keeps is shrunk until the line fits."""
    for is_last_resort in (False, True):
        floors = [SMALLEST_TEXT if is_last_resort else max(SMALLEST_TEXT, column.keep) for column in columns]
        while _total(widths) > room:
            spare = [i for i, column in enumerate(columns) if column.is_text and widths[i] > floors[i]]
            if not spare:
                break
            widths[max(spare, key=lambda i: widths[i])] -= 1


def _widen_titles(columns: Sequence[Column], widths: list[int], room: int) -> None:
    """Titles are on one line where there is room for all of them."""
    whole = [max(wide, width(column.title)) for column, wide in zip(columns, widths, strict=True)]
    if _total(whole) <= room:
        widths[:] = whole


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _longest_word(title: str) -> int:
    return max(map(width, title.split(" ")))
