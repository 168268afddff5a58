"""Shapley values: the parts add up exactly, and a player that changes nothing gets 0."""

from __future__ import annotations

import pytest

from kquota_spark.model.attribution.shapley import MOST_EXACT, shares
from tests.support.chance import Chance

GLOVES = {0b000: 0, 0b001: 0, 0b010: 0, 0b100: 0, 0b011: 6, 0b101: 6, 0b110: 0, 0b111: 6}
"""One left glove (player 0) and two right ones: a pair is worth 6."""


def test_the_parts_of_a_known_game() -> None:
    # Player 0 adds 6 unless it comes first: 4 of 6 orders, so 4. Each other adds 6 in 1 of 6 orders, so 1.
    found = shares(3, lambda mask: (GLOVES[mask],))
    assert found.parts == ((4,), (1,), (1,))
    assert (found.base, found.whole, found.is_exact) == ((0,), (6,), True)


def test_two_figures_are_divided_apart_and_one_player_gets_all() -> None:
    found = shares(1, lambda mask: (10, 3) if mask else (4, 7))
    assert (found.base, found.whole, found.parts) == ((4, 7), (10, 3), ((6, -4),))


def test_what_cannot_be_divided_evenly_still_adds_up() -> None:
    # Three equal players share 10: 3.33 each. The first gets the millisecond that is left.
    found = shares(3, lambda mask: (10 if mask == 0b111 else 0,))
    assert found.parts == ((4,), (3,), (3,))


@pytest.mark.parametrize("players", range(1, MOST_EXACT + 4))
def test_the_parts_add_up_to_the_difference_for_any_game(players: int) -> None:
    chance = Chance(players)
    values = {mask: (chance.randrange(10**6), chance.randrange(10**6)) for mask in range(1 << players)}
    found = shares(players, values.__getitem__, most_orders=16)
    sums = tuple(sum(part[place] for part in found.parts) for place in (0, 1))
    assert sums == tuple(whole - base for whole, base in zip(found.whole, found.base, strict=True))
    assert found.is_exact == (players <= MOST_EXACT)


@pytest.mark.parametrize("players", [4, 11])
def test_a_player_that_changes_nothing_gets_0_and_has_no_error(players: int) -> None:
    chance = Chance(3)
    values = {mask: chance.randrange(10**6) for mask in range(1 << players)}
    found = shares(players, lambda mask: (values[mask & ~0b100],), most_orders=8)
    assert found.parts[2] == (0,)
    assert found.standard_errors[2] == 0.0
    assert sum(part != (0,) for part in found.parts) == players - 1


def test_drawn_orders_are_near_the_exact_parts_and_the_same_in_each_run() -> None:
    # Players 8 to 10 change nothing, so the parts of the others are those of the game of 8, which is exact.
    def value(mask: int) -> tuple[int]:
        return (sum(player + 1 for player in range(8) if mask >> player & 1) ** 3,)

    exact, drawn = shares(8, value), shares(11, value, most_orders=400)
    assert shares(11, value, most_orders=400) == drawn
    assert (exact.orders, drawn.orders) == (0, 396)  # 36 times all 11 rotations
    assert exact.standard_errors == (0.0,) * 8
    for (part,), (known,), error in zip(drawn.parts, exact.parts, drawn.standard_errors, strict=False):
        assert abs(part - known) < 3 * error
        assert error < 0.02 * exact.whole[0]


def test_each_set_is_asked_for_once() -> None:
    asked: list[int] = []

    def value(mask: int) -> tuple[int]:
        asked.append(mask)
        return (mask,)

    shares(8, value)
    assert sorted(asked) == list(range(256))
