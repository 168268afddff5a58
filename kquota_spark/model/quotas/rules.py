"""Quotas over time: edits, the periods between them, and the quotas in force at a given time.

Every time is an argument, in epoch milliseconds. A change has the time of its edit. Brokers apply it later, by the
apply lag, which is added when edits are folded into periods.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kquota_spark.model.quotas.entities import AnyEntity, Entity
from kquota_spark.model.quotas.quota_types import AnyKey

BEGINNING_MS = 0
"""Epoch ms used as minus infinity: no Kafka log is older than 1970."""

END_MS = 253_402_300_799_999
"""End of the year 9999 (epoch ms): Spark and Arrow cannot hold a later time."""


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """One edit of one key of one entity; `value` is None if the key was removed.

    `changed_before_ms` is for a source that is polled: the poll at `changed_at_ms` did not show the edit yet, and the
    poll at `changed_before_ms` did. If it is None, the edit came exactly at `changed_at_ms`.
    """

    entity: AnyEntity
    key: AnyKey
    value: float | None
    previous: float | None
    changed_at_ms: int
    version: int
    changed_before_ms: int | None = None

    @property
    def latest_ms(self) -> int:
        """The latest time at which the edit can have come (epoch ms)."""
        return self.changed_at_ms if self.changed_before_ms is None else self.changed_before_ms


@dataclass(frozen=True, slots=True)
class RulePeriod:
    """All quotas of one entity from `valid_from_ms` until `valid_to_ms`, exclusive; None is the end of time.

    Without values, the entity had no quotas in this period. `version` is None before the first edit. Until
    `certain_from_ms`, unless that is None, the previous period may still have been in force.
    """

    entity: AnyEntity
    values: Mapping[AnyKey, float]
    valid_from_ms: int
    valid_to_ms: int | None
    version: int | None
    certain_from_ms: int | None = None


def rule_periods(changes: Iterable[QuotaChange], *, apply_lag_ms: int = 0) -> list[RulePeriod]:
    """Fold edits into periods that cover all time, per entity, by level and name of the entity.

    Edits of one entity are ordered by time, then version. If several edits have the same millisecond, the last one
    counts, because the periods between them would be empty.
    """
    edits: dict[AnyEntity, list[QuotaChange]] = {}
    for change in changes:
        edits.setdefault(change.entity, []).append(change)
    return [
        period
        for entity in sorted(edits, key=lambda entity: (entity.level or 0, str(entity)))
        for period in _periods_of(entity, edits[entity], apply_lag_ms)
    ]


def _periods_of(entity: AnyEntity, edits: list[QuotaChange], apply_lag_ms: int) -> list[RulePeriod]:
    found = [RulePeriod(entity, {}, BEGINNING_MS, None, None)]
    for edit in sorted(edits, key=lambda edit: (edit.changed_at_ms, edit.version)):
        last = found[-1]
        # An edit "at the beginning" of a quota file has always been in force, whatever the lag.
        start_ms = edit.changed_at_ms + apply_lag_ms if edit.changed_at_ms > BEGINNING_MS else BEGINNING_MS
        certain_ms = None if edit.changed_before_ms is None else edit.changed_before_ms + apply_lag_ms
        values = {key: value for key, value in last.values.items() if key is not edit.key}
        if edit.value is not None:
            values[edit.key] = edit.value
        if start_ms > last.valid_from_ms:
            found[-1] = replace(last, valid_to_ms=start_ms)
            found.append(RulePeriod(entity, values, start_ms, None, edit.version, certain_ms))
        else:
            found[-1] = replace(last, values=values, version=edit.version, certain_from_ms=certain_ms)
    return found


class RuleBook:
    """Periods of users and client ids in memory, indexed by entity and time; iterates over the entities."""

    __slots__ = ("_periods", "_starts")

    def __init__(self, rules: Iterable[RulePeriod] = ()) -> None:
        self._periods: dict[Entity, list[RulePeriod]] = {}
        for rule in rules:
            if isinstance(rule.entity, Entity):
                self._periods.setdefault(rule.entity, []).append(rule)
        for found in self._periods.values():
            found.sort(key=lambda rule: rule.valid_from_ms)
        self._starts = {
            entity: [rule.valid_from_ms for rule in found] for entity, found in self._periods.items()
        }

    def at(self, entity: Entity, time_ms: int) -> RulePeriod | None:
        """The period of an entity that contains `time_ms`; None if there is none, as for an entity without quotas."""
        starts = self._starts.get(entity)
        if starts is None:
            return None
        index = bisect_right(starts, time_ms) - 1
        if index < 0:
            return None
        found = self._periods[entity][index]
        return found if found.valid_to_ms is None or time_ms < found.valid_to_ms else None

    def of(self, entity: Entity) -> tuple[RulePeriod, ...]:
        """All periods of an entity, oldest first."""
        return tuple(self._periods.get(entity, ()))

    def replaced(self, rules: Mapping[Entity, Sequence[RulePeriod]]) -> RuleBook:
        """A new book in which these entities have these periods; one without any is left out, the others stay."""
        book = RuleBook()
        book._periods, book._starts = self._periods.copy(), self._starts.copy()
        for entity, found in rules.items():
            if found:
                ordered = sorted(found, key=lambda rule: rule.valid_from_ms)
                book._periods[entity] = ordered
                book._starts[entity] = [rule.valid_from_ms for rule in ordered]
            elif book._periods.pop(entity, None):
                del book._starts[entity]
        return book

    def __iter__(self) -> Iterator[Entity]:
        return iter(self._periods)

    def __contains__(self, entity: object) -> bool:
        return entity in self._periods

    def __len__(self) -> int:
        return len(self._periods)


def with_values(book: RuleBook, added: Mapping[Entity, Mapping[AnyKey, float]]) -> RuleBook:
    """The same quotas, but with these values of these entities at all times; their other keys do not change."""
    rules = [rule for entity in book if entity not in added for rule in book.of(entity)]
    for entity, values in added.items():
        from_ms: int | None = BEGINNING_MS
        for rule in book.of(entity):
            if from_ms is not None and from_ms < rule.valid_from_ms:  # it had no quotas in between
                rules.append(RulePeriod(entity, values, from_ms, rule.valid_from_ms, None))
            rules.append(replace(rule, values={**rule.values, **values}))
            from_ms = rule.valid_to_ms
        if from_ms is not None:
            rules.append(RulePeriod(entity, values, from_ms, None, None))
    return RuleBook(rules)


MOST_SKEW_MS = 5_000
"""Largest difference between the clocks of two hosts of the audit (ms)."""


def is_ahead(time_ms: int, now_ms: int) -> bool:
    """Whether a written time is further in the future than clocks may differ; `END_MS` in a quota file is not."""
    return time_ms != END_MS and time_ms > now_ms + MOST_SKEW_MS
