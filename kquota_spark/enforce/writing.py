"""Write one change or restore the state before it, read it back, and find its outcome after a crash.

A write stays in doubt if its answer is lost or its effect is not visible yet: its newest row is `sending` or
`restoring`. Every round reads it back until it is visible, or until it is too late for it to arrive.
If somebody else sets a quota, their value stays: all of our changes below it get the row `superseded`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kquota_spark.enforce.changes import Event, LogEntry
from kquota_spark.enforce.log_state import Journal, Step
from kquota_spark.enforce.ports import Change, Cluster, Held, Outcome, Written
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import quota_text

LATE_WRITE_MS = 120_000
"""Maximum time until a write takes effect, ms: twice default.api.timeout.ms of Kafka's admin client, which is 60 s."""


class Writer:
    """Writes changes under one lease, and their rows before and after.

    Args:
        cluster: the quotas.
        journal: the log.
        fencing: number of the lease.
        actor: the person or program, for the log.
        now_ms: epoch ms, the time of all rows.
        may_restore: checks the lease and the kill switch, last before a restoration is written.
        ticket: the change request of this act; None for that of the step.
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
    ) -> None:
        self._ticket = ticket
        self._cluster, self._journal, self._may_restore = cluster, journal, may_restore
        self._fencing, self._actor, self._now_ms = fencing, actor, now_ms

    def send(self, step: Step, held: Held) -> list[LogEntry]:
        """Write a change that all guards allow; the rows of it."""
        wanted = step.proposal
        below = self._journal.state.live.get(wanted.quota)
        rows = []
        if below and below[-1].proposal.after != held.value:
            rows = self._given_up(below, "somebody else set it since")
        rows.append(self._row(step, Event.SENDING, note=held.note))
        self._journal.write(rows)
        outcome, detail = self._written(Change.of(wanted.quota, wanted.after), held)
        if outcome is Outcome.FENCED:  # we may not write the log either: the new holder settles the step
            return rows
        if outcome in (Outcome.REFUSED, Outcome.CHANGED):
            return rows + self._failed(step, detail or outcome.value)
        return rows + self.settle(step, detail)

    def restore(self, step: Step, why: str) -> list[LogEntry]:
        """Restore the state before a change, unless somebody else has set the quota since; the rows of it.

        The change must be the newest of its quota: otherwise later changes would be lost.
        """
        wanted, sending = step.proposal, step.sending
        assert sending is not None
        assert sending.note is not None
        value = self._cluster.read([wanted.quota])[wanted.quota].value
        if value != wanted.after:
            return self._settled_restore(step, value)
        if not self._may_restore():
            return []
        rows = self._journal.write([self._row(step, Event.RESTORING, why)])
        back = Change.of(wanted.quota, wanted.before, sending.note)
        outcome, detail = self._written(back, Held(wanted.after, None))
        if outcome is Outcome.FENCED:
            return rows
        if outcome is Outcome.REFUSED:
            return rows + self._failed(step, detail or outcome.value)
        return rows + self.settle(step, detail)

    def settle(self, step: Step, detail: str = "") -> list[LogEntry]:
        """Read back a change in doubt; the row of its outcome, no row if it is still in doubt."""
        wanted, sending = step.proposal, step.sending
        assert sending is not None
        value = self._cluster.read([wanted.quota])[wanted.quota].value
        if step.last.event is Event.RESTORING:
            return [] if value == wanted.after else self._settled_restore(step, value, detail)
        if value == wanted.after:
            return self._journal.write([self._row(step, Event.APPLIED, detail)])
        if value != wanted.before:
            return self._give_up(step, "somebody else set it right afterwards")
        if self._now_ms - sending.at_ms < LATE_WRITE_MS:
            return []
        return self._failed(step, "it was sent and never arrived")

    def _written(self, change: Change, expect: Held) -> Written:
        try:
            return self._cluster.write(change, expect, self._fencing)
        except UserError as error:
            return Written(Outcome.REFUSED, f"nothing was sent: {error}")

    def _settled_restore(self, step: Step, value: float | None, detail: str = "") -> list[LogEntry]:
        if value != step.proposal.before:
            return self._give_up(
                step, f"somebody else set it since: {quota_text(step.proposal.quota.key, value)}"
            )
        if step.restoring is not None:
            return self._journal.write([self._row(step, Event.RESTORED, detail)])
        below = self._journal.state.live[step.proposal.quota][:-1]
        rows = [self._row(step, Event.RESTORED, "somebody else has put it back already")]
        return self._journal.write(rows + self._given_up(below, "somebody else put back what lay on it"))

    def _give_up(self, step: Step, why: str) -> list[LogEntry]:
        return self._journal.write(self._given_up(self._journal.state.live[step.proposal.quota], why))

    def _given_up(self, steps: list[Step], why: str) -> list[LogEntry]:
        return [self._row(step, Event.SUPERSEDED, why) for step in reversed(steps)]

    def _failed(self, step: Step, why: str) -> list[LogEntry]:
        return self._journal.write([self._row(step, Event.FAILED, why)])

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
