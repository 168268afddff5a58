"""The objective of an owner, and the burn rates at which its error budget is spent too fast.

This is the one definition. The command, the report, notifications, the exporter and the rules of Prometheus use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
LEAST_PERCENT, MOST_PERCENT = 94.0, 99.999
"""Bounds of an objective, percent. Below 94 a client that is always throttled would burn less than 14.4 times."""
LEAST_DAYS, MOST_DAYS = 3, 90
"""Bounds of its period, days. The longest window of a burn rate has three days."""
BLIP_S = 120
"""Time throttled in the long window, s, up to which nothing burns. A client with little traffic must not page."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The share of active seconds that shall pass without a throttle, over a period.

    A second is active if a client sent a request in it, or if a throttle still ran.
    """

    percent: float = 99.5
    days: int = 30

    @property
    def allowed_ratio(self) -> float:
        """The share of active seconds that may be throttled, 0 to 1."""
        return round(100 - self.percent, 9) / 100

    @property
    def period_s(self) -> int:
        """Length of the period, s."""
        return self.days * _DAY_S


class BurnRule(NamedTuple):
    """A pace of spending that is too fast: both windows must have it."""

    name: str
    factor: float
    """Least burn rate: 1 spends exactly the whole budget in its period."""
    long_s: int
    """The window in which so much was burnt, s. It leaves out blips."""
    short_s: int
    """The window which shows that it still burns, s. It ends the alert with the throttling."""


BURN_RULES = (
    BurnRule("fast", 14.4, _HOUR_S, 5 * _MINUTE_S),
    BurnRule("hours", 6.0, 6 * _HOUR_S, 30 * _MINUTE_S),
    BurnRule("days", 1.0, 3 * _DAY_S, 6 * _HOUR_S),
)
"""The paces, the most urgent first. An owner has the first one that holds, and no other.

Shares of a budget of 30 days: `fast` burns 2 % in an hour, `hours` 5 % in six hours, `days` 10 % in three days.
"""
PAGING = ("fast", "hours")
"""The paces at which somebody has to act now."""
WINDOWS_S: Mapping[str, int] = {
    "5m": 5 * _MINUTE_S, "30m": 30 * _MINUTE_S, "1h": _HOUR_S, "6h": 6 * _HOUR_S, "3d": 3 * _DAY_S,
}  # fmt: skip
"""The windows of the paces by name, as Prometheus writes them; lengths in s."""


class Spent(NamedTuple):
    """Seconds of a window."""

    active_s: int
    throttled_s: int
    """The seconds of these in which a throttle began or still ran."""


def burn_rate(spent: Spent, objective: Objective) -> float | None:
    """The throttled share of a window as multiple of the allowed share; None without an active second."""
    if not spent.active_s:
        return None
    return spent.throttled_s / spent.active_s / objective.allowed_ratio


def burning(windows: Mapping[int, Spent], objective: Objective) -> BurnRule | None:
    """The most urgent pace that holds; None if the budget is not spent too fast.

    Args:
        windows: the seconds of each window of `WINDOWS_S`, by its length, s.
        objective: of the owner.
    """
    return next((rule for rule in BURN_RULES if _holds(rule, windows, objective)), None)


def _holds(rule: BurnRule, windows: Mapping[int, Spent], objective: Objective) -> bool:
    rates = (burn_rate(windows[length_s], objective) for length_s in (rule.long_s, rule.short_s))
    is_burning = all(rate is not None and rate >= rule.factor for rate in rates)
    return is_burning and windows[rule.long_s].throttled_s > BLIP_S
