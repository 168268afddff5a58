"""Bars of one character: percent of a quota over time, in the strokes that the terminal has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.:-=+*#"
_PERCENT_OF_BAR = 20.0
"""The upper three of eight bars are over the limit: how far is seen without colours too."""


def slots(values: Sequence[float | None], cells: int) -> Iterator[float | None]:
    """The largest value of each of so many equal parts; None where a part has none."""
    count = len(values)
    for cell in range(cells):
        part = [
            value
            for value in values[cell * count // cells : (cell + 1) * count // cells]
            if value is not None
        ]
        yield max(part, default=None)


def bar(percent: float | None, bars: str = BARS) -> str:
    """A bar a step of 20 %, the last from 140 % on; a blank where nothing is known."""
    if percent is None:
        return " "
    return bars[min(max(int(percent / _PERCENT_OF_BAR), 0), len(bars) - 1)]


def sparkline(values: Sequence[float | None], cells: int, bars: str = BARS) -> str:
    """So many bars, oldest first."""
    return "".join(bar(value, bars) for value in slots(values, cells))
