"""News of error budgets: an owner's begins to burn at a pace that pages, or has recovered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kquota_spark.config.routes import Mail
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.budgets.objectives import PAGING, WINDOWS_S
from kquota_spark.model.owners import Owners
from kquota_spark.notify.news.events import Event, Fact, Seen, fact
from kquota_spark.reports.budgets.following import FollowedBudgets
from kquota_spark.reports.budgets.grouping import by_owner
from kquota_spark.reports.budgets.owned_budgets import OwnedBudget

KIND = "budget_burning"


class BudgetNews:
    """The budgets of one cluster, for repeated reads."""

    def __init__(self, settings: Settings, owners: Owners) -> None:
        self._cluster_id, self._owners = settings.cluster_id, owners
        self._followed = FollowedBudgets(settings, by_owner(owners))

    def close(self) -> None:
        """Free the resources for reading; the next read opens the tables again."""
        self._followed.close()

    @property
    def is_known(self) -> bool:
        """Whether there are budgets."""
        return self._followed.to_ms is not None

    def read(self) -> Iterator[Seen]:
        """The owners of which the budget burns at a pace that pages, at the newest second of the tables.

        Raises:
            UserError: a table cannot be read.
        """
        self._followed.read()
        for one in self._followed.at():
            if one.budget.burning is not None and one.budget.burning.name in PAGING:
                yield self._seen(one)

    def _seen(self, one: OwnedBudget) -> Seen:
        budget, at_ms = one.budget, one.budget.to_s * 1_000
        rule = budget.burning
        assert rule is not None
        window = next(name for name, length_s in WINDOWS_S.items() if length_s == rule.long_s)
        known: dict[str, Fact] = {
            "owner": one.name, "contact": self._owners.contact_of(one.name), "pace": rule.name, "window": window,
            "burn_rate": budget.burns[window], "time_throttled_s": budget.windows[rule.long_s].throttled_s,
            "budget_left_percent": budget.left_percent, "objective_percent": budget.objective.percent,
            "objective_days": budget.objective.days,
        }  # fmt: skip
        facts = {name: fact(value) for name, value in known.items()}
        # The id has a time, because the condition may begin again.
        event_id = f"{self._cluster_id}/{KIND}/{one.name}/{at_ms}"
        event = Event(event_id, KIND, "begins", at_ms, at_ms, facts)
        return Seen(f"{KIND}/{one.name}", event, owners=(one.name,))


def with_contacts(settings: Settings, owners: Owners | None) -> Settings:
    """The settings, in which a mail route to owners is one route for each owner with a mail address as contact.

    An owner's route is named `ROUTE/OWNER`. Messages are made per route, so no owner gets events of another one.

    Raises:
        UserError: there is such a route, and no owner has a mail address.
    """
    routes = dict(settings.notifications.routes)
    for name, route in settings.notifications.routes.items():
        if not isinstance(route, Mail) or not route.to_owners:
            continue
        if owners is None:
            raise UserError(
                f"notifications.routes.{name}.to_owners: the settings name no file of owners: set owners"
            )
        contacts = {owner: owners.contact_of(owner) for owner in owners.names}
        own = {
            f"{name}/{owner}": replace(route, to=(contact,), owners=(owner,), to_owners=False)
            for owner, contact in contacts.items()
            if "@" in contact
        }
        if not own:
            raise UserError(f"notifications.routes.{name}.to_owners: no owner has a mail address as contact")
        del routes[name]
        routes.update(own)
    return settings.changed(notifications=replace(settings.notifications, routes=routes))
