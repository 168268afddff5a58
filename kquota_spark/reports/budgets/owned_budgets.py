"""The error budget of each group at a time, recomputed from the tables of its period."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kquota_spark.model.budgets.budgets import Budget, OwnSeconds, budget_of
from kquota_spark.reports.budgets.grouping import Grouping
from kquota_spark.reports.budgets.own_seconds import Owned
from kquota_spark.reports.budgets.period_seconds import period_seconds, whole_seconds
from kquota_spark.reports.scope.period import Period
from kquota_spark.store.reading import Tables

_NEWEST = "select epoch_ms(max(decisions.second)) from decisions where cluster_id = ?"
_NEWER = " and decisions.second >= make_timestamptz(?)"
_LAST_MS = 3_600_000
"""Time before the newest second of all clusters in which a second of this one is sought first, ms."""


class OwnedBudget(NamedTuple):
    """The budget of a group, and the seconds that it is of."""

    name: str
    budget: Budget
    seconds: OwnSeconds


class Budgets(NamedTuple):
    """The budgets of all groups at a time, the least left first."""

    to_ms: int
    found: list[OwnedBudget]
    owned: Owned | None
    """What `bucket_seconds` needs; None if it was not asked for."""

    @property
    def covered_from_ms(self) -> int:
        """The first active second in the longest period, epoch ms."""
        firsts = [one.budget.first_active_s for one in self.found if one.budget.first_active_s is not None]
        return min(firsts, default=self.to_ms // 1_000) * 1_000


def newest_ms(tables: Tables, cluster_id: str) -> int | None:
    """The end of the newest judged second of a cluster, epoch ms; None if there is none.

    Args:
        tables: with `decisions` opened.
        cluster_id: the cluster.
    """
    newest = tables.newest_ms("decisions")
    if newest is None:
        return None
    last_us = (newest - _LAST_MS) * 1_000
    found = tables.query(_NEWEST + _NEWER, [cluster_id, last_us]).rows[0][0]
    if found is None:
        found = tables.query(_NEWEST, [cluster_id]).rows[0][0]
    return None if found is None else int(found) // 1_000 * 1_000 + 1_000


def budgets_at(
    tables: Tables, cluster_id: str, to_ms: int, grouping: Grouping, *, has_buckets: bool = False
) -> Budgets:
    """The budgets of the periods that end at a time.

    It reads the dates of the longest period, and of these only those that `budget_days` does not have.

    Args:
        tables: opened here; `decisions` may be open already.
        cluster_id: the cluster.
        to_ms: the end, exclusive, epoch ms of a whole second.
        grouping: the groups.
        has_buckets: whether `bucket_seconds` follows: all dates are read then.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    period = Period(to_ms - grouping.period_s * 1_000, to_ms)
    owned = whole_seconds(tables, cluster_id, period, grouping) if has_buckets else None
    seconds = period_seconds(tables, cluster_id, period, grouping) if owned is None else owned.seconds
    found = [
        OwnedBudget(name, budget_of(own, grouping.objective_of(name), to_ms // 1_000), own)
        for name, own in seconds.items()
    ]
    return Budgets(to_ms, most_spent(found), owned)


def most_spent(found: Iterable[OwnedBudget]) -> list[OwnedBudget]:
    """The budgets in the order of all lists: the least left first, then by name; idle ones last."""
    return sorted(found, key=lambda one: (_left(one.budget), one.name))


def _left(budget: Budget) -> float:
    return float("inf") if budget.left_percent is None else budget.left_percent
