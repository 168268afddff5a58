"""When the traffic of a bucket changed: points at which the mean of a series of amounts changes.

The points are those with the least sum of squared distances from the means between them, plus a penalty for each point.
PELT finds them exactly. It leaves out candidates that can never be the best again.

Source: R. Killick and others, "Optimal detection of changepoints with a linear computational cost" (2012).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import median

SLOT_MS = 10_000
"""Length of the slots of a series, ms."""
BEFORE_MS = 7_200_000
"""Time before a period in which the traffic may have changed, ms."""
_PENALTY = 6.0
"""Penalty in units of the variance times the logarithm of the length: by null runs (see the tests)."""
_SIGMA_OF_DIFFERENCE = 1.4826 / math.sqrt(2)
"""Standard deviation by the median distance of neighbours, if the noise is normal."""
_LEAST_SIGMA = 0.02
"""Least standard deviation as a share of the mean: smaller changes are of no interest."""


def change_points(values: Sequence[float], penalty: float) -> list[int]:
    """The places at which a new mean begins, in order; without the place 0.

    Args:
        values: the series.
        penalty: cost of each point, in squared units of the values.
    """
    sums = [0.0, *accumulate(values)]
    squares = [0.0, *accumulate(value * value for value in values)]

    def cost(start: int, end: int) -> float:
        total = sums[end] - sums[start]
        return squares[end] - squares[start] - total * total / (end - start)

    best, previous, candidates = [-penalty], [0], [0]
    for end in range(1, len(values) + 1):
        costs = [(best[start] + cost(start, end), start) for start in candidates]
        least, start = min(costs)
        best.append(least + penalty)
        previous.append(start)
        candidates = [place for found, place in costs if found <= best[end]] + [end]
    points, place = [], len(values)
    while place > 0:
        place = previous[place]
        points.append(place)
    return sorted(point for point in points if point)


def penalty_of(values: Sequence[float]) -> float:
    """The penalty for a series, by the noise between neighbours; 0 for a series without values."""
    if len(values) < 2:
        return 0.0
    noise = median(abs(after - before) for before, after in pairwise(values))
    sigma = max(_SIGMA_OF_DIFFERENCE * noise, _LEAST_SIGMA * sum(values) / len(values))
    return _PENALTY * sigma * sigma * math.log(len(values))


def onset_ms(amounts: Sequence[int], from_ms: int, throttled_ms: int) -> int | None:
    """When the traffic rose last before throttling began, epoch ms; None if it did not.

    Args:
        amounts: amounts of slots of 10 s.
        from_ms: beginning of the first slot, epoch ms.
        throttled_ms: when throttling began, epoch ms.
    """
    points = change_points(amounts, penalty_of(amounts))
    ends = [0, *points, len(amounts)]
    means = [sum(amounts[start:end]) / (end - start) for start, end in pairwise(ends)] if amounts else []
    rises = [
        from_ms + SLOT_MS * point
        for point, (before, after) in zip(points, pairwise(means), strict=True)
        if after > before and from_ms + SLOT_MS * point <= throttled_ms
    ]
    return rises[-1] if rises else None
