"""Lift the quotas of a cluster or of some entities, and restore exactly the state before (KIP-13's tooling).

To lift a quota is to remove its key. A lift is a step in `enforcement_log` like any other change of enforcement, and
the same `Writer` sends it, restores it and reads it back. `lift --end` needs only the log: a quota is lifted if its
removal was sent, did not fail, and was not restored. A crash leaves a step in doubt, and the next run reads it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from kquota_spark.enforce.changes import (
    LIFT,
    Event,
    Evidence,
    LogEntry,
    Mode,
    Proposal,
    Quota,
    StepId,
    name_of,
)
from kquota_spark.enforce.log_state import Journal, LogState, Step
from kquota_spark.enforce.ports import Cluster, Held, Ledger
from kquota_spark.enforce.writing import Writer
from kquota_spark.model.quotas.entities import Entity, Name

BATCH = 50
"""Maximum quotas per commit of the log: one commit takes as long as several writes to the cluster."""
_LATE_MS = 1
"""Time after which a removal that is not visible has failed, ms: the next run sends it again."""
_OTHERS = "somebody else has set it"

_NO_EVIDENCE = Evidence(0, 0, 0, 0, 0)


class Scope(NamedTuple):
    """The user and client id of the selected quotas; None selects every name, and entities without one."""

    user: Name = None
    client_id: Name = None

    def holds(self, entity: Entity) -> bool:
        """Whether an entity is selected."""
        return self.user in (None, entity.user) and self.client_id in (None, entity.client_id)


class Fate(Enum):
    """The outcome for a quota, planned or done."""

    LIFT = "lift"
    RESTORE = "restore"
    LIFTED = "lifted"
    RESTORED = "restored"
    REMOVED = "not set any more"
    KEPT = "set again since it was lifted: stays"
    SUPERSEDED = "somebody else set it meanwhile: stays"
    FAILED = "failed"

    @property
    def is_bad(self) -> bool:
        """Whether the outcome is not the requested one."""
        return self in (Fate.SUPERSEDED, Fate.FAILED)


class Line(NamedTuple):
    """One quota, its values before and after, and its outcome; None is no quota."""

    quota: Quota
    before: float | None
    after: float | None
    fate: Fate
    detail: str = ""


class FencedError(Exception):
    """Another enforcer has taken the lease: this one may not send any more."""


def lifts(state: LogState) -> list[Step]:
    """The quotas that are lifted, or may be, in the order in which they were lifted."""
    return [
        step
        for step in state.steps.values()
        if step.proposal.is_lift and step in state.live.get(step.proposal.quota, ())
    ]


def planned_lifting(in_force: Mapping[Quota, float], lifted: Iterable[Step]) -> list[Line]:
    """The quotas to lift, by name; a quota that was lifted and set again is kept.

    Args:
        in_force: the selected quotas, as the cluster has them now.
        lifted: the result of `lifts`.
    """
    known = {lift.proposal.quota for lift in lifted if not lift.is_in_doubt}
    return [
        Line(quota, value, value, Fate.KEPT) if quota in known else Line(quota, value, None, Fate.LIFT)
        for quota, value in sorted(in_force.items(), key=lambda found: name_of(found[0]))
    ]


def planned_restoring(lifted: Iterable[Step], now: Mapping[Quota, float | None]) -> list[Line]:
    """The quotas to restore, the last lifted first.

    Args:
        lifted: the selected ones.
        now: the present values of their quotas.
    """
    lines = []
    for lift in reversed(list(lifted)):
        quota, before = lift.proposal.quota, lift.proposal.before
        value = now[quota]
        if value is None:
            lines.append(Line(quota, None, before, Fate.RESTORE))
        else:
            lines.append(Line(quota, value, value, Fate.RESTORED if value == before else Fate.SUPERSEDED))
    return lines


def in_batches(quotas: Iterable[Quota]) -> Iterator[Sequence[Quota]]:
    """The quotas in batches, no entity twice in a batch: the note of a key depends on the other keys of the node."""
    waves: list[list[Quota]] = []
    seen: dict[Entity, int] = {}
    for quota in quotas:
        index = seen[quota.entity] = seen.get(quota.entity, -1) + 1
        if index == len(waves):
            waves.append([])
        waves[index].append(quota)
    for wave in waves:
        yield from (wave[at : at + BATCH] for at in range(0, len(wave), BATCH))


class Lifter:
    """Lifts and restores under a lease.

    Args:
        cluster: the quotas.
        ledger: `enforcement_log`.
        fencing: number of the lease.
        actor: the person or program, for the log.

    Raises, in every method:
        FencedError: another enforcer acts; the last writes are in doubt until the next run.
        UserError: the cluster or the log does not answer; the last writes are in doubt as well.
    """

    def __init__(self, cluster: Cluster, ledger: Ledger, fencing: int, actor: str) -> None:
        self._cluster, self._journal = cluster, Journal(ledger)
        self._fencing, self._actor = fencing, actor

    @property
    def lifted(self) -> list[Step]:
        """See `lifts`."""
        return lifts(self._journal.state)

    def settle(self, now_ms: int) -> None:
        """Read back the writes that a crash left in doubt, and log their outcomes."""
        self._writer(now_ms).settle([step for step in self.lifted if step.is_in_doubt])

    def lift(
        self, batch: Sequence[Quota], first: StepId, reason: str, now_ms: int, ticket: str | None = None
    ) -> list[Line]:
        """Lift a batch of `in_batches`, one step per quota. A quota that cannot be lifted does not stop the others.

        Args:
            batch: quotas of one batch.
            first: plan and step of the first quota; the others have the next steps.
            reason: noted in each row.
            now_ms: epoch ms, the time of the rows.
            ticket: the change request, noted in each row; None for none.
        """
        held = self._cluster.read(batch)
        changes: dict[Quota, tuple[Step, Held]] = {}
        for index, quota in enumerate(batch):
            there = held[quota]
            if there.value is not None and there.note is not None:
                proposal = Proposal(quota, there.value, None, LIFT, reason, None, _NO_EVIDENCE)
                planned = LogEntry(
                    first._replace(step=first.step + index), Event.PLANNED, now_ms, proposal, Mode.ENFORCE,
                    self._actor, author=self._actor, ticket=ticket,
                )  # fmt: skip
                changes[quota] = Step(planned, planned), there
        writer = self._writer(now_ms)
        if changes:
            writer.send(list(changes.values()), [step.planned for step, _ in changes.values()])
        steps = {quota: self._journal.state.steps[step.step_id] for quota, (step, _) in changes.items()}
        done = self._lines(writer, steps, Event.APPLIED, Fate.LIFTED)
        return [done.get(quota) or _not_lifted(quota, held[quota]) for quota in batch]

    def restore(self, batch: Sequence[Step], now_ms: int) -> list[Line]:
        """Restore lifted quotas, no entity twice in a batch; a quota that somebody else has set meanwhile stays."""
        writer = self._writer(now_ms)
        writer.restore(batch, "")
        steps = {step.proposal.quota: step for step in batch}
        done = self._lines(writer, steps, Event.RESTORED, Fate.RESTORED)
        return [done[step.proposal.quota] for step in batch]

    def _lines(
        self, writer: Writer, steps: Mapping[Quota, Step], wanted: Event, fate: Fate
    ) -> dict[Quota, Line]:
        """The outcomes of steps.

        Args:
            writer: has written them.
            steps: the step of each quota.
            wanted: the event of a success.
            fate: the outcome of a success.
        """
        if writer.is_fenced:
            raise FencedError
        bad = [quota for quota, step in steps.items() if step.last.event is not wanted]
        now = self._cluster.read(bad) if bad else {}
        lines: dict[Quota, Line] = {}
        for quota, step in steps.items():
            is_lifting, last, before = wanted is Event.APPLIED, step.last, step.proposal.before
            if quota not in now:
                lines[quota] = (
                    Line(quota, before, None, fate) if is_lifting else Line(quota, None, before, fate)
                )
                continue
            value, is_replaced = now[quota].value, last.event is Event.SUPERSEDED
            detail = _OTHERS if is_replaced else writer.doubts.get(step.step_id) or last.detail
            was = before if is_lifting else value if is_replaced else None
            kind = Fate.SUPERSEDED if is_replaced and not is_lifting else Fate.FAILED
            lines[quota] = Line(quota, was, value, kind, detail)
        return lines

    def _writer(self, now_ms: int) -> Writer:
        # The fence alone stops a write: a person may restore while enforcement is frozen.
        return Writer(
            self._cluster, self._journal, self._fencing, self._actor, now_ms, lambda: True, late_ms=_LATE_MS
        )


def _not_lifted(quota: Quota, held: Held) -> Line:
    if held.value is None:
        return Line(quota, None, None, Fate.REMOVED)
    return Line(quota, held.value, held.value, Fate.FAILED, held.problem)
