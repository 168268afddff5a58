"""Error budgets of a report as literal data: a month that is spent evenly up to what is left."""

from __future__ import annotations

from kquota_spark.model.budgets.budgets import LeftAt
from kquota_spark.reports.sections.budgets import OwnerBudget

END_S = 1_795_219_200
"""2026-11-21 00:00 UTC."""
MONTH_S = 30 * 86_400


def owner_budget(owner: str, left_percent: float) -> OwnerBudget:
    """The budget of an owner that is active all the time: 12,960 s may be throttled."""
    begin_s, steps = END_S - MONTH_S, 10
    spent = 100 - left_percent
    return OwnerBudget(
        owner=owner,
        objective_percent=99.5,
        objective_days=30,
        covered_s=MONTH_S,
        active_s=MONTH_S,
        time_throttled_s=round(12_960 * spent / 100),
        budget_s=12_960.0,
        left_s=12_960 * left_percent / 100,
        left_percent=left_percent,
        burn_5m=None,
        burn_30m=0.0,
        burn_1h=14.4,
        burn_6h=2.0,
        burn_3d=spent / 100,
        pace="days" if left_percent < 50 else "",
        spent_at_ms=(END_S + 86_400) * 1_000 if 0 < left_percent < 50 else None,
        burn_down=tuple(
            LeftAt(begin_s + MONTH_S * step // steps, 100 - spent * step / steps) for step in range(steps + 1)
        ),
    )
