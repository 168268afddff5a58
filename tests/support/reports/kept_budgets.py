"""Tables of some days whose error budgets are kept by `kquota maintain`, and both ways to read a budget."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from kquota_spark.audit.past.maintain import Step
from kquota_spark.config.settings import Settings
from kquota_spark.model.budgets.budgets import Budget
from kquota_spark.reports.budgets.day_roll_up import BudgetRollUp
from kquota_spark.reports.budgets.grouping import Grouping
from kquota_spark.reports.budgets.kept_days import TABLES, kept_seconds
from kquota_spark.reports.budgets.owned_budgets import budgets_at
from kquota_spark.reports.scope.period import Period
from kquota_spark.store.reading import Tables
from tests.support.tables.table_rows import decision

MIDNIGHT_S = 66_000
"""Seconds from T0 to the midnight after it: 2026-11-22 00:00 UTC."""
DAY_S = 86_400


def throttle(offset_s: int, longest_ms: int, **changed: Any) -> dict[str, Any]:
    """A second of a bucket with one throttle, which the broker logged."""
    figures = {"observed_throttle_ms": longest_ms, "observed_throttled_requests": 1,
               "observed_total_throttle_ms": longest_ms}  # fmt: skip
    return decision(offset_s, **figures, **changed)


def tables_of(root: Path, owners: str = "") -> Settings:
    """Settings of empty tables; `owners` is the text of the file of owners."""
    file = root / "owners.yaml"
    if owners:
        file.write_text(owners, encoding="utf-8")
    return Settings(tables=str(root), cluster_id="demo", owners=str(file) if owners else "")


def roll_up(settings: Settings, *days: str) -> list[Step]:
    """What one run of maintenance does for these closed ISO dates."""
    of_run = BudgetRollUp()
    steps = (of_run(settings, date.fromisoformat(day)) for day in days)
    return [step for step in steps if step is not None]


def kept_dates(settings: Settings, to_ms: int, grouping: Grouping) -> list[str]:
    """The dates of a budget that are not read from the tables."""
    period = Period(to_ms - grouping.period_s * 1_000, to_ms)
    with Tables(settings) as tables:
        files = {name: found for name in TABLES if (found := tables.dated_files(name)) is not None}
        return sorted(kept_seconds(tables, settings.cluster_id, period, grouping, files).days)


def budgets(
    settings: Settings, to_ms: int, grouping: Grouping, *, from_rows: bool = False
) -> dict[str, Budget]:
    """The budgets at a time; `from_rows` without the kept dates."""
    with Tables(settings) as tables:
        found = budgets_at(tables, settings.cluster_id, to_ms, grouping, has_buckets=from_rows).found
    return {one.name: one.budget for one in found}
