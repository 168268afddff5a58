"""Whether a quantity grows with the number of micro-batches: a robust slope, its noise, and the rule.

The first third is warm-up: the JVM compiles, caches fill. The rest is cut into 20 blocks of equal length. Each block is
its median, because samples that follow each other closely are not independent. The slope is that of Theil and Sen: the
median of the slopes of all pairs of blocks. Its range is Sen's, 95 % by Kendall's distribution.

The rule: a quantity grows if its whole range is above zero, and if its low end adds more than 1 % of the level in 1,000
micro-batches. All others are flat.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from statistics import median
from typing import NamedTuple

BLOCKS = 20
PER = 1_000
"""Micro-batches that a slope is of."""
_WARM_UP = 1 / 3
LEAST = 0.01
"""Share of the level that is growth."""
_NORMAL_95 = 1.96

Point = tuple[float, float]
"""The number of a micro-batch, and a value."""


class Slope(NamedTuple):
    """How a quantity changes in 1,000 micro-batches.

    Attributes:
        level: its median after the warm-up.
        slope: the change.
        low: the lower end of the range.
        high: the upper end.
        blocks: the medians of the blocks.
    """

    level: float
    slope: float
    low: float
    high: float
    blocks: Sequence[Point]

    @property
    def grows(self) -> bool:
        """Whether it grows by the rule."""
        return self.low > 0 and self.low > LEAST * abs(self.level)


def slope_of(points: Sequence[Point]) -> Slope:
    """The slope of a series, oldest first.

    Raises:
        ValueError: there are fewer than three points after the warm-up.
    """
    first, last = points[0][0], points[-1][0]
    begin = first + (last - first) * _WARM_UP
    measured = [point for point in points if point[0] >= begin]
    blocks = _blocks(measured, begin, last)
    if len(blocks) < 3:
        raise ValueError(f"{len(measured)} points are too few for a slope")
    slopes = sorted(
        (after[1] - before[1]) / (after[0] - before[0]) * PER for before, after in combinations(blocks, 2)
    )
    count = len(blocks)
    spread = _NORMAL_95 * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(round((len(slopes) - spread) / 2) - 1, 0)
    high = min(round((len(slopes) + spread) / 2), len(slopes) - 1)
    level = median(value for _, value in measured)
    return Slope(level, median(slopes), slopes[low], slopes[high], blocks)


def _blocks(points: Sequence[Point], begin: float, end: float) -> list[Point]:
    width = (end - begin) / BLOCKS
    found: dict[int, list[Point]] = {}
    for point in points:
        found.setdefault(min(int((point[0] - begin) / width), BLOCKS - 1), []).append(point)
    return [
        (median(number for number, _ in block), median(value for _, value in block))
        for _, block in sorted(found.items())
    ]
