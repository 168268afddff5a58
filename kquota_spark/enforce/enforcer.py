"""The loop that turns proposals into quotas: resume, expire, plan, approve, apply, roll back.

Each step, in this order: write a durable row `planned`; read the quota again; ask all guards again, the kill switch
last; write a durable row `sending` with the note for the restoration and the fencing number; write the quota; read it
back; write the row of the outcome. If the enforcer crashes between any two, `resume` finds the step in the log.
Nothing is sent twice: a change that did not arrive fails, and the policy may propose it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from kquota_spark.enforce.changes import Event, LogEntry, Mode, Proposal, StepId
from kquota_spark.enforce.guard_settings import Exempt, GuardSettings
from kquota_spark.enforce.guards import LEASE, STALE, Check, Situation, refusal
from kquota_spark.enforce.log_state import Journal, LogState, Step
from kquota_spark.enforce.plan import Plan, open_plan, plan_id_of
from kquota_spark.enforce.ports import Change, Cluster, Frozen, Held, Lease, Ledger, Switch
from kquota_spark.enforce.writing import LATE_WRITE_MS, Writer
from kquota_spark.errors import UserError

_NO_LEASE = 0
"""Lower than any fencing number: a cluster accepts no write with it."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one round of the loop."""

    plan: Plan | None = None
    """None if nothing was planned: another enforcer holds the lease, or the switch is on."""
    entries: tuple[LogEntry, ...] = ()
    """All rows of the round, in order."""
    is_leader: bool = True
    frozen: Frozen | None = None
    waiting: tuple[StepId, ...] = ()
    """Expired changes, which are restored when the switch is off again."""


class Enforcer:
    """Plans, checks, applies and reverts changes of quotas; its whole state is in the ledger.

    Args:
        cluster: the quotas.
        ledger: `enforcement_log`.
        lease: only its holder sends changes.
        switch: the kill switch.
        guards: limits of all policies together.
        exempt: names that are never touched.
        mode_of: returns how far a policy may go, by its name.
        actor: its name in the log.
        needs_second_person: whether the author of a plan may not approve it.
        policy_file: the file that sets `guards`, for messages.
    """

    def __init__(
        self,
        cluster: Cluster,
        ledger: Ledger,
        lease: Lease,
        switch: Switch,
        *,
        guards: GuardSettings,
        exempt: Exempt,
        mode_of: Callable[[str], Mode],
        actor: str,
        needs_second_person: bool = False,
        policy_file: str = "the policy file",
    ) -> None:
        self._needs_second_person, self._policy_file = needs_second_person, policy_file
        self._cluster, self._ledger, self._lease, self._switch = cluster, ledger, lease, switch
        self._settings, self._exempt, self._mode_of, self._actor = guards, exempt, mode_of, actor

    def run(self, proposals: Sequence[Proposal], situation: Situation, now_ms: int) -> Report:
        """One round: settle changes in doubt, restore expired ones, plan, and send what may be sent.

        While the switch is on, it does nothing and releases the lease, because a person may want to roll back.
        """
        if (frozen := self._switch.frozen()) is not None:
            self._lease.release()
            waiting = Journal(self._ledger).state.expired(now_ms)
            return Report(frozen=frozen, waiting=tuple(step.step_id for step in waiting))
        if self._lease.acquire() is None:
            return Report(is_leader=False)
        journal = Journal(self._ledger)
        rows = self._resume(journal, now_ms) + self._expire(journal, now_ms) + self._close(journal, now_ms)
        plan, planned = self._plan(journal, proposals, situation, now_ms)
        rows += planned
        for plan_id in dict.fromkeys([plan.plan_id, *journal.state.approved_plans()]):
            rows += self._apply(journal, journal.state.plans.get(plan_id, ()), situation, now_ms)
        return Report(plan, tuple(rows))

    def plan(
        self, proposals: Sequence[Proposal], situation: Situation, now_ms: int, ticket: str | None = None
    ) -> Plan:
        """Ask the guards about every proposal and log their answers; nothing is sent.

        The same batch returns the same plan, and no row is written. So does a later batch that wants the same while
        nobody has approved the plan.

        Args:
            proposals: each becomes a step of the plan.
            situation: the freshness of the tables, for the guards.
            now_ms: epoch ms, the time of the rows.
            ticket: the change request, noted in each row; None for none.
        """
        return self._plan(Journal(self._ledger), proposals, situation, now_ms, ticket)[0]

    def approve(self, plan_id: str, actor: str, now_ms: int, ticket: str | None = None) -> list[LogEntry]:
        """Approve the planned steps of a plan; the rows of the steps that were not approved before.

        The present mode of the policy applies, not the mode at the time of planning. Steps of a policy that may only
        observe stay as they are, and so do steps that have waited too long.

        Args:
            plan_id: the id in the log.
            actor: the person who approves.
            now_ms: epoch ms, the time of the rows.
            ticket: the change request, noted in each row; None for none.

        Raises:
            UserError: there is no such plan, or a second person has to approve it.
        """
        journal = Journal(self._ledger)
        steps = [
            step
            for step in _steps(journal, plan_id)
            if step.is_open
            and step.approved is None
            and self._mode_of(step.proposal.policy) >= Mode.APPROVE
            and step.overdue(now_ms, self._settings.approve_within) is None
        ]
        if self._needs_second_person and any(step.planned.actor == actor for step in steps):
            raise UserError(
                f"{plan_id} is not approved: {actor} planned it, and enforcement.approval asks for a second person"
            )
        return journal.write(
            [
                replace(
                    step.last, event=Event.APPROVED, at_ms=now_ms, actor=actor, approver=actor,
                    ticket=ticket or step.last.ticket,
                )
                for step in steps
            ]
        )  # fmt: skip

    def apply(self, plan_id: str, situation: Situation, now_ms: int) -> list[LogEntry]:
        """Send the steps of a plan that are approved or need no approval, each if no guard objects.

        A step that a guard refuses now is closed. Only the refusal because another enforcer holds the lease is
        returned and not logged: that enforcer decides about the step.

        Args:
            plan_id: the id in the log.
            situation: the freshness of the tables, for the guards.
            now_ms: epoch ms, the time of the rows.

        Raises:
            UserError: there is no such plan, or the cluster does not answer.
        """
        journal = Journal(self._ledger)
        return self._apply(journal, _steps(journal, plan_id), situation, now_ms)

    def resume(self, now_ms: int) -> list[LogEntry]:
        """Read back the writes without a recorded outcome; their rows, none for a write that is still in doubt."""
        return self._resume(Journal(self._ledger), now_ms)

    def expire(self, now_ms: int) -> list[LogEntry]:
        """Restore the quotas of expired changes, however long ago they expired; nothing while the switch is on."""
        return self._expire(Journal(self._ledger), now_ms)

    def roll_back(self, plan_id: str, now_ms: int, actor: str, ticket: str | None = None) -> list[LogEntry]:
        """Restore the value before each change of a plan, newest change first; allowed while the switch is on.

        The switch stops only the enforcer, and a person asks for this.

        Args:
            plan_id: the id in the log.
            now_ms: epoch ms, the time of the rows.
            actor: the person who asks for it.
            ticket: the change request, noted in each row; None for none.

        Raises:
            UserError: there is no such plan, a later plan changed the same quotas, or another enforcer holds the
                lease.
        """
        journal = Journal(self._ledger)
        _steps(journal, plan_id)
        fencing = self._lease.acquire()
        if fencing is None:
            raise UserError(
                f"{plan_id} is not rolled back: an enforcer is at work; freeze it, and it lets go in its next round"
            )
        rows = self._settle_all(journal, fencing, now_ms)
        live = journal.state.live
        steps = [step for step in _steps(journal, plan_id) if step in live.get(step.proposal.quota, ())]
        for step in steps:
            top = live[step.proposal.quota][-1]
            if top.step_id.plan_id != plan_id:
                what = f"{step.proposal.quota.key.value} of {step.proposal.quota.entity}"
                later = f"{top.step_id.plan_id} changed {what} later, roll that back first"
                raise UserError(f"{plan_id} is not rolled back: {later}")
        writer = Writer(
            self._cluster, journal, fencing, actor, now_ms, lambda: self._lease.is_held(fencing), ticket
        )
        for step in reversed(steps):
            if step.last.event is not Event.SENDING:
                rows += writer.restore([step], "rolled back")
        return rows

    def _plan(
        self,
        journal: Journal,
        proposals: Sequence[Proposal],
        situation: Situation,
        now_ms: int,
        ticket: str | None = None,
    ) -> tuple[Plan, list[LogEntry]]:
        state = journal.state
        plan_id = plan_id_of(proposals, state)
        if (known := state.plans.get(plan_id)) is not None:
            return Plan(plan_id, tuple(step.planned for step in known)), []
        held = self._cluster.read({wanted.quota for wanted in proposals}) if proposals else {}
        entries: list[LogEntry] = []
        beside: list[Proposal] = []
        frozen = cache(self._switch.frozen)  # nothing is sent: one answer is enough for all
        for number, wanted in enumerate(proposals, start=1):
            there = held[wanted.quota]
            check = self._check(wanted, None, there, situation, state, now_ms, beside, None, frozen)
            objection = refusal(check)
            entry = self._first_row(StepId(plan_id, number), check, objection)
            entries.append(replace(entry, author=self._actor, ticket=ticket))
            if objection is None:
                beside.append(wanted)
        plan = open_plan(state, entries, now_ms - self._settings.approve_within)
        if plan is not None:
            return plan, []
        replaced = [
            replace(
                step.last, event=Event.SUPERSEDED, at_ms=now_ms, actor=self._actor,
                detail=f"replaced by plan {plan_id} of {_author(step, self._actor)}",
            )
            for wanted in beside
            for step in state.open_steps(wanted.quota)
        ]  # fmt: skip
        return Plan(plan_id, tuple(entries)), journal.write(replaced + entries)

    def _first_row(self, step_id: StepId, check: Check, objection: tuple[str, str] | None) -> LogEntry:
        guard, sentence = objection or (None, "")
        return LogEntry(
            step_id=step_id,
            event=Event.PLANNED if objection is None else Event.REFUSED,
            at_ms=check.now_ms,
            proposal=check.proposal,
            mode=check.mode,
            actor=self._actor,
            guard=guard,
            detail=sentence,
        )

    def _apply(
        self, journal: Journal, steps: Sequence[Step], situation: Situation, now_ms: int
    ) -> list[LogEntry]:
        fencing = self._lease.acquire()
        rows: list[LogEntry] = []
        sent: list[Proposal] = []
        for step in steps:
            if not step.is_open or (step.approved is None and step.planned.mode is not Mode.ENFORCE):
                continue
            wanted = step.proposal
            held = self._cluster.read([wanted.quota])[wanted.quota]
            frozen = self._switch.frozen
            check = self._check(wanted, step, held, situation, journal.state, now_ms, sent, fencing, frozen)
            if (objection := refusal(check)) is not None:
                known = step.last
                refused = replace(
                    self._first_row(step.step_id, check, objection),
                    author=known.author, approver=known.approver, ticket=known.ticket,
                )  # fmt: skip
                rows += [refused] if objection[0] == LEASE else journal.write([refused])
                continue
            number = _NO_LEASE if fencing is None else fencing
            rows += self._writer(journal, number, now_ms).send([(step, held)])
            sent.append(wanted)
        return rows

    def _check(
        self,
        wanted: Proposal,
        step: Step | None,
        held: Held,
        situation: Situation,
        state: LogState,
        now_ms: int,
        beside: Sequence[Proposal],
        fencing: int | None,
        frozen: Callable[[], Frozen | None],
    ) -> Check:
        return Check(
            proposal=wanted,
            step=step,
            held=held,
            mode=self._mode_of(wanted.policy),
            situation=situation,
            state=state,
            settings=self._settings,
            exempt=self._exempt,
            now_ms=now_ms,
            beside=tuple(beside),
            refusal=lambda: self._cluster.refusal(Change.of(wanted.quota, wanted.after)),
            is_lease_held=lambda: fencing is not None and self._lease.is_held(fencing),
            frozen=frozen,
            needs_second_person=self._needs_second_person,
            policy_file=self._policy_file,
        )

    def _resume(self, journal: Journal, now_ms: int) -> list[LogEntry]:
        fencing = self._lease.acquire()
        return [] if fencing is None else self._settle_all(journal, fencing, now_ms)

    def _settle_all(self, journal: Journal, fencing: int, now_ms: int) -> list[LogEntry]:
        writer = self._writer(journal, fencing, now_ms)
        rows: list[LogEntry] = []
        for step in journal.state.in_doubt():
            rows += writer.settle([step])
            if step.last.event is Event.RESTORING:
                rows += writer.restore([step], "it was not put back yet")
        return rows

    def _expire(self, journal: Journal, now_ms: int) -> list[LogEntry]:
        fencing = self._lease.acquire()
        if fencing is None:
            return []
        writer = self._writer(journal, fencing, now_ms)
        rows: list[LogEntry] = []
        while due := [step for step in journal.state.expired(now_ms) if _is_due(step, now_ms)]:
            restored = [row for step in due for row in writer.restore([step], "its time is over")]
            if not restored:
                break
            rows += restored
        return rows

    def _close(self, journal: Journal, now_ms: int) -> list[LogEntry]:
        """Refuse the steps that nobody has approved in time, so that they do not wait for ever."""
        found = (
            (step, step.overdue(now_ms, self._settings.approve_within)) for step in journal.state.unapproved()
        )
        return journal.write(
            [
                replace(
                    step.last, event=Event.REFUSED, at_ms=now_ms, actor=self._actor, guard=STALE, detail=why
                )
                for step, why in found
                if why is not None
            ]
        )

    def _writer(self, journal: Journal, fencing: int, now_ms: int) -> Writer:
        def may_restore() -> bool:
            return self._lease.is_held(fencing) and self._switch.frozen() is None

        return Writer(self._cluster, journal, fencing, self._actor, now_ms, may_restore)


def _steps(journal: Journal, plan_id: str) -> list[Step]:
    steps = journal.state.plans.get(plan_id)
    if steps is None:
        raise UserError(f"there is no plan {plan_id}: kquota enforce status lists those that wait")
    return steps


def _author(step: Step, actor: str) -> str:
    return "the same author" if step.planned.actor == actor else actor


def _is_due(step: Step, now_ms: int) -> bool:
    """Whether to restore it now: it is not in doubt, and the cluster has not refused it in the last 120 s."""
    if step.is_in_doubt:
        return False
    return step.last.event is not Event.FAILED or now_ms - step.last.at_ms >= LATE_WRITE_MS
