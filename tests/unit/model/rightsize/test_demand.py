"""Demand behind throttles: distributions with known answers, and the bins in which a window's demand lies."""

from __future__ import annotations

import pytest

from kquota_spark.model.rightsize.demand import (
    Interval,
    Mass,
    bin_of,
    distribution,
    interval_of,
    is_natural,
    least_of,
    most_of,
    quantile,
    share_above,
    value_at,
)


def masses(*found: tuple[int, int | None]) -> list[tuple[int, int | None, float]]:
    weights: dict[Interval, float] = {}
    for one in found:
        weights[Interval(*one)] = weights.get(Interval(*one), 0) + 1
    return [(each.low, each.high, round(each.share, 4)) for each in distribution(weights)]


def test_without_throttles_it_is_the_share_of_windows() -> None:
    assert masses((3, 3), (3, 3), (5, 5), (9, 9)) == [(3, 3, 0.5), (5, 5, 0.25), (9, 9, 0.25)]


def test_with_open_intervals_it_is_the_estimate_of_kaplan_and_meier() -> None:
    # At 1 one of 5 ends: 1/5. At 3 one of the 3 that are left: 4/5 x 1/3 = 0.2667. At 5 the rest: 0.5333.
    assert masses((1, 1), (2, None), (3, 3), (4, None), (5, 5)) == [
        (1, 1, 0.2), (3, 3, 0.2667), (5, 5, 0.5333)
    ]  # fmt: skip


def test_what_is_beyond_the_largest_known_demand_has_no_end() -> None:
    # Nothing is known above 4: half of the windows wanted at least that.
    assert masses((1, 1), (4, None)) == [(1, 1, 0.5), (4, None, 0.5)]
    assert quantile(distribution({Interval(1, 1): 1.0, Interval(4, None): 1.0}), 99) == (4, None, 0.5)


def test_an_interval_is_spread_over_what_is_known_within_it() -> None:
    # 2 to 6 holds the known 3 and 5, which are as frequent: each gets half of it. 9 stays alone.
    assert masses((3, 3), (5, 5), (9, 9), (2, 6)) == [(3, 3, 0.375), (5, 5, 0.375), (9, 9, 0.25)]


def test_intervals_that_overlap_have_their_mass_where_all_of_them_are() -> None:
    assert masses((1, 4), (3, 8)) == [(3, 4, 1.0)]


def test_what_has_no_weight_draws_no_mass() -> None:
    # Bin 50 is of a day that is left out.
    found = distribution({Interval(10, 10): 1.0, Interval(5, None): 3.0, Interval(50, 50): 0.0})
    assert found == [Mass(10, 10, 1.0)]


def test_a_quantile_in_one_bin_lies_between_its_edges_by_rank() -> None:
    found = distribution({Interval(10, 10): 50.0, Interval(20, 20): 50.0})
    assert quantile(found, 50) == Mass(10, 10, 0.5)
    assert quantile(found, 51) == Mass(20, 20, 0.5)
    # 75 % is in the middle of bin 20, by its logarithm.
    assert value_at(found, 75) == pytest.approx(1.05**20.5)
    assert share_above(found, 1.05**10.5) == 0.5


def test_bins_grow_by_five_percent() -> None:
    assert [bin_of(value) for value in (0, 1, 1.04, 1.06, 1.05**40 + 1e-9)] == [0, 0, 0, 1, 40]
    assert most_of(7) / least_of(7) == pytest.approx(1.05)


@pytest.mark.parametrize(
    ("throttled", "natural", "pace", "wanted"),
    [
        (False, False, None, (5, 5)),
        (True, False, 9, (5, 9)),
        (True, True, 9, (9, 9)),
        (True, False, None, (5, None)),
        (True, True, None, (5, None)),
        (True, True, 4, (5, 5)),
    ],
)
def test_a_throttled_window_has_an_interval(
    throttled: bool, natural: bool, pace: int | None, wanted: tuple[int, int | None]
) -> None:
    assert interval_of(5, pace, is_throttled=throttled, is_natural=natural) == wanted


def test_a_client_that_sends_faster_after_a_throttle_catches_up() -> None:
    assert [is_natural(ratio) for ratio in (None, 1.0, 1.2, 1.21)] == [False, True, True, False]
