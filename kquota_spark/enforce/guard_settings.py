"""What the guards go by: bounds, steps, times, budgets and exemptions, as `conf/policy.yaml` sets them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import re2

from kquota_spark.config.settings import Duration
from kquota_spark.model.quotas.entities import Default, Entity, Name
from kquota_spark.model.quotas.quota_types import QuotaKey

MOST_CHARACTERS = 1_000
"""Maximum length of a pattern."""
_MOST_OF_NAME = 32_767
"""Maximum length of a name in Kafka's protocol, whose lengths are 16-bit numbers."""


def is_match(pattern: str, name: str) -> bool:
    r"""Whether a pattern fits a whole name, in time linear in the name; one longer than the protocol carries fits none.

    Clients choose names. Python's `re` goes back, so that a client id could stop the enforcer for some patterns. RE2
    does not: it has no look-around and no back-references, and its `\w` and `\d` are ASCII.
    """
    if len(name) > _MOST_OF_NAME:
        return False
    # RE2 reads UTF-8, which has no lone surrogates.
    text = name.encode("utf-8", errors="replace").decode()
    return re2.fullmatch(pattern, text, _quiet()) is not None


def pattern_problem(pattern: str) -> str | None:
    """Why a text cannot be a pattern; None if it can."""
    if len(pattern) > MOST_CHARACTERS:
        return f"has {len(pattern)} characters, expected at most {MOST_CHARACTERS}"
    try:
        re2.compile(pattern, _quiet())
    except re2.error as error:
        [reason] = error.args
        return f"is no regular expression ({reason.decode(errors='replace')})"
    except UnicodeEncodeError:
        return "is no regular expression (not UTF-8)"
    return None


def _quiet() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Between what our own changes stay; in the unit of the key, per broker."""

    floor: float
    ceiling: float
    largest_step_percent: float = 50.0
    """A new value is at most this much above or below the one before."""

    def step_from(self, before: float) -> tuple[float, float]:
        """The lowest and highest value that one step reaches."""
        share = self.largest_step_percent / 100
        return before * (1 - share), before * (1 + share)

    def nearest(self, before: float | None, wanted: float) -> float:
        """The allowed value nearest to what is wanted; without a value before it there is no step to keep."""
        low, high = self.floor, self.ceiling
        if before is not None:
            lowest, highest = self.step_from(before)
            low, high = max(low, lowest), min(high, highest)
        return min(max(wanted, low), high)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """Limits of all policies together. A key without bounds is never changed."""

    bounds: dict[str, Bounds] = field(default_factory=dict)
    """By quota key, e.g. producer_byte_rate."""
    hold_time: Duration = Duration(3_600_000)
    """After a change of a quota no further one of ours for so long; expiry and rollback do not wait."""
    changes_per_hour: int = 10
    changes_per_plan: int = 20
    max_age: Duration = Duration(120_000)
    """Decisions and rules that are known through an older time are stale."""
    approve_within: Duration = Duration(86_400_000)
    """A plan waits so long for somebody to approve it, and for being sent."""
    longest_override: Duration = Duration(7 * 86_400_000)
    """A person's own change ends within so long."""
    min_certain_percent: float = 90.0
    """Of the verdicts in the seconds that a proposal rests on."""
    reversals_per_day: int = 2
    """How often our changes of one quota may turn round (up after down, down after up) before it is unstable."""

    owners: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Tools that manage quotas: by name, regular expressions for whole entities. Kafka keeps no mark of them."""

    def owner_of(self, entity: Entity) -> str | None:
        """The tool that manages the quotas of an entity; None where nobody said so."""
        for tool, patterns in self.owners.items():
            if any(is_match(pattern, str(entity)) for pattern in patterns):
                return tool
        return None

    def bounds_of(self, key: QuotaKey) -> Bounds | None:
        """The bounds of a key, if it has some."""
        return self.bounds.get(key.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exempt:
    """Names that enforcement never touches: brokers, mirror makers, administrators."""

    users: tuple[str, ...] = ()
    client_ids: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    """Regular expressions of RE2 for whole names of users or client ids."""
    file: str = ""
    """A file with more of them, which `kquota exempt` edits; beside the policy file if the path is relative."""

    def and_those_of(self, other: Exempt) -> Exempt:
        """These names and those of a file."""
        return replace(
            self,
            users=(*self.users, *other.users),
            client_ids=(*self.client_ids, *other.client_ids),
            patterns=(*self.patterns, *other.patterns),
        )

    def holds(self, entity: Entity) -> str | None:
        """The exemption that keeps an entity as it is; None if none does. Defaults have no name to be exempt by."""
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
