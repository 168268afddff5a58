"""Figures of a part of the benchmark, as JSON lines while it runs and as a Markdown table at its end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from statistics import median
from typing import NamedTuple

from tests.support.seconds import json_loads_per_s

_DIGITS = 3


class Spread(NamedTuple):
    """A figure that was measured several times."""

    median: float
    low: float
    high: float


Cell = str | float | Spread
"""One figure or name of a row."""


class Report:
    """The rows of one table; leaving the block prints the table, also when a later case failed.

    Args:
        part: module of the benchmark, e.g. `growth`.
        columns: headings of the table by the names in JSON, in their order.
    """

    def __init__(self, part: str, columns: Mapping[str, str]) -> None:
        self._part, self._columns = part, columns
        self._rows: list[Mapping[str, Cell]] = []
        self._json_loads_per_s: list[float] = [json_loads_per_s()]

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *_: object) -> None:
        print(f"\n{self.markdown()}\n", flush=True)

    @property
    def json_loads_per_s(self) -> float:
        """Lines per second of `json.loads` on one core: the median of when the part began and of after each row.

        A machine that others share is twice as fast in one minute as in the next.
        """
        return median(self._json_loads_per_s)

    def add(self, row: Mapping[str, Cell]) -> None:
        """Print a row as a JSON line and keep it for the table."""
        self._rows.append(row)
        self._json_loads_per_s.append(json_loads_per_s())
        of_part = {"part": self._part, **{name: _json_value(cell) for name, cell in row.items()}}
        print(json.dumps({**of_part, "json_loads_lines_per_s": self.json_loads_per_s}), flush=True)

    def markdown(self) -> str:
        """The table of all rows, with the command and the speed of the machine above it."""
        cells = [[_text(row.get(name, "")) for name in self._columns] for row in self._rows]
        rules = ["---", *["---:"] * (len(self._columns) - 1)]
        table = [f"| {' | '.join(each)} |" for each in (list(self._columns.values()), rules, *cells)]
        machine = f"{os.cpu_count()} cores, `json.loads` {three_digits(self.json_loads_per_s)} lines/s on one of them"
        return "\n".join([f"`python -m tests.bench.runs.{self._part}`: {machine}", "", *table])


def spread(values: Sequence[float]) -> Spread:
    """Median and range."""
    return Spread(median(values), min(values), max(values))


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest of the values that so many percent of them do not exceed."""
    return sorted(values)[max(ceil(len(values) * percent / 100), 1) - 1]


def three_digits(value: float) -> str:
    """A number with at most three significant digits, thousands separated."""
    if not value:
        return "0"
    decimals = _DIGITS - 1 - floor(log10(abs(value)))
    text = f"{round(value, decimals):,.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def say(text: str) -> None:
    """Print progress, to stderr."""
    print(text, file=sys.stderr, flush=True)


def _text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Spread):
        return f"{three_digits(cell.median)} ({three_digits(cell.low)} to {three_digits(cell.high)})"
    return three_digits(cell)


def _json_value(cell: Cell) -> object:
    return (
        {name: round(value, 4) for name, value in cell._asdict().items()}
        if isinstance(cell, Spread)
        else cell
    )
