"""The error budget of an owner at a time: what is left, how fast it burns, and when it is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kquota_spark.model.budgets.objectives import (
    WINDOWS_S,
    BurnRule,
    Objective,
    Spent,
    burn_rate,
    burning,
)
from kquota_spark.model.budgets.seconds import SecondSet

FORECAST = "6h"
"""The window at the pace of which the budget is spent, for the forecast."""


@dataclass(slots=True)
class OwnSeconds:
    """The seconds in which clients of an owner were active, and those in which a throttle of theirs held.

    A throttled second is active too: a client that waits would send.
    """

    active: SecondSet = field(default_factory=SecondSet)
    throttled: SecondSet = field(default_factory=SecondSet)

    def add_all(self, other: OwnSeconds) -> None:
        """Add seconds; those that are known count once."""
        self.active.add_all(other.active)
        self.throttled.add_all(other.throttled)

    def spent(self, first_s: int, end_s: int) -> Spent:
        """The seconds from `first_s` until before `end_s`."""
        return Spent(self.active.count(first_s, end_s), self.throttled.count(first_s, end_s))

    def within(self, first_s: int, end_s: int) -> OwnSeconds:
        """The seconds from `first_s` until before `end_s`, as other sets."""
        return OwnSeconds(self.active.within(first_s, end_s), self.throttled.within(first_s, end_s))

    def forget_before(self, first_s: int) -> None:
        """Remove the hours that end before a second."""
        self.active.forget_before(first_s)
        self.throttled.forget_before(first_s)


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of the period that ends at a time."""

    objective: Objective
    to_s: int
    """End of the period, exclusive, s since the epoch."""
    period: Spent
    windows: Mapping[int, Spent]
    """The seconds of each window of `WINDOWS_S` that ends then, by its length, s."""
    first_active_s: int | None
    """The first active second of the period; None if there is none."""

    @property
    def budget_s(self) -> float:
        """Seconds that may be throttled: the allowed share of the active seconds."""
        return self.objective.allowed_ratio * self.period.active_s

    @property
    def left_s(self) -> float:
        """Seconds of it that are left; negative if more was spent."""
        return self.budget_s - self.period.throttled_s

    @property
    def left_percent(self) -> float | None:
        """The same as percent of the budget; None without an active second."""
        return 100 * self.left_s / self.budget_s if self.period.active_s else None

    @property
    def burns(self) -> dict[str, float | None]:
        """The burn rate of each window by name; None without an active second."""
        return {name: burn_rate(self.windows[long_s], self.objective) for name, long_s in WINDOWS_S.items()}

    @property
    def burning(self) -> BurnRule | None:
        """The most urgent pace that holds; None if the budget is not spent too fast."""
        return burning(self.windows, self.objective)

    @property
    def spent_at_s(self) -> int | None:
        """When it is spent at the pace of the last six hours; None if it lasts, or is spent already.

        A budget lasts if its burn rate is at most 1: the period moves on, and as much comes back.
        """
        window_s = WINDOWS_S[FORECAST]
        rate = burn_rate(self.windows[window_s], self.objective)
        if rate is None or rate <= 1 or self.left_s <= 0:
            return None
        return self.to_s + round(self.left_s * window_s / self.windows[window_s].throttled_s)


def budget_of(own: OwnSeconds, objective: Objective, to_s: int) -> Budget:
    """The budget of the period of the objective that ends at a time.

    Args:
        own: the seconds of the owner; those of the whole period are needed, and others may be there.
        objective: of the owner.
        to_s: the end, exclusive, s since the epoch.
    """
    from_s = to_s - objective.period_s
    first_s = own.active.first_s(from_s)
    return Budget(
        objective,
        to_s,
        own.spent(from_s, to_s),
        {length_s: own.spent(to_s - length_s, to_s) for length_s in WINDOWS_S.values()},
        None if first_s is None or first_s >= to_s else first_s,
    )


class LeftAt(NamedTuple):
    """A point of a burn-down."""

    at_s: int
    left_percent: float


def burn_down(own: OwnSeconds, budget: Budget, steps: int) -> Sequence[LeftAt]:
    """What was left of the budget over its period, from 100 percent to what is left at the end.

    It begins with the first active second. The budget is that of the whole period.

    Args:
        own: the seconds of the owner.
        budget: the budget.
        steps: number of points after the first one.
    """
    if budget.first_active_s is None:
        return ()
    from_s = budget.first_active_s
    ends = sorted({from_s + round((budget.to_s - from_s) * step / steps) for step in range(steps + 1)})
    found, spent_s = [LeftAt(from_s, 100.0)], 0
    for begin_s, end_s in pairwise(ends):
        spent_s += own.throttled.count(begin_s, end_s)
        found.append(LeftAt(end_s, 100 - 100 * spent_s / budget.budget_s))
    return found
