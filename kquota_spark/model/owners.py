"""Who owns a client: the team behind a user and a client id, at a time.

The owners are a list. The first one that matches the client in that second is its owner. A client that none matches is
`unowned`. Names are mapped before anything is added up. An assumed role has another user name in each session, and all
these names have one owner.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kquota_spark.model.budgets.objectives import Objective

UNOWNED_NAME = "unowned"
_KEPT_CLIENTS = 50_000
"""Maximum number of clients in memory: random client ids must not fill it."""

IsMatch = Callable[[str, str], bool]
"""Whether a pattern matches a whole name. Its time must be bounded, because clients choose their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An owner, the clients that it owns, and the time in which it owns them.

    A client matches if one of `users` matches its user and one of `client_ids` its client id. An empty list matches
    every name. Times are epoch ms of whole seconds; None is no bound, and the end is exclusive.
    """

    name: str
    cost_centre: str = ""
    contact: str = ""
    users: tuple[str, ...] = ()
    """Patterns for the principal's name without its type."""
    client_ids: tuple[str, ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None
    objective: Objective | None = None
    """The objective of its error budget; None for the default."""

    def owns_at(self, second_ms: int) -> bool:
        """Whether it owns its clients in a second (its start, epoch ms)."""
        is_begun = self.from_ms is None or self.from_ms <= second_ms
        return is_begun and (self.to_ms is None or second_ms < self.to_ms)


_DEFAULT_OBJECTIVE = Objective()
UNOWNED = Owner(name=UNOWNED_NAME)
"""The owner of clients that no owner matches."""


class Owners:
    """The owners in their order.

    Args:
        owners: the first that matches a client in a second owns it.
        is_match: compares a pattern with a whole name.
        objective: of the owners without one of their own.

    Examples:
        >>> from kquota_spark.model.owners import Owner, Owners
        >>> owners = Owners([Owner(name="payments", users=("pay-.*",))], lambda pattern, name: name.startswith("pay-"))
        >>> owners.of("pay-eu", "etl", 0).name, owners.of("alice", "etl", 0).name
        ('payments', 'unowned')
    """

    def __init__(
        self, owners: Iterable[Owner], is_match: IsMatch, objective: Objective = _DEFAULT_OBJECTIVE
    ) -> None:
        self._owners = tuple(owners)
        self._is_match = is_match
        self._objective = objective
        self._of_client: dict[tuple[str, str], tuple[Owner, ...]] = {}

    @property
    def names(self) -> list[str]:
        """The names of the owners, each once, in order; `unowned` is the last."""
        return list(dict.fromkeys([*(owner.name for owner in self._owners), UNOWNED_NAME]))

    @property
    def edges_ms(self) -> list[int]:
        """The times at which an owner begins or ends to own its clients, ascending, epoch ms."""
        bounds = {bound for owner in self._owners for bound in (owner.from_ms, owner.to_ms)}
        return sorted(bound for bound in bounds if bound is not None)

    def matching_in(self, from_ms: int, to_ms: int) -> str:
        """A text for which clients each owner has in a period: with the same text they are the same.

        It has no objectives and contacts, and nothing of owners that own no client in the period.

        Args:
            from_ms: start of the period, epoch ms.
            to_ms: its end, exclusive, epoch ms.
        """
        found = []
        for owner in self._owners:
            begin_ms = None if owner.from_ms is None or owner.from_ms <= from_ms else owner.from_ms
            end_ms = None if owner.to_ms is None or owner.to_ms >= to_ms else owner.to_ms
            if (begin_ms is None or begin_ms < to_ms) and (end_ms is None or end_ms > from_ms):
                found.append([owner.name, owner.users, owner.client_ids, begin_ms, end_ms])
        return json.dumps(found)

    def objective_of(self, name: str) -> Objective:
        """The objective of an owner, by its name."""
        own = (owner.objective for owner in self._owners if owner.name == name)
        return next((objective for objective in own if objective is not None), self._objective)

    def contact_of(self, name: str) -> str:
        """The contact of an owner, by its name; empty if it has none."""
        return next((owner.contact for owner in self._owners if owner.name == name and owner.contact), "")

    def of(self, user: str, client_id: str, time_ms: int) -> Owner:
        """The owner of a client.

        Args:
            user: raw name of the principal, without its type.
            client_id: raw client id.
            time_ms: any time in the second, epoch ms.
        """
        second_ms = time_ms // 1_000 * 1_000
        matching = self._of_client.get((user, client_id))
        if matching is None:
            if len(self._of_client) >= _KEPT_CLIENTS:
                self._of_client.clear()
            matching = tuple(owner for owner in self._owners if self._matches(owner, user, client_id))
            self._of_client[user, client_id] = matching
        return next((owner for owner in matching if owner.owns_at(second_ms)), UNOWNED)

    def _matches(self, owner: Owner, user: str, client_id: str) -> bool:
        return self._is_one(owner.users, user) and self._is_one(owner.client_ids, client_id)

    def _is_one(self, patterns: Sequence[str], name: str) -> bool:
        return not patterns or any(self._is_match(pattern, name) for pattern in patterns)
