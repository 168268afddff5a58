"""The clients that were seen and the present rules, indexed as the findings about rules query them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import resolve

ANY_NAME = "kquota-any-name-without-a-rule"
"""Placeholder for a user or client id that no rule names."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The amount that one (user, client id) sent or read under one quota type."""

    user: str
    client_id: str
    quota_type: QuotaType
    amount: int
    throttled_ms: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """The present quotas of one entity, and the time from which they hold (epoch ms)."""

    entity: Entity
    quotas: Mapping[QuotaKey, float]
    valid_from_ms: int = 0


class Governing(NamedTuple):
    """The rule that governs a client, its level and its limit; all None if no rule governs it."""

    entity: Entity | None
    level: int | None
    limit: float | None


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything with which the rules are compared; `problems` maps names of nodes to what is wrong with them."""

    seen: Sequence[Seen]
    rules: Sequence[Rule]
    from_ms: int
    to_ms: int
    problems: Mapping[str, str]
    is_sampled: bool = False
    """Whether some of it comes from JMX alone, which names buckets and not the clients in them.

    Then no client is known to be absent.
    """

    quotas: dict[Entity, Mapping[QuotaKey, float]] = field(init=False, repr=False)
    of_user: dict[str, list[Seen]] = field(init=False, repr=False)
    of_client_id: dict[str, list[Seen]] = field(init=False, repr=False)
    _named: tuple[frozenset[object], frozenset[object]] = field(init=False, repr=False)
    """Users and client ids that rules name."""
    _answers: dict[tuple[str, str, QuotaKey], Governing] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Build the indexes for the queries that come once per rule and client."""
        of_user: dict[str, list[Seen]] = {}
        of_client_id: dict[str, list[Seen]] = {}
        for one in self.seen:
            of_user.setdefault(one.user, []).append(one)
            of_client_id.setdefault(one.client_id, []).append(one)
        quotas = {rule.entity: rule.quotas for rule in self.rules}
        named = frozenset(entity.user for entity in quotas), frozenset(entity.client_id for entity in quotas)
        for name, index in (
            ("quotas", quotas), ("of_user", of_user), ("of_client_id", of_client_id), ("_named", named)
        ):  # fmt: skip
            object.__setattr__(self, name, index)

    def resolved(self, one: Seen) -> Governing:
        """The rule that governs a client now."""
        return self.answer(one.user, one.client_id, one.quota_type.key)

    def answer(self, user: str, client_id: str, key: QuotaKey) -> Governing:
        """The rule that governs any user and client id now."""
        # Names without a rule are governed alike, and there may be very many. An empty name is a case of its own.
        user, client_id = (
            name if not name or name in named else ANY_NAME
            for name, named in zip((user, client_id), self._named, strict=True)
        )
        asked = (user, client_id, key)
        answer = self._answers.get(asked)
        if answer is None:
            found = resolve(*asked, self.quotas.get)
            answer = self._answers[asked] = Governing(found.entity, found.level, found.limit)
        return answer

    def named_by(self, entity: Entity) -> Sequence[Seen]:
        """Clients that an entity might name: those with its client id, else those with its user, else all."""
        if isinstance(entity.client_id, str):
            return self.of_client_id.get(entity.client_id, ())
        return self.of_user.get(entity.user, ()) if isinstance(entity.user, str) else self.seen
