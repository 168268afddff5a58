"""The clients that were seen and the rules of now, looked up as the findings about rules need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import resolve

ANY_NAME = "kquota-any-name-without-a-rule"
"""Stands for a user or client id that no rule names."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one (user, client id) sent or read of one quota type."""

    user: str
    client_id: str
    quota_type: QuotaType
    amount: int
    throttled_ms: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """The quotas of one entity now, and since when they are like that."""

    entity: Entity
    quotas: Mapping[QuotaKey, float]
    valid_from_ms: int = 0


class Governing(NamedTuple):
    """The rule that governs somebody, its level and its limit; all None where nothing does."""

    entity: Entity | None
    level: int | None
    limit: float | None


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that the rules are held against; `problems` are names of nodes with what is wrong with them."""

    seen: Sequence[Seen]
    rules: Sequence[Rule]
    from_ms: int
    to_ms: int
    problems: Mapping[str, str]
    is_sampled: bool = False
    """Some of it is told by JMX alone, which names buckets and not who is inside: nobody is known to be absent."""

    quotas: dict[Entity, Mapping[QuotaKey, float]] = field(init=False, repr=False)
    of_user: dict[str, list[Seen]] = field(init=False, repr=False)
    of_client_id: dict[str, list[Seen]] = field(init=False, repr=False)
    _named: tuple[frozenset[object], frozenset[object]] = field(init=False, repr=False)
    """Users and client ids that rules name."""
    _answers: dict[tuple[str, str, QuotaKey], Governing] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Index what is looked up once for each rule and client."""
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
        """What governs a client now."""
        return self.answer(one.user, one.client_id, one.quota_type.key)

    def answer(self, user: str, client_id: str, key: QuotaKey) -> Governing:
        """What governs any name now."""
        # Names without a rule are governed alike, and there may be very many; an empty name is like no other.
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
        """Clients that an entity might name, by the rarer of its names."""
        if isinstance(entity.client_id, str):
            return self.of_client_id.get(entity.client_id, ())
        return self.of_user.get(entity.user, ()) if isinstance(entity.user, str) else self.seen
