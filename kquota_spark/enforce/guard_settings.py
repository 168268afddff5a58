"""Settings of the guards in `conf/policy.yaml`: bounds, steps, times, budgets and exemptions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from kquota_spark.config.rules import Duration, NotNegative, Percent, PositiveDuration, Within
from kquota_spark.model.quotas.entities import Default, Entity, Name
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.name_patterns import is_match


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of our own changes, in the unit of the key, per broker."""

    floor: float
    ceiling: float
    largest_step_percent: Percent = 50.0
    """Maximum difference between a new value and the one before, in percent of the one before."""

    def step_from(self, before: float) -> tuple[float, float]:
        """The lowest and highest value that one step can reach."""
        share = self.largest_step_percent / 100
        return before * (1 - share), before * (1 + share)

    def nearest(self, before: float | None, wanted: float) -> float:
        """The allowed value nearest to the wanted one; without a value before, the step has no limit."""
        low, high = self.floor, self.ceiling
        if before is not None:
            lowest, highest = self.step_from(before)
            low, high = max(low, lowest), min(high, highest)
        return min(max(wanted, low), high)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """Limits of all policies together. Enforcement never changes a key without bounds."""

    bounds: dict[str, Bounds] = field(default_factory=dict)
    """Bounds by quota key, e.g. producer_byte_rate."""
    hold_time: Duration = Duration(3_600_000)
    """Minimum time between two of our changes of one quota (ms). Expiry and rollback do not wait."""
    changes_per_hour: NotNegative = 10
    changes_per_plan: NotNegative = 20
    max_age: PositiveDuration = Duration(120_000)
    """Maximum age of decisions and rules (ms); older ones are stale."""
    approve_within: Duration = Duration(86_400_000)
    """Maximum time that a plan waits for approval, and to be sent (ms)."""
    longest_override: PositiveDuration = Duration(7 * 86_400_000)
    """Maximum duration of a change that a person requests (ms)."""
    min_certain_percent: Annotated[float, Within(0, 100)] = 90.0
    """Minimum share of certain verdicts in the seconds on which a proposal is based, percent."""
    reversals_per_day: NotNegative = 2
    """Maximum reversals per day of our changes of one quota (up after down, down after up); above it is unstable."""

    owners: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Other tools that manage quotas: regular expressions for whole entities, by tool. Kafka does not record them."""

    def owner_of(self, entity: Entity) -> str | None:
        """The tool that manages the quotas of an entity; None if `owners` names none."""
        for tool, patterns in self.owners.items():
            if any(is_match(pattern, str(entity)) for pattern in patterns):
                return tool
        return None

    def bounds_of(self, key: QuotaKey) -> Bounds | None:
        """The bounds of a key; None if it has none."""
        return self.bounds.get(key.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exempt:
    """Names that enforcement never touches: brokers, mirror makers, administrators."""

    users: tuple[str, ...] = ()
    client_ids: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    """RE2 regular expressions that match whole names of users or client ids."""
    file: str = ""
    """A file with more names, which `kquota exempt` edits. A relative path starts at the folder of the policy file."""

    def and_those_of(self, other: Exempt) -> Exempt:
        """These names and the names of another `Exempt`."""
        return replace(
            self,
            users=(*self.users, *other.users),
            client_ids=(*self.client_ids, *other.client_ids),
            patterns=(*self.patterns, *other.patterns),
        )

    def holds(self, entity: Entity) -> str | None:
        """The name or pattern that exempts an entity; None if there is none. Defaults have no name to match."""
        for name, exact in ((entity.user, self.users), (entity.client_id, self.client_ids)):
            if found := self._of(name, exact):
                return found
        return None

    def _of(self, name: Name, exact: tuple[str, ...]) -> str | None:
        if name is None or isinstance(name, Default):
            return None
        if name in exact:
            return name
        return next((pattern for pattern in self.patterns if is_match(pattern, name)), None)
