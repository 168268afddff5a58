"""What enforcement deals with: one quota, what a policy wants of it, and what was there before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey

OVERRIDE = "override"
"""The policy under which a person's own change stands in the log."""


class Quota(NamedTuple):
    """One key of one entity: the unit of every change."""

    entity: Entity
    key: QuotaKey


def name_of(quota: Quota) -> tuple[str, str]:
    """What quotas are ordered by."""
    return str(quota.entity), quota.key.value


class Mode(IntEnum):
    """How far a policy may go; overall and per policy, and the lower one counts."""

    OFF = 0
    OBSERVE = 1
    APPROVE = 2
    ENFORCE = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """The stretch of decisions that a proposal rests on; a guard reads it, people see it.

    `seconds` counts those judged in the stretch, `certain_seconds` each of them for the share of its verdicts that
    are certain, if the rules were as new as they. `throttled_seconds` are those in which the quota held clients back:
    what was used then says nothing of what was wanted.
    """

    from_ms: int
    to_ms: int
    seconds: int
    certain_seconds: int
    throttled_seconds: int
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What else a person would ask for, by name with unit, e.g. peak_rate_per_s."""

    @property
    def is_over_budget(self) -> bool:
        """What was used is over a budget; where clients were held back they wanted even more."""
        return self.numbers.get("used_per_s", 0.0) > self.numbers.get("budget_per_s", math.inf)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a policy wants.

    `before` is the value that the decision was based on, None where the key was not set; `after` is None for a
    removal. `expires_at_ms` is None for a change that is meant to stay.
    """

    quota: Quota
    before: float | None
    after: float | None
    policy: str
    reason: str
    expires_at_ms: int | None
    evidence: Evidence
    would_have: str = ""
    """What it would have done yesterday, in one sentence; empty if nothing is known of it."""
    is_penalty: bool = False
    """Meant to cut clients that are throttled already, for a time; says nothing of what they would use."""

    @property
    def is_override(self) -> bool:
        """Whether a person wants it, and not a policy."""
        return self.policy == OVERRIDE

    @property
    def limit_before(self) -> float | None:
        """What held before: the value, or where the key was not set, the limit that the evidence was judged by."""
        return self.evidence.numbers.get("limit_per_s") if self.before is None else self.before

    @property
    def is_lowering(self) -> bool:
        """Whether clients may do less afterwards; a limit where none is known counts as less."""
        limit = self.limit_before
        return self.after is not None and (limit is None or self.after < limit)


class StepId(NamedTuple):
    """One change of one plan."""

    plan_id: str
    step: int


class Event(StrEnum):
    """What happened to a step, in the order in which it may; each is one row of `enforcement_log`."""

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
    """Which guard refused."""
    fencing: int | None = None
    note: str | None = None
    """What `QuotaTarget.put_back` needs to restore what was there, as the target wrote it; no secret is in it."""
    detail: str = ""
    author: str | None = None
    """Who planned the step."""
    approver: str | None = None
    """Who approved it; None while nobody did."""
    ticket: str | None = None
    """The change request that people named for it."""
