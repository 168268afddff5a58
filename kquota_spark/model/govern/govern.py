"""The quota that governs a request at a time, with the period in which it holds; and the clients to measure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import (
    STATIC_DEFAULT_LEVEL,
    Bucket,
    Resolution,
    candidates,
    governing_entity,
    levels_of,
    resolve,
)
from kquota_spark.model.quotas.rules import RuleBook, RulePeriod
from kquota_spark.model.replay.causes import Governing, RuleLimit


@dataclass(frozen=True, slots=True)
class RequestCoverage:
    """The clients that need a measure of thread time: all, or the users and client ids that are named.

    Every request of a client counts for its request quota. Measuring all clients would double the work of an audit in
    which few or none have such a quota. The coverage ignores when a quota held, and takes the user of a pair for the
    pair. So it may include a client too many, never one too few.
    """

    is_everyone: bool = False
    users: frozenset[str] = frozenset()
    client_ids: frozenset[str] = frozenset()

    def covers(self, user: str, client_id: str) -> bool:
        """Whether the thread time of this client is measured."""
        return self.is_everyone or user in self.users or client_id in self.client_ids

    def __or__(self, other: RequestCoverage) -> RequestCoverage:
        """The clients of both."""
        return RequestCoverage(
            self.is_everyone or other.is_everyone,
            self.users | other.users,
            self.client_ids | other.client_ids,
        )


def request_coverage(book: RuleBook) -> RequestCoverage:
    """The coverage by Kafka's own resolution."""
    carriers = list(_carriers(book))
    client_only = [entity.client_id for entity in carriers if not isinstance(entity.user, str)]
    return RequestCoverage(
        is_everyone=any(not isinstance(client_id, str) for client_id in client_only),
        users=frozenset(entity.user for entity in carriers if isinstance(entity.user, str)),
        client_ids=frozenset(client_id for client_id in client_only if isinstance(client_id, str)),
    )


def callback_coverage(book: RuleBook) -> RequestCoverage:
    """The coverage with a callback: all clients if there is any request quota, because it may apply to any client."""
    return RequestCoverage(is_everyone=any(True for _ in _carriers(book)))


def _carriers(book: RuleBook) -> Iterable[Entity]:
    for entity in book:
        if any(QuotaKey.REQUEST_PERCENTAGE in (rule.values or {}) for rule in book.of(entity)):
            yield entity


STATIC_DEFAULT_RULES = {
    QuotaType.PRODUCE: "quota.producer.default",
    QuotaType.FETCH: "quota.consumer.default",
}
"""Name of the rule of level 9: the broker property that sets it."""
_KEPT_ANSWERS = 50_000
"""Maximum number of answers in memory: random client ids must not fill it."""
_MOST_EDITS = 1_000
"""Maximum number of edits before and after a moment to read for the period of a limit."""


class Governed(NamedTuple):
    """A bucket and the limit on it, for as long as `governing` is valid."""

    bucket: Bucket
    governing: Governing
    level: int | None
    rule: str | None
    rule_version: int | None
    certain_from_ms: int = 0
    """Time (epoch ms) before which the previous quotas may still have been in force: the source is polled."""

    @property
    def relied_on(self) -> Governing:
        """`governing`, valid only from the time at which it certainly holds."""
        if self.certain_from_ms <= self.governing.valid_from_ms:
            return self.governing
        return self.governing._replace(valid_from_ms=self.certain_from_ms)

    def holds_at(self, time_ms: int) -> bool:
        """Whether this answer also holds at `time_ms` (epoch ms): no quota that could matter changed in between."""
        until_ms = self.governing.valid_to_ms
        return self.governing.valid_from_ms <= time_ms and (until_ms is None or time_ms < until_ms)


class Governor(Protocol):
    """A source of the governing quota for requests of any broker and time."""

    def govern(
        self, broker_id: int, quota_type: QuotaType, principal: Principal, client_id: str, time_ms: int
    ) -> Governed:
        """The quota that governs a request.

        Args:
            broker_id: the broker that serves the request; a callback may give each broker another limit.
            quota_type: the type of quota that is asked for.
            principal: type and raw name of the user.
            client_id: raw client id.
            time_ms: time of the request, epoch ms; the quotas of that time count.
        """

    @property
    def coverage(self) -> RequestCoverage:
        """The clients that a request quota could cover."""


@dataclass(frozen=True, slots=True)
class RuleGovernor:
    """A `Governor` by Kafka's own resolution; `static_defaults` are those of brokers up to 2.8, by type."""

    book: RuleBook
    static_defaults: Mapping[QuotaType, float] = field(default_factory=dict)
    coverage: RequestCoverage = field(init=False)
    _answers: dict[tuple[QuotaType, str, str], Governed] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )
    _of_strangers: dict[QuotaType, Governed] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )
    _named: frozenset[object] = field(init=False, repr=False, compare=False)
    """Users and client ids that a quota names; the empty name counts as one, because defaults do not reach it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "coverage", request_coverage(self.book))
        named = {name for entity in self.book for name in (entity.user, entity.client_id)}
        object.__setattr__(self, "_named", frozenset(named | {""}))

    def govern(
        self, broker_id: int, quota_type: QuotaType, principal: Principal, client_id: str, time_ms: int
    ) -> Governed:
        """The quota that governs a request; see `Governor`.

        Args:
            broker_id: makes no difference here.
            quota_type: the type of quota that is asked for.
            principal: type and raw name of the user; the type makes no difference.
            client_id: raw client id.
            time_ms: time of the request, epoch ms; the quotas of that time count.
        """
        user = principal[1]
        if user not in self._named and client_id not in self._named:
            return self._of_stranger(quota_type, user, client_id, time_ms)
        asked = (quota_type, user, client_id)
        found = self._answers.get(asked)
        if found is None or not found.holds_at(time_ms):
            if len(self._answers) >= _KEPT_ANSWERS:
                self._answers.clear()
            found = self._answers[asked] = self._beside_edits(self.explain(*asked, time_ms)[0], quota_type)
        return found

    @property
    def named(self) -> frozenset[object]:
        """Users and client ids that a quota names, and the empty name; all other clients have the same quotas."""
        return self._named

    def _beside_edits(self, found: Governed, quota_type: QuotaType) -> Governed:
        """The same with the limits on the bucket before and after it, as far as they differ."""
        governing = found.governing
        from_ms, to_ms = governing.valid_from_ms, governing.valid_to_ms
        before = self._other_limit(found, quota_type, from_ms - 1) if from_ms > 0 else None
        after = None if to_ms is None else self._other_limit(found, quota_type, to_ms)
        if before is None and after is None:
            return found
        return found._replace(governing=governing._replace(before=before, after=after))

    def _other_limit(self, found: Governed, quota_type: QuotaType, time_ms: int) -> RuleLimit | None:
        other = self.limit_of(quota_type, found.bucket, time_ms)
        limit = other.governing.limit_per_s
        if limit == found.governing.limit_per_s:
            return None
        return RuleLimit(limit, other.level, other.rule, other.rule_version)

    def _of_stranger(self, quota_type: QuotaType, user: str, client_id: str, time_ms: int) -> Governed:
        """The quota of a client that no quota names: equal for all such clients, except for the bucket's names."""
        found = self._of_strangers.get(quota_type)
        if found is None or not found.holds_at(time_ms):
            answer = self.explain(quota_type, user, client_id, time_ms)[0]
            found = self._of_strangers[quota_type] = self._beside_edits(answer, quota_type)
        bucket = Bucket(user if found.bucket.user else "", client_id if found.bucket.client_id else "")
        return Governed(bucket, *found[1:])

    def limit_of(self, quota_type: QuotaType, bucket: Bucket, time_ms: int) -> Governed:
        """The limit of a bucket by its tags alone: the second stage of the broker's resolution."""
        in_force = {
            entity: period
            for entity in candidates(bucket.user, bucket.client_id)
            if (period := self.book.at(entity, time_ms)) is not None and quota_type.key in period.values
        }
        entity = governing_entity(bucket, in_force.__contains__)
        static_default = self.static_defaults.get(quota_type)
        if entity is not None:
            period = in_force[entity]
            limit = Governing(period.values[quota_type.key])
            return Governed(bucket, limit, entity.level, str(entity), period.version)
        if static_default is not None and STATIC_DEFAULT_LEVEL in levels_of(bucket):
            rule = STATIC_DEFAULT_RULES[quota_type]
            return Governed(bucket, Governing(static_default), STATIC_DEFAULT_LEVEL, rule, None)
        return Governed(bucket, Governing(None), None, None, None)

    def explain(
        self, quota_type: QuotaType, user: str, client_id: str, time_ms: int
    ) -> tuple[Governed, Resolution]:
        """The quota that governs a request, and the walk that found it.

        The answer is valid while all rules on the walk are, not only the winner: an edit at a more specific level also
        ends it.

        Args:
            quota_type: the type of quota that is asked for.
            user: raw name, empty for none.
            client_id: raw client id.
            time_ms: time of the request, epoch ms; the quotas of that time count.
        """
        periods: dict[Entity, RulePeriod] = {}
        for entity in candidates(user, client_id):
            period = self.book.at(entity, time_ms)
            if period is not None:
                periods[entity] = period

        def quotas_of(entity: Entity) -> Mapping[AnyKey, float] | None:
            period = periods.get(entity)
            return period.values if period and period.values else None

        static_default = self.static_defaults.get(quota_type)
        found = resolve(user, client_id, quota_type.key, quotas_of, static_default=static_default)
        if quota_type is QuotaType.REQUEST:
            # Any other quota counts, whether it wins or not: the throttle that the broker logged could be its own.
            keys = {key for period in periods.values() for key in period.values or ()}
            has_other = bool(keys - {QuotaKey.REQUEST_PERCENTAGE}) or bool(self.static_defaults)
        else:
            has_other = resolve(user, client_id, QuotaKey.REQUEST_PERCENTAGE, quotas_of).limit is not None
        ends = [s.valid_to_ms for s in periods.values() if s.valid_to_ms is not None]
        governing = Governing(
            limit_per_s=found.limit,
            valid_from_ms=max((s.valid_from_ms for s in periods.values()), default=0),
            valid_to_ms=min(ends, default=None),
            has_request_quota=has_other,
        )
        version = None if found.entity is None else periods[found.entity].version
        named = found.level, rule_name(found, quota_type), version
        return Governed(found.bucket, governing, *named, certain_from_of(periods.values())), found

    def period_of(
        self, governed: Governed, quota_type: QuotaType, user: str, client_id: str
    ) -> tuple[int, int | None]:
        """The period in which a client has the same limit from the same rule in the same bucket.

        An edit elsewhere on the walk ends the validity of `governed`, but not this period.

        Args:
            governed: what governs the client at some time.
            quota_type: the type of quota.
            user: raw name, empty for none.
            client_id: raw client id.

        Returns:
            Start and end, epoch ms. The start is 0 if no earlier quotas are known, the end None if no later edit is.
        """
        from_ms, to_ms = governed.governing.valid_from_ms, governed.governing.valid_to_ms

        def same_at(time_ms: int) -> Governing | None:
            found = self.explain(quota_type, user, client_id, time_ms)[0]
            return found.governing if _limit_in_bucket(found) == _limit_in_bucket(governed) else None

        for _ in range(_MOST_EDITS):
            before = same_at(from_ms - 1) if from_ms > 0 else None
            if before is None:
                break
            from_ms = before.valid_from_ms
        for _ in range(_MOST_EDITS):
            after = None if to_ms is None else same_at(to_ms)
            if after is None:
                break
            to_ms = after.valid_to_ms
        return from_ms, to_ms


def _limit_in_bucket(governed: Governed) -> tuple[float | None, str | None, Bucket]:
    return governed.governing.limit_per_s, governed.rule, governed.bucket


def certain_from_of(in_force: Iterable[RulePeriod]) -> int:
    """The time (epoch ms) from which all rules are certainly in force; 0 if the start of each is known exactly."""
    return max((rule.certain_from_ms or 0 for rule in in_force), default=0)


def rule_name(found: Resolution, quota_type: QuotaType) -> str | None:
    """The name of the rule in tables and reports; None if no rule governs."""
    if found.level == STATIC_DEFAULT_LEVEL:
        return STATIC_DEFAULT_RULES[quota_type]
    return None if found.entity is None else str(found.entity)
