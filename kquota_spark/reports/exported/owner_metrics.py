"""The metrics of owners: what the rules of Prometheus compute burn rates from, and what is left of each budget."""

from __future__ import annotations

from collections.abc import Iterator

from kquota_spark.config.owners_file import owners_of
from kquota_spark.config.settings import Settings
from kquota_spark.model.budgets.budgets import Budget
from kquota_spark.reports.budgets.following import FollowedBudgets
from kquota_spark.reports.budgets.grouping import by_owner
from kquota_spark.reports.exported.metrics import Labels, Sample

_MOST_OWNERS = 1_000
"""Maximum owners with series: the first ones of the file."""


class OwnerMetrics:
    """The owners of the settings; without a file of owners there are no metrics, and nothing is read."""

    def __init__(self, settings: Settings) -> None:
        """Read the file of owners.

        Raises:
            UserError: the file cannot be read, or has problems.
        """
        self._cluster_id = settings.cluster_id
        self._owners = owners_of(settings)
        self._followed = None if self._owners is None else FollowedBudgets(settings, by_owner(self._owners))

    def refresh(self) -> None:
        """Read what is new in the tables.

        Raises:
            UserError: a table cannot be read; the next refresh reads what this one has not read.
        """
        if self._followed is not None:
            self._followed.read()

    def samples(self) -> Iterator[Sample]:
        """The samples of all owners. The counters of an idle owner are 0: a series that begins late lacks its start."""
        if self._owners is None or self._followed is None or self._followed.to_ms is None:
            return
        budgets = {one.name: one.budget for one in self._followed.at()}
        for name in self._owners.names[:_MOST_OWNERS]:
            labels = {"cluster_id": self._cluster_id, "owner": name}
            counted = self._followed.since_begun(name)
            yield "owner_active_seconds_total", labels, float(counted.active_s)
            yield "owner_throttled_seconds_total", labels, float(counted.throttled_s)
            allowed_ratio = self._owners.objective_of(name).allowed_ratio
            yield "owner_allowed_throttled_ratio", labels, allowed_ratio
            if name in budgets:
                yield from self._of_budget(budgets[name], labels)

    @staticmethod
    def _of_budget(budget: Budget, labels: Labels) -> Iterator[Sample]:
        yield "owner_budget_seconds", labels, budget.budget_s
        if budget.left_percent is not None:
            yield "owner_budget_left_ratio", labels, budget.left_percent / 100
