"""The data of enforcement: a quota, the change that a policy proposes, its evidence, and the rows of the log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey

OVERRIDE = "override"
"""The policy name in the log of a change that a person requested."""
LIFT = "enforcement disable"
"""The policy name in the log of a lifted quota."""


class Quota(NamedTuple):
    """One key of one entity: the unit of every change."""

    entity: Entity
    key: QuotaKey


def name_of(quota: Quota) -> tuple[str, str]:
    """The sort key of a quota: entity, then quota key."""
    return str(quota.entity), quota.key.value


class Mode(IntEnum):
    """How far a policy may go. There is one mode for all and one per policy; the lower one applies."""

    OFF = 0
    OBSERVE = 1
    APPROVE = 2
    ENFORCE = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """The period of decisions on which a proposal is based. The guards and the plan page read it.

    `seconds` counts the judged seconds of the period. `certain_seconds` counts each of them by the share of its
    verdicts that are certain, if the rules were known through that second. `throttled_seconds` are those in which the
    quota throttled clients: the rate used then does not show the rate that was wanted.
    """

    from_ms: int
    to_ms: int
    seconds: int
    certain_seconds: int
    throttled_seconds: int
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Other figures for people, by name with unit, e.g. peak_rate_per_s."""

    @property
    def is_over_budget(self) -> bool:
        """Whether the used rate is above the budget; throttled clients wanted even more."""
        return self.numbers.get("used_per_s", 0.0) > self.numbers.get("budget_per_s", math.inf)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of one quota that a policy or a person wants.

    `before` is the value that the decision was based on, None if the key was not set. `after` is None for a removal.
    `expires_at_ms` (epoch ms) is None for a permanent change.
    """

    quota: Quota
    before: float | None
    after: float | None
    policy: str
    reason: str
    expires_at_ms: int | None
    evidence: Evidence
    would_have: str = ""
    """Its estimated effect in the last day, in one sentence; empty if nothing is known."""
    is_penalty: bool = False
    """Meant to limit clients temporarily that are throttled already; it is no estimate of what they would use."""

    @property
    def is_override(self) -> bool:
        """Whether a person requested it, not a policy."""
        return self.policy == OVERRIDE

    @property
    def is_lift(self) -> bool:
        """Whether it removes a quota until a person puts exactly the same value back."""
        return self.policy == LIFT

    @property
    def limit_before(self) -> float | None:
        """The limit before: the value, or if the key was not set, the limit by which the evidence was judged."""
        return self.evidence.numbers.get("limit_per_s") if self.before is None else self.before

    @property
    def is_lowering(self) -> bool:
        """Whether clients may use less afterwards; also true if no limit before is known."""
        limit = self.limit_before
        return self.after is not None and (limit is None or self.after < limit)


class StepId(NamedTuple):
    """The id of one change of one plan."""

    plan_id: str
    step: int


class Event(StrEnum):
    """What happened to a step, in order of time; each event is one row of `enforcement_log`."""

    PLANNED = "planned"
    APPROVED = "approved"
    REFUSED = "refused"
    SENDING = "sending"
    APPLIED = "applied"
    FAILED = "failed"
    RESTORING = "restoring"
    RESTORED = "restored"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One row of `enforcement_log`."""

    step_id: StepId
    event: Event
    at_ms: int
    proposal: Proposal
    mode: Mode
    actor: str
    guard: str | None = None
    """The guard that refused the step."""
    fencing: int | None = None
    note: str | None = None
    """The state before the change, from which it is restored; see `ports.Held`. It has no secrets."""
    detail: str = ""
    author: str | None = None
    """The person or program that planned the step."""
    approver: str | None = None
    """The person who approved it; None before the approval."""
    ticket: str | None = None
    """The change request that a person gave for it."""
