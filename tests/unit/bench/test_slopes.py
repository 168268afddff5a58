"""The rule of the soak: what it calls growth, and what it does not."""

from __future__ import annotations

from math import inf

import pytest

from tests.bench.slopes import slope_of
from tests.support.chance import Chance

BATCHES = range(0, 5_000, 10)


def test_a_line_has_its_slope_and_no_range() -> None:
    # 0.02 per micro-batch are 20 per 1,000; after the warm-up it is at 33 to 100: the level is about 67.
    found = slope_of([(batch, batch * 0.02) for batch in BATCHES])
    assert [round(each, 6) for each in (found.slope, found.low, found.high)] == [20, 20, 20]
    assert (round(found.level), len(found.blocks), found.grows) == (67, 20, True)


@pytest.mark.parametrize(("slope", "grows"), [(0, range(10)), (12, range(195, 201))])
def test_of_200_noisy_series_the_range_holds_the_slope_of_nine_in_ten(
    chance: Chance, slope: int, grows: range
) -> None:
    """The range is of 95 %: 190 of 200, with a deviation of 3. Growth is from 100 to 160 in a noise of 60.

    Half of that growth is found in three of four series.
    """
    noisy = [
        slope_of([(batch, 100 + batch * slope / 1_000 + chance.uniform(-30, 30)) for batch in BATCHES])
        for _ in range(200)
    ]
    assert sum(found.low <= slope <= found.high for found in noisy) > 175
    assert sum(found.grows for found in noisy) in grows


def test_the_warm_up_does_not_count() -> None:
    # It falls and climbs until 1,600, and is constant then.
    found = slope_of([(batch, abs(batch - 800) if batch < 1_600 else 800) for batch in BATCHES])
    assert (found.slope, found.low, found.high, found.grows) == (0, 0, 0, False)


@pytest.mark.parametrize(("per_batch", "grows"), [(0.0009, False), (0.0011, True)])
def test_less_than_a_hundredth_of_the_level_is_flat(per_batch: float, grows: bool) -> None:
    # The level is about 100, so 1 per 1,000 micro-batches is the least that counts.
    assert slope_of([(batch, 97 + batch * per_batch) for batch in BATCHES]).grows is grows


def test_single_peaks_are_no_growth() -> None:
    # The last quarter has a peak in each tenth value.
    found = slope_of([(batch, inf if batch > 3_750 and batch % 100 == 0 else 5) for batch in BATCHES])
    assert (found.level, found.slope, found.grows) == (5, 0, False)


def test_what_falls_does_not_grow() -> None:
    assert not slope_of([(batch, 1_000 - batch * 0.1) for batch in BATCHES]).grows


def test_two_points_are_no_series() -> None:
    with pytest.raises(ValueError, match="too few"):
        slope_of([(0, 1), (1, 2)])
