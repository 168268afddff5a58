"""A dumbbell chart in characters: for each name, today's value and the proposed one, joined by a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kquota_spark.formats.text.escape import distinct_cuts, width

_GAP = "  "
_NAME_PART = 3
"""Names get at most one part in this many of the width."""
_LEAST = 8
"""Minimum columns of the names, and of the axis."""


class Marks(NamedTuple):
    """Characters to draw with: today, proposed, both in one place, and the line between them."""

    today: str
    proposed: str
    both: str
    line: str


DRAWN = Marks("○", "●", "◉", "─")
ASCII = Marks("o", "*", "@", "-")


class Dumbbell(NamedTuple):
    """One line: an escaped name, and its values; None for no value."""

    name: str
    today: float | None
    proposed: float | None


def dumbbells(
    lines: Sequence[Dumbbell], columns: int, marks: Marks, text: Callable[[float], str]
) -> Iterator[str]:
    """The lines of the chart: one per name, then the axis from 0 to the largest value.

    Args:
        lines: at least one; the largest value must be above 0.
        columns: width of the chart.
        marks: characters to draw with.
        text: formats the largest value.
    """
    names = [line.name for line in lines]
    name_columns = max(min(max(map(width, names)), columns // _NAME_PART), _LEAST)
    cuts = distinct_cuts(names, name_columns)
    top = max(value for line in lines for value in line[1:] if value is not None)
    cells = max(columns - name_columns - len(_GAP), _LEAST)
    for line in lines:
        name = cuts[line.name]
        drawn = _drawn(_place(line.today, top, cells), _place(line.proposed, top, cells), marks)
        yield f"{name}{' ' * (name_columns - width(name))}{_GAP}{drawn}".rstrip()
    yield f"{' ' * name_columns}{_GAP}0{text(top):>{cells - 1}}"


def _place(value: float | None, top: float, cells: int) -> int | None:
    return None if value is None else round(value / top * (cells - 1))


def _drawn(today: int | None, proposed: int | None, marks: Marks) -> str:
    if today is None or proposed is None:
        places = [(today, marks.today), (proposed, marks.proposed)]
        return "".join(" " * place + mark for place, mark in places if place is not None)
    if today == proposed:
        return " " * today + marks.both
    line = marks.line * (abs(today - proposed) - 1)
    ends = (marks.today, marks.proposed) if today < proposed else (marks.proposed, marks.today)
    return " " * min(today, proposed) + ends[0] + line + ends[1]
