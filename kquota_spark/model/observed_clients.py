"""The clients that were seen and the rules of now, looked up as the findings about rules need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kquota_spark.model.entities import Entity
from kquota_spark.model.quota_types import QuotaKey, QuotaType
from kquota_spark.model.resolve import Resolution, resolve


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
    _answers: dict[tuple[str, str, QuotaKey], Resolution] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        """Index what is looked up once for each rule and client."""
        of_user: dict[str, list[Seen]] = {}
        of_client_id: dict[str, list[Seen]] = {}
        for one in self.seen:
            of_user.setdefault(one.user, []).append(one)
            of_client_id.setdefault(one.client_id, []).append(one)
        quotas = {rule.entity: rule.quotas for rule in self.rules}
        for name, index in (("quotas", quotas), ("of_user", of_user), ("of_client_id", of_client_id)):
            object.__setattr__(self, name, index)

    def resolved(self, one: Seen) -> Resolution:
        """What governs a client now."""
        return self.answer(one.user, one.client_id, one.quota_type.key)

    def answer(self, user: str, client_id: str, key: QuotaKey) -> Resolution:
        """What governs any name now."""
        asked = (user, client_id, key)
        answer = self._answers.get(asked)
        if answer is None:
            answer = self._answers[asked] = resolve(*asked, self.quotas.get)
        return answer

    def named_by(self, entity: Entity) -> Sequence[Seen]:
        """Clients that an entity might name, by the rarer of its names."""
        if isinstance(entity.client_id, str):
            return self.of_client_id.get(entity.client_id, ())
        return self.of_user.get(entity.user, ()) if isinstance(entity.user, str) else self.seen
