"""Write changes or restore the state before them, read them back, and find their outcome after a crash.

A write stays in doubt if its answer is lost or its effect is not visible yet: its newest row is `sending` or
`restoring`. Every round reads it back until it is visible, or until it is too late for it to arrive.
If somebody else sets a quota, their value stays: all of our changes below it get the row `superseded`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kquota_spark.enforce.changes import Event, LogEntry, StepId
from kquota_spark.enforce.log_state import Journal, Step
from kquota_spark.enforce.ports import Change, Cluster, Held, Outcome, Written
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import quota_text

LATE_WRITE_MS = 120_000
"""Maximum time until a write takes effect, ms: twice default.api.timeout.ms of Kafka's admin client, which is 60 s."""
_NO_OUTCOME = (Outcome.DONE, Outcome.UNKNOWN)
"""Answers after which only reading back shows the outcome."""


class Writer:
    """Writes changes under one lease, and their rows before and after.

    It takes batches, because one commit of the log takes as long as several writes to the cluster. No entity may be
    twice in a batch: the note of a key depends on the other keys of the node.

    Args:
        cluster: the quotas.
        journal: the log.
        fencing: number of the lease.
        actor: the person or program, for the log.
        now_ms: epoch ms, the time of all rows.
        may_restore: checks the lease and the kill switch, last before a restoration is written.
        ticket: the change request of this act; None for that of the step.
        late_ms: time after which a change that is not visible has failed, ms.

    Attributes:
        is_fenced: whether another enforcer has taken the lease; nothing more was written, not even into the log.
        doubts: the message of the cluster for each step with an unknown outcome.
    """

    def __init__(
        self,
        cluster: Cluster,
        journal: Journal,
        fencing: int,
        actor: str,
        now_ms: int,
        may_restore: Callable[[], bool],
        ticket: str | None = None,
        *,
        late_ms: int = LATE_WRITE_MS,
    ) -> None:
        self._ticket, self._late_ms = ticket, late_ms
        self._cluster, self._journal, self._may_restore = cluster, journal, may_restore
        self._fencing, self._actor, self._now_ms = fencing, actor, now_ms
        self.is_fenced = False
        self.doubts: dict[StepId, str] = {}

    def send(self, changes: Sequence[tuple[Step, Held]], planned: Sequence[LogEntry] = ()) -> list[LogEntry]:
        """Write changes that may be sent; the rows of them.

        Args:
            changes: each with the present state of its quota.
            planned: their first rows, if the log does not have them yet.
        """
        rows = list(planned)
        for step, held in changes:
            below = self._journal.state.live.get(step.proposal.quota)
            if below and below[-1].proposal.after != held.value:
                rows += self._given_up(below, "somebody else set it since")
            rows.append(self._row(step, Event.SENDING, note=held.note))
        self._journal.write(rows)
        steps = [self._journal.state.steps[step.step_id] for step, _ in changes]
        wanted = [
            (step, Change.of(step.proposal.quota, step.proposal.after), held)
            for step, (_, held) in zip(steps, changes, strict=True)
        ]
        return rows + self._written(wanted)

    def restore(self, steps: Sequence[Step], why: str) -> list[LogEntry]:
        """Restore the state before changes, unless somebody else has set the quota since; the rows of them."""
        values = self._values(steps)
        found = [(step, value) for step, value in zip(steps, values, strict=True)]
        rows = self._journal.write(
            [
                row
                for step, value in found
                if value != step.proposal.after
                for row in self._replaced(step, value)
            ]
        )
        going = [step for step, value in found if value == step.proposal.after]
        if not going or not self._may_restore():
            return rows
        rows += self._journal.write([self._row(step, Event.RESTORING, why) for step in going])
        return rows + self._written(
            [(step, _way_back(step), Held(step.proposal.after, None)) for step in going]
        )

    def settle(self, steps: Sequence[Step], details: Sequence[str] | None = None) -> list[LogEntry]:
        """Read back changes in doubt; the rows of their outcomes, none for a change that is still in doubt.

        Args:
            steps: the changes.
            details: the message of the cluster for each; None for none.
        """
        found = zip(steps, self._values(steps), details or [""] * len(steps), strict=True)
        return self._journal.write([row for each in found for row in self._outcome(*each)])

    def _written(self, changes: Sequence[tuple[Step, Change, Held]]) -> list[LogEntry]:
        """Write changes and find their outcomes; the rows of the outcomes."""
        failed: list[LogEntry] = []
        others: list[tuple[Step, str]] = []
        for step, change, expect in changes:
            outcome, detail = self._answer(change, expect)
            if outcome is Outcome.FENCED:  # we may not write the log either: the new holder settles the steps
                self.is_fenced = True
                return []
            # A restoration of what is not as expected is read back: it may be restored already.
            if outcome in _NO_OUTCOME or (outcome is Outcome.CHANGED and change.note is not None):
                others.append((step, detail))
            else:
                failed.append(self._row(step, Event.FAILED, detail or outcome.value))
        rows = self._journal.write(failed)
        return rows + self.settle([step for step, _ in others], [detail for _, detail in others])

    def _answer(self, change: Change, expect: Held) -> Written:
        try:
            return self._cluster.write(change, expect, self._fencing)
        except UserError as error:
            return Written(Outcome.REFUSED, f"nothing was sent: {error}")

    def _values(self, steps: Sequence[Step]) -> list[float | None]:
        """The present values of the quotas of steps."""
        held = self._cluster.read([step.proposal.quota for step in steps]) if steps else {}
        return [held[step.proposal.quota].value for step in steps]

    def _outcome(self, step: Step, value: float | None, detail: str) -> list[LogEntry]:
        """The rows of the outcome of a change in doubt; none if it is still in doubt."""
        wanted, sending = step.proposal, step.sending
        assert sending is not None
        if step.last.event is Event.RESTORING:
            if value != wanted.after:
                return self._replaced(step, value, detail)
        elif value == wanted.after:
            return [self._row(step, Event.APPLIED, detail)]
        elif value != wanted.before:
            return self._given_up(self._stack(step), "somebody else set it right afterwards")
        elif self._now_ms - sending.at_ms >= self._late_ms:
            return [self._row(step, Event.FAILED, "it was sent and never arrived")]
        self.doubts[step.step_id] = detail or "it is not visible yet"
        return []

    def _replaced(self, step: Step, value: float | None, detail: str = "") -> list[LogEntry]:
        """The rows of a change that is not in force any more."""
        if value != step.proposal.before:
            why = f"somebody else set it since: {quota_text(step.proposal.quota.key, value)}"
            return self._given_up(self._stack(step), why)
        if step.restoring is not None:
            return [self._row(step, Event.RESTORED, detail)]
        row = self._row(step, Event.RESTORED, "somebody else has put it back already")
        return [row, *self._given_up(self._stack(step)[:-1], "somebody else put back what lay on it")]

    def _stack(self, step: Step) -> list[Step]:
        """Our changes of the quota up to this one; later ones lie on it and keep their state. None if it has ended."""
        steps = self._journal.state.live.get(step.proposal.quota, [])
        return steps[: steps.index(step) + 1] if step in steps else []

    def _given_up(self, steps: Sequence[Step], why: str) -> list[LogEntry]:
        return [self._row(step, Event.SUPERSEDED, why) for step in reversed(steps)]

    def _row(self, step: Step, event: Event, detail: str = "", note: str | None = None) -> LogEntry:
        return replace(
            step.last,
            event=event,
            at_ms=self._now_ms,
            actor=self._actor,
            fencing=self._fencing,
            note=note,
            detail=detail,
            ticket=self._ticket or step.last.ticket,
        )


def _way_back(step: Step) -> Change:
    """The change that restores exactly the state before a step."""
    assert step.sending is not None
    assert step.sending.note is not None
    return Change.of(step.proposal.quota, step.proposal.before, step.sending.note)
