"""How good a default is: how many clients it fits, how many it would throttle, and which overrides it saves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

_STEPS = (1.0, 2.0, 5.0)
_MOST_POWER = 12


class Need(NamedTuple):
    """What a bucket needs on its worst broker."""

    needed: float
    """Its target, per second."""
    is_override: bool
    """Whether a rule of its own sets its limit, and not the default."""


class DefaultQuality(NamedTuple):
    """The effect of one value of a default."""

    value: float
    covered: int
    """Buckets that need no more, of all."""
    buckets: int
    collateral: int
    """Buckets of the default that fit its present value, and need more than this one: they would be throttled."""
    overrides_saved: int
    """Overrides for buckets that need no more: without the override nothing would be throttled."""
    overrides: int

    @property
    def coverage_percent(self) -> float:
        """The share of buckets that need no more."""
        return 100 * self.covered / self.buckets if self.buckets else 0.0


def quality(needs: Sequence[Need], value: float, present: float | None) -> DefaultQuality:
    """The effect of a value.

    Args:
        needs: of the buckets of the default, and of those with an override.
        value: the candidate.
        present: the default in force; None if there is none.
    """
    overrides = [one for one in needs if one.is_override]
    of_default = [one for one in needs if not one.is_override]
    fit_now = [one for one in of_default if present is None or one.needed <= present]
    return DefaultQuality(
        value,
        sum(one.needed <= value for one in needs),
        len(needs),
        sum(one.needed > value for one in fit_now),
        sum(one.needed <= value for one in overrides),
        len(overrides),
    )


def grid(needs: Iterable[Need], present: float | None) -> list[float]:
    """Candidates: 1, 2 and 5 times powers of ten around what the buckets need, and the value in force."""
    values = [one.needed for one in needs]
    if not values:
        return [] if present is None else [present]
    steps = [step * 10.0**power for power in range(_MOST_POWER) for step in _STEPS]
    below = max((step for step in steps if step <= min(values)), default=steps[0])
    above = min((step for step in steps if step >= max(values)), default=steps[-1])
    chosen = {step for step in steps if below <= step <= above}
    return sorted(chosen if present is None else chosen | {present})
