"""Max-min fair parts: small demands are met first, and the others get the same."""

from __future__ import annotations

from collections.abc import Iterable


def value_under(demands: Iterable[float], budget: float) -> float:
    """The largest value with sum(min(demand, value)) at most the budget.

    If the demands do not use up the budget, the largest demand may use the rest.
    """
    left = budget
    ordered = sorted(demands)
    for index, demand in enumerate(ordered):
        even = left / (len(ordered) - index)
        if demand > even:
            return even
        left -= demand
    return left + (ordered[-1] if ordered else 0.0)
