"""Shapley values: how a figure is divided among players, so that the parts add up to it exactly.

A player is a cause, or a client of a bucket. The value of a set of players is the figure of a replay in which only
these are present. The part of a player is the mean of what it adds, over all orders in which the players can come. So a
player that never changes the figure gets 0, and two players that are alike get the same part.

All orders count up to 8 players. Above that, orders are drawn with a fixed seed, each one with all its rotations. So
each player comes equally often at each place. Each part then has a standard error.

Source: L. Shapley, "A value for n-person games" (1953).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

MOST_EXACT = 8
"""Maximum number of players with exact parts: 8 have 256 sets."""
_SEED = 20_140_705
"""Seed of the drawn orders, so that the same question has the same answer."""

Figures = tuple[int, ...]
"""Figures of one set of players, for example the delay (ms) of each client."""
ValueOf = Callable[[int], Figures]
"""The figures of a set of players. Bit `n` of the number is player `n`."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The parts of all players. Each figure of the whole is its base plus the parts of that figure, exactly."""

    base: Figures
    """The figures without any player."""
    whole: Figures
    """The figures with all players."""
    parts: tuple[Figures, ...]
    """For each player its part of each figure."""
    standard_errors: tuple[float, ...]
    """For each player the standard error of the sum of its parts; 0 where all orders count."""
    orders: int
    """Number of drawn orders; 0 if all orders count."""

    @property
    def is_exact(self) -> bool:
        """Whether all orders count."""
        return not self.orders


def shares(players: int, value_of: ValueOf, most_orders: int = 512) -> Shares:
    """The parts of all players.

    Args:
        players: number of players.
        value_of: the figures of a set of players; it is called once per set.
        most_orders: maximum number of drawn orders for more than 8 players; at least two times the players are drawn.
    """
    known: dict[int, Figures] = {}

    def value(mask: int) -> Figures:
        if mask not in known:
            known[mask] = value_of(mask)
        return known[mask]

    base, whole = value(0), value((1 << players) - 1)
    if players <= MOST_EXACT:
        parts = _exact(players, value)
        return Shares(base, whole, _rounded(base, whole, parts, math.factorial(players)), (0.0,) * players, 0)
    blocks = max(2, most_orders // players)
    parts, errors = _drawn(players, value, blocks)
    orders = blocks * players
    return Shares(base, whole, _rounded(base, whole, parts, orders), errors, orders)


def _exact(players: int, value: ValueOf) -> list[list[int]]:
    """The parts times the factorial of the number of players: whole numbers."""
    sets = [value(mask) for mask in range(1 << players)]
    weights = [math.factorial(size) * math.factorial(players - size - 1) for size in range(players)]
    found = [[0] * len(sets[0]) for _ in range(players)]
    for mask, without in enumerate(sets):
        weight = weights[mask.bit_count()] if mask.bit_count() < players else 0
        for player in range(players):
            if not mask >> player & 1:
                of_player = found[player]
                for place, more in enumerate(sets[mask | 1 << player]):
                    of_player[place] += weight * (more - without[place])
    return found


def _drawn(players: int, value: ValueOf, blocks: int) -> tuple[list[list[int]], tuple[float, ...]]:
    """The parts times the number of orders, and the standard error of each player, by the means of the blocks."""
    chance = Random(_SEED)  # noqa: S311 - no secret: the same question must have the same answer
    found = [[0] * len(value(0)) for _ in range(players)]
    of_blocks: list[list[float]] = [[] for _ in range(players)]
    for _ in range(blocks):
        order = list(range(players))
        chance.shuffle(order)
        added = [0] * players
        for turn in range(players):
            mask, before = 0, value(0)
            for player in order[turn:] + order[:turn]:
                mask |= 1 << player
                after = value(mask)
                for place, (more, less) in enumerate(zip(after, before, strict=True)):
                    found[player][place] += more - less
                added[player] += sum(after) - sum(before)
                before = after
        for player, of_block in enumerate(added):
            of_blocks[player].append(of_block / players)
    return found, tuple(map(_standard_error, of_blocks))


def _standard_error(values: Sequence[float]) -> float:
    """The standard error of a mean."""
    mean = sum(values) / len(values)
    squares = sum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1) / len(values)) if len(values) > 1 else 0.0


def _rounded(
    base: Figures, whole: Figures, parts: Sequence[Sequence[int]], denominator: int
) -> tuple[Figures, ...]:
    """The parts as whole numbers with exact sums: the largest remainders are rounded up.

    A part of exactly 0 stays 0, because fewer parts are rounded up than have a remainder.

    Args:
        base: the figures without any player.
        whole: the figures with all players.
        parts: the parts of each player, times the denominator.
        denominator: above 0.
    """
    found = [[part // denominator for part in of_player] for of_player in parts]
    for place, (least, most) in enumerate(zip(base, whole, strict=True)):
        left = most - least - sum(of_player[place] for of_player in found)
        by_remainder = sorted(
            range(len(parts)), key=lambda player: (-(parts[player][place] % denominator), player)
        )
        for player in by_remainder[:left]:
            found[player][place] += 1
    return tuple(map(tuple, found))
