"""Which clients have an error budget together: those of an owner, those of a user, or those of one tenant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kquota_spark.model.budgets.objectives import Objective
from kquota_spark.model.owners import Owners

OWNER, USER, MANY_USERS = "owner", "user", "many users"
"""The values of `budget_days.grouped_by`; the last one marks a date of which users are not kept."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups of clients, each with one budget."""

    of: Callable[[str, str, int], str | None]
    """The group of a client: from its user, its client id and a time (epoch ms). None leaves the client out."""
    objective_of: Callable[[str], Objective]
    """The objective of a group."""
    period_s: int
    """The longest period of an objective, s."""
    edges_ms: Sequence[int] = ()
    """Times at which clients change their group, ascending, epoch ms."""
    only_user: str | None = None
    """The user of all clients that are in a group; None if there can be several. Other rows are not read."""
    kept_as: str = ""
    """The value of `budget_days.grouped_by` for these groups; empty if none of its rows are theirs."""
    rules_in: Callable[[int, int], str] = lambda _, __: ""
    """A text for the rules of the groups in a period (two epoch ms): with the same text the groups are the same."""

    def time_in(self, part: int) -> int:
        """A time (epoch ms) in a part of time: part 0 is before the first edge, part 1 before the second one."""
        if part:
            return self.edges_ms[part - 1]
        return self.edges_ms[0] - 1_000 if self.edges_ms else 0


def by_owner(owners: Owners) -> Grouping:
    """One group per owner, and one for clients without an owner."""
    return Grouping(
        lambda user, client_id, time_ms: owners.of(user, client_id, time_ms).name,
        owners.objective_of,
        max(owners.objective_of(name).period_s for name in owners.names),
        owners.edges_ms,
        kept_as=OWNER,
        rules_in=owners.matching_in,
    )


def by_user() -> Grouping:
    """One group per user, with the default objective: where no file names owners."""
    objective = Objective()
    return Grouping(lambda user, _, __: user, lambda _: objective, objective.period_s, kept_as=USER)


def of_tenant(tenant: str, owners: Owners | None, time_ms: int) -> Grouping:
    """One group with the clients of one user, and with the objective of its owner.

    Args:
        tenant: the user.
        owners: the owners; None without a file of owners.
        time_ms: the time for the owner, epoch ms.
    """
    name = None if owners is None else owners.of(tenant, "", time_ms).name
    objective = Objective() if owners is None or name is None else owners.objective_of(name)
    return Grouping(
        lambda user, _, __: user if user == tenant else None,
        lambda _: objective,
        objective.period_s,
        only_user=tenant,
        kept_as=USER,
    )
