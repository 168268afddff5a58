"""A waterfall in characters: steps that begin where the one before ends, and the total that they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kquota_spark.formats.text.escape import width

_GAP = "  "
_LEAST = 8
"""Minimum columns of the bars."""


class Step(NamedTuple):
    """One step: an escaped name, and how much it adds; below 0 if it takes away."""

    name: str
    value: int


def waterfall(
    steps: Sequence[Step], total: Step, columns: int, bar: str, text: Callable[[int], str]
) -> Iterator[str]:
    """The lines of the chart: one per step, then the total.

    Args:
        steps: from 0 on.
        total: what they add up to.
        columns: width of the chart.
        bar: the character of the bars.
        text: formats a value.
    """
    lines = [*steps, total]
    names, values = (max(map(width, column)) for column in zip(*((each.name, text(each.value)) for each in lines),
                                                              strict=True))  # fmt: skip
    room = max(columns - names - values - 2 * len(_GAP), _LEAST)
    reached, ends = 0, []
    for step in steps:
        ends.append((min(reached, reached + step.value), max(reached, reached + step.value)))
        reached += step.value
    ends.append((0, total.value))
    most = max(1, *(end for _, end in ends))
    for line, (start, end) in zip(lines, ends, strict=True):
        first, last = (max(0, round(room * place / most)) for place in (start, end))
        drawn = " " * first + bar * max(last - first, 1 if end > start else 0)
        lead = f"{line.name}{' ' * (names - width(line.name))}{_GAP}{text(line.value):>{values}}{_GAP}"
        yield f"{lead}{drawn}".rstrip()
