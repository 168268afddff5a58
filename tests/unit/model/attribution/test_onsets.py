"""Change points of a series: those with the least cost, none in a calm series, and the step in a changed one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kquota_spark.model.attribution.onsets import change_points, onset_ms, penalty_of
from tests.support.chance import Chance


def _cost(values: list[float], points: list[int], penalty: float) -> float:
    parts = [values[start:end] for start, end in pairwise([0, *points, len(values)])]
    means = [sum(part) / len(part) for part in parts]
    squares = sum((value - mean) ** 2 for part, mean in zip(parts, means, strict=True) for value in part)
    return squares + penalty * len(points)


def _least(values: list[float], penalty: float) -> float:
    """The least cost over all sets of points: every one of them is tried."""
    inner = range(1, len(values))
    return min(
        _cost(values, [place for place in inner if mask >> place & 1], penalty)
        for mask in range(0, 1 << len(values), 2)
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_other_points_cost_less(seed: int) -> None:
    chance = Chance(seed)
    values = [chance.choice([0, 5, 9]) + chance.random() for _ in range(chance.randint(1, 10))]
    penalty = chance.choice([0.1, 3.0, 30.0])
    points = change_points(values, penalty)
    assert _cost(values, points, penalty) == pytest.approx(_least(values, penalty), abs=1e-9)


def test_a_step_is_found_where_it_is() -> None:
    assert change_points([1.0] * 7 + [5.0] * 5, 1.0) == [7]
    assert change_points([1.0] * 7 + [5.0] * 5 + [1.0] * 3, 1.0) == [7, 12]
    assert change_points([], 1.0) == []


def test_calm_series_have_no_change() -> None:
    chance = Chance(17)
    changed = 0
    for _ in range(30):
        values = [chance.gauss(1_000, 100) for _ in range(720)]
        changed += bool(change_points(values, penalty_of(values)))
    assert changed == 0


def test_a_rise_of_30_percent_is_found_within_a_slot() -> None:
    chance = Chance(5)
    found = []
    for _ in range(20):
        values = [round(chance.gauss(1_000 if place < 500 else 1_300, 100)) for place in range(720)]
        found.append(onset_ms(values, from_ms=0, throttled_ms=7_200_000))
    assert sum(onset is not None and abs(onset - 5_000_000) <= 10_000 for onset in found) == 20


def test_the_last_rise_before_the_throttling_counts_and_a_fall_does_not() -> None:
    # Slots of 10 s from 60,000: up at slot 10 (160 s), down at 20 (260 s), up at 30 (360 s).
    amounts = [100] * 10 + [200] * 10 + [100] * 10 + [300] * 10
    assert onset_ms(amounts, 60_000, throttled_ms=460_000) == 360_000
    assert onset_ms(amounts, 60_000, throttled_ms=359_999) == 160_000
    assert onset_ms([300] * 10 + [100] * 10, 60_000, throttled_ms=460_000) is None
    assert onset_ms([], 60_000, throttled_ms=460_000) is None
