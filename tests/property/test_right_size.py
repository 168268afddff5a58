"""Right sizes of tenants with known demand: a miniature of `python -m tests.right_size`."""

from __future__ import annotations

from statistics import fmean

import pytest

from tests.right_size.acceptance import RIVALS, Outcome, lines, outcomes

SEED, TENANTS = 2, 12


@pytest.fixture(scope="module")
def found() -> list[Outcome]:
    """Tenants with four weeks of history, and a fifth week to judge by. Some wait, some catch up, some grow."""
    return list(outcomes(SEED, TENANTS))


def test_the_loss_is_a_fifth_below_that_of_vpa_and_of_the_other_estimate(found: list[Outcome]) -> None:
    own, *losses = (fmean(of_one) for of_one in zip(*(one.losses for one in found), strict=True))
    others = dict(zip(RIVALS, losses, strict=True))
    # 12 tenants are too few for a fifth less than Autopilot: its margin is the smallest.
    assert own < others.pop("Autopilot")
    assert [own <= 0.8 * other for other in others.values()] == [True] * 3


def test_the_bounds_hold_and_an_odd_day_does_not_move_a_target(found: list[Outcome]) -> None:
    sure = [one for one in found if not one.size.is_at_least]
    assert len(sure) >= 8
    assert sum(one.is_covered for one in found) >= 0.8 * TENANTS
    assert max(one.moved for one in sure) < 0.05
    # The target of 99 % throttles one window of a hundred, and a week differs from the others.
    assert sum(one.throttled_after <= 0.02 for one in sure) >= 0.9 * len(sure)


def test_flat_tenants_have_no_forecast(found: list[Outcome]) -> None:
    flat = [one for one in found if one.tenant.is_flat]
    assert [one.forecast for one in flat] == [None] * len(flat) != []


def test_each_line_of_acceptance_has_a_figure(found: list[Outcome]) -> None:
    assert len(lines(found)) == 12
    assert "-" not in {line.found for line in lines(found)}
