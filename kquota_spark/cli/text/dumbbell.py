"""A dumbbell chart in characters: for each name a value today and one proposed, joined by a line. Pure text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kquota_spark.formats.text.escape import distinct_cuts, width

_GAP = "  "
_NAME_PART = 3
"""Names get a third of the width at most."""
_LEAST = 8
"""Columns that names and the axis have at the least."""


class Marks(NamedTuple):
    """Characters to draw with: today, proposed, both in one place, and the line between them."""

    today: str
    proposed: str
    both: str
    line: str


DRAWN = Marks("○", "●", "◉", "─")
ASCII = Marks("o", "*", "@", "-")


class Dumbbell(NamedTuple):
    """One line: an escaped name, and its values; None where there is none."""

    name: str
    today: float | None
    proposed: float | None


def dumbbells(
    lines: Sequence[Dumbbell], columns: int, marks: Marks, text: Callable[[float], str]
) -> Iterator[str]:
    """A line for each name, one at least, then the axis from 0 to the largest value, which is above 0."""
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
