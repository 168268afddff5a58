"""What must hold in every scenario, watched from outside: at the log, and at the cluster's own door.

Nothing here asks the guards or the fold of the log. What is allowed is worked out from the rows as they are
written, from the effects as the cluster sees them, and from what really was: traffic, edits, switch and lease.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from kquota_spark.enforce.changes import Event, LogEntry, Mode, Quota, StepId
from kquota_spark.enforce.in_memory import InMemoryLeases, InMemoryLedger, MemoryCluster, Nodes
from kquota_spark.enforce.ports import Change, Held, Outcome, Written
from tests.closed_loop.policies import KEY, RECKLESS
from tests.closed_loop.scenario import HOUR_MS, Scenario

PERSON = "person"


class Effect(NamedTuple):
    """One time that we changed the cluster; a quota that is not set counts as infinite."""

    at_ms: int
    before: float
    after: float
    is_restoring: bool
    step_id: StepId


@dataclass
class Truth:
    """What really is, kept by the loop."""

    now_ms: int = 0
    age_ms: int = 0
    """Of what the enforcer knows."""
    is_whole: bool = True
    mode: Mode = Mode.ENFORCE
    is_frozen: bool = False
    edited_at_ms: dict[Quota, int] = field(default_factory=dict)
    approved: set[str] = field(default_factory=set)


class Watch:
    """Collects what was broken.

    Args:
        scenario: whose bounds and budgets hold.
        truth: what really is.
        leases: who may act.
        rate_per_s: what a user really used from one moment to another.
    """

    def __init__(
        self,
        scenario: Scenario,
        truth: Truth,
        leases: InMemoryLeases,
        rate_per_s: Callable[[str, int, int], float],
    ) -> None:
        self._scenario, self._truth, self._leases, self._rate_per_s = scenario, truth, leases, rate_per_s
        self.broken: list[str] = []
        self.effects: dict[Quota, list[Effect]] = {}
        self._sent: dict[Quota, LogEntry] = {}
        self._restoring_at_ms: dict[Quota, int] = {}
        self._steps: dict[str, set[int]] = {}
        self._operators: set[Quota] = set()
        self._taken_for_lost: set[StepId] = set()

    def edited(self, quota: Quota) -> None:
        """An operator set it."""
        self._operators.add(quota)
        self._truth.edited_at_ms[quota] = self._truth.now_ms

    def logged(self, row: LogEntry) -> None:
        """A row became durable; those before a write tell that it is about to be sent."""
        truth = self._truth
        if row.event is Event.APPROVED:
            truth.approved.add(row.step_id.plan_id)
        if row.event is Event.FAILED:
            self._taken_for_lost.add(row.step_id)
        if row.event is Event.RESTORING:
            self._claim(row.actor == PERSON or not truth.is_frozen, "put back while frozen", row)
            self._restoring_at_ms[row.proposal.quota] = row.at_ms
        if row.event is not Event.SENDING:
            return
        self._sent[row.proposal.quota] = row
        self._steps.setdefault(row.step_id.plan_id, set()).add(row.step_id.step)
        size, most = len(self._steps[row.step_id.plan_id]), self._scenario.settings.changes_per_plan
        self._claim(size <= most, f"{size} changes in one plan", row)
        age_ms = truth.age_ms
        self._claim(age_ms <= self._scenario.settings.max_age, f"sent on what is {age_ms} ms old", row)
        self._claim(truth.is_whole, "sent on a partial view", row)
        self._claim(not truth.is_frozen, "sent while frozen", row)
        self._claim(self._leases.holder == row.actor, "sent without the lease", row)
        is_approved = truth.mode is Mode.APPROVE and row.step_id.plan_id in truth.approved
        self._claim(truth.mode is Mode.ENFORCE or is_approved, "sent without leave", row)
        self._check_proposal(row)

    def _check_proposal(self, row: LogEntry) -> None:
        wanted, scenario, user = row.proposal, self._scenario, row.proposal.quota.entity.user
        assert isinstance(user, str)
        is_exempt = user in scenario.exempt.users or user.startswith("admin")
        self._claim(not is_exempt, "exempt", row)
        self._claim(user not in scenario.managed, "managed by another tool", row)
        self._claim(user not in scenario.broken, "without a way back", row)
        evidence = wanted.evidence
        self._claim(100 * evidence.certain_seconds >= 95 * evidence.seconds > 0, "uncertain", row)
        is_cut = wanted.after is not None and (wanted.before is None or wanted.after < wanted.before)
        if is_cut and evidence.throttled_seconds:
            is_for_a_time = wanted.is_penalty and wanted.expires_at_ms is not None
            self._claim(is_for_a_time, "cut for good on what was throttled", row)
        if is_cut and wanted.policy != RECKLESS:
            used, fair = self._rate_per_s(user, evidence.from_ms, evidence.to_ms), scenario.fair_per_s
            assert wanted.after is not None
            is_free = wanted.after >= fair and wanted.after >= used
            self._claim(used > fair or is_free, "cut at or under its fair share", row)

    def done(self, quota: Quota, before: float | None, after: float | None, *, is_restoring: bool) -> None:
        """The cluster changed by our hand."""
        effects = self.effects.setdefault(quota, [])
        row = self._sent.get(quota)
        if row is None:
            self.broken.append(f"{quota.entity}: written without a row")
            return
        at_ms = self._restoring_at_ms[quota] if is_restoring else row.at_ms
        effect = Effect(at_ms, _height(before), _height(after), is_restoring, row.step_id)
        if is_restoring:
            self._claim(quota not in self._operators, "an operator's value put back over", row)
        else:
            self._check_write(effect, effects, row)
        effects.append(effect)
        self._operators.discard(quota)

    def _check_write(self, effect: Effect, effects: Sequence[Effect], row: LogEntry) -> None:
        settings, quota = self._scenario.settings, row.proposal.quota
        limits = settings.bounds_of(KEY)
        assert limits is not None
        self._claim(effect.after == row.proposal.after, "another value than was logged", row)
        self._claim(limits.floor <= effect.after <= limits.ceiling, f"{effect.after:g} out of bounds", row)
        if row.proposal.before is not None:
            share = abs(effect.after / effect.before - 1)
            self._claim(share <= limits.largest_step_percent / 100 + 1e-9, f"a step of {share:.0%}", row)
        if quota in self._operators:
            is_known = self._truth.edited_at_ms[quota] <= row.proposal.evidence.to_ms
            self._claim(is_known, "an operator's value overwritten unseen", row)
        if effects:
            since_ms = effect.at_ms - effects[-1].at_ms
            # The answer was lost, and an operator undid the write before anybody read it back: no enforcer can
            # distinguish that from a write that never arrived.
            is_unseen = quota in self._operators and effects[-1].step_id in self._taken_for_lost
            is_held = since_ms >= settings.hold_time or is_unseen
            self._claim(is_held, f"changed again after {since_ms} ms", row)
        in_hour = 1 + sum(
            not other.is_restoring and effect.at_ms - other.at_ms < HOUR_MS
            for of_quota in self.effects.values()
            for other in of_quota
        )
        self._claim(in_hour <= settings.changes_per_hour, f"{in_hour} changes in an hour", row)
        turns = turns_of([*effects, effect])
        self._claim(turns <= settings.reversals_per_day, f"turned round {turns} times", row)

    def _claim(self, holds: bool, what: str, row: LogEntry) -> None:
        if not holds:
            self.broken.append(
                f"{row.step_id.plan_id}/{row.step_id.step} {row.proposal.quota.entity}: {what}"
            )


def turns_of(effects: Sequence[Effect]) -> int:
    """How often a quota turned round; scenarios are shorter than a day."""
    ups = [effect.after > effect.before for effect in effects]
    return sum(one is not other for one, other in pairwise(ups))


def _height(value: float | None) -> float:
    return math.inf if value is None else value


class WatchedCluster(MemoryCluster):
    """A cluster: whatever comes through its door is seen, when it comes through."""

    def __init__(self, leases: InMemoryLeases, nodes: Nodes, watch: Watch, scenario: Scenario) -> None:
        super().__init__(leases, nodes)
        self._watch, self._scenario = watch, scenario

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """See `ports.Cluster`."""
        return {quota: self._seen(quota, held) for quota, held in super().read(quotas).items()}

    def refusal(self, change: Change) -> str | None:
        """See `ports.Cluster`; it takes fractions, because policies of scenarios do not round."""
        values = {key: value and math.ceil(value) for key, value in change.values.items()}
        return super().refusal(replace(change, values=values))

    def write(self, change: Change, expect: Held | None = None, fence: int | None = None) -> Written:
        """See `ports.Cluster`; only an enforcer writes here."""
        written = super().write(change, expect, fence)
        if written.outcome is Outcome.DONE:
            assert expect is not None
            quota = change.quota
            after = self.read([quota])[quota].value
            self._watch.done(quota, expect.value, after, is_restoring=change.note is not None)
        return written

    def _seen(self, quota: Quota, held: Held) -> Held:
        if quota.entity.user in self._scenario.managed:
            return replace(held, owner="another tool")
        if quota.entity.user in self._scenario.broken:
            return replace(held, note=None, problem="the node is not JSON")
        return held


class WatchedLedger(InMemoryLedger):
    """The log, seen row by row as it becomes durable."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def append(self, entries: Sequence[LogEntry]) -> None:
        """See `ports.Ledger`."""
        super().append(entries)
        for row in entries:
            self._watch.logged(row)
