"""What the log of enforcement amounts to: open steps, changes that hold, and what was done to each quota."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import NamedTuple

from kquota_spark.enforce.changes import Event, LogEntry, Mode, Proposal, Quota, StepId
from kquota_spark.enforce.ports import Ledger
from kquota_spark.formats.text.person_units import person_span

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_OPEN = (Event.PLANNED, Event.APPROVED)
_IN_DOUBT = (Event.SENDING, Event.RESTORING)


@dataclass(slots=True, eq=False)
class Step:
    """One change of one plan, as its rows leave it."""

    planned: LogEntry
    """Its first row: planned, or refused at once."""
    last: LogEntry
    approved: LogEntry | None = None
    sending: LogEntry | None = None
    restoring: LogEntry | None = None
    """Since when it is being taken back; None again when that failed."""

    @property
    def step_id(self) -> StepId:
        """Plan and number."""
        return self.planned.step_id

    @property
    def proposal(self) -> Proposal:
        """What was planned."""
        return self.planned.proposal

    @property
    def is_open(self) -> bool:
        """Planned, and neither sent nor refused."""
        return self.last.event in _OPEN

    @property
    def needs_approval(self) -> bool:
        """Open, nobody has approved it, and it was planned in a mode that asks for that."""
        return self.is_open and self.approved is None and self.planned.mode >= Mode.APPROVE

    @property
    def is_approved_by_author(self) -> bool:
        """Whether who approved it had planned it too."""
        return self.approved is not None and self.approved.actor == self.planned.actor

    def overdue(self, now_ms: int, approve_within_ms: int) -> str | None:
        """Why it need not wait for approval any more; None while it may."""
        expires_at_ms = self.proposal.expires_at_ms
        if expires_at_ms is not None and expires_at_ms <= now_ms:
            return "nobody approved it before its time was over"
        if now_ms - self.planned.at_ms > approve_within_ms:
            return f"nobody approved it within {person_span(approve_within_ms)}"
        return None

    @property
    def is_in_doubt(self) -> bool:
        """Something was sent, and nothing tells what became of it."""
        return self.last.event in _IN_DOUBT


class Move(NamedTuple):
    """One time that we set a quota, or put it back; None is no quota."""

    at_ms: int
    before: float | None
    after: float | None

    @property
    def is_up(self) -> bool:
        """Whether clients could do more afterwards."""
        return _height(self.after) > _height(self.before)


def _height(value: float | None) -> float:
    return math.inf if value is None else value


@dataclass(slots=True, eq=False)
class LogState:
    """The log, folded row by row; a fold of all rows is all that an enforcer has to remember."""

    steps: dict[StepId, Step] = field(default_factory=dict)
    plans: dict[str, list[Step]] = field(default_factory=dict)
    live: dict[Quota, list[Step]] = field(default_factory=dict)
    """Changes of each quota that hold or may hold, the newest last: it lies on top of those before it."""
    moves: dict[Quota, list[Move]] = field(default_factory=dict)
    """What we did to each quota, the newest last."""
    sends: list[int] = field(default_factory=list)
    """When changes were sent, whatever became of them."""
    _open: dict[Quota, list[Step]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[LogEntry]) -> LogState:
        """The state after these rows."""
        state = cls()
        for entry in entries:
            state.add(entry)
        return state

    def add(self, entry: LogEntry) -> None:
        """Fold one more row."""
        step = self.steps.get(entry.step_id)
        if step is None:
            step = self.steps[entry.step_id] = Step(entry, entry)
            self.plans.setdefault(entry.step_id.plan_id, []).append(step)
            if step.is_open:
                self._open.setdefault(entry.proposal.quota, []).append(step)
            return
        if entry.fencing is None and not step.is_open:
            # Approved, refused or planned anew by one process while another one sent it: that stands.
            return
        self._fold(step, entry)
        step.last = entry
        if not step.is_open and step in (opened := self._open.get(entry.proposal.quota, [])):
            opened.remove(step)

    def open_steps(self, quota: Quota) -> Sequence[Step]:
        """Steps of this quota that were planned, and neither sent nor refused."""
        return self._open.get(quota, ())

    def unapproved(self) -> list[Step]:
        """Steps that nobody has approved, and that were neither sent nor refused."""
        return [step for steps in self._open.values() for step in steps if step.approved is None]

    def approved_plans(self) -> list[str]:
        """Plans with steps that were approved, and neither sent nor refused."""
        approved = [step for steps in self._open.values() for step in steps if step.approved is not None]
        return sorted({step.step_id.plan_id for step in approved})

    def waiting(self, now_ms: int, within_ms: int) -> list[Step]:
        """Open steps that may still be approved, or sent."""
        steps = self.steps.values()
        return [step for step in steps if step.is_open and step.overdue(now_ms, within_ms) is None]

    def in_doubt(self) -> list[Step]:
        """Steps of which it has to be read back what became of them."""
        return [step for steps in self.live.values() for step in steps if step.is_in_doubt]

    def sent_since(self, from_ms: int) -> int:
        """How many changes were sent after a moment, whatever became of them."""
        return sum(1 for _ in takewhile(lambda at_ms: at_ms > from_ms, reversed(self.sends)))

    def reversals_since(self, from_ms: int, quota: Quota, planned: Move) -> int:
        """How often our changes of a quota turned round after a moment, with the one that is planned."""
        moves = [*self.moves.get(quota, ()), planned]
        return sum(
            later.at_ms > from_ms and later.is_up is not earlier.is_up for earlier, later in pairwise(moves)
        )

    def expired(self, now_ms: int) -> list[Step]:
        """Changes on top whose time is over; what lies below one shows when that is gone."""
        tops = [steps[-1] for steps in self.live.values() if steps]
        return [
            step
            for step in tops
            if step.proposal.expires_at_ms is not None and step.proposal.expires_at_ms <= now_ms
        ]

    def _fold(self, step: Step, entry: LogEntry) -> None:
        quota = step.proposal.quota
        match entry.event:
            case Event.APPROVED:
                step.approved = entry
            case Event.SENDING:
                step.sending = entry
                self.sends.append(entry.at_ms)
                self.live.setdefault(quota, []).append(step)
                self._moved(entry, step.proposal.before, step.proposal.after)
            case Event.RESTORING:
                if step.restoring is not None:  # it was not put back yet, and now may be
                    self._forget_move(quota)
                self._moved(entry, step.proposal.after, step.proposal.before)
                step.restoring = entry
            case Event.FAILED:
                self._forget_move(quota)
                if step.restoring is None:
                    self._remove(step)
                step.restoring = None
            case Event.RESTORED | Event.SUPERSEDED:
                self._remove(step)
            case _:
                pass

    def _moved(self, entry: LogEntry, before: float | None, after: float | None) -> None:
        self.moves.setdefault(entry.proposal.quota, []).append(Move(entry.at_ms, before, after))

    def _forget_move(self, quota: Quota) -> None:
        """Drop the newest, which is that of the step in doubt: nothing else is sent of a quota meanwhile."""
        if moves := self.moves.get(quota):
            moves.pop()

    def _remove(self, step: Step) -> None:
        steps = self.live.get(step.proposal.quota, [])
        self.live[step.proposal.quota] = [other for other in steps if other is not step]


class Journal:
    """The log and what it amounts to, kept in step: a row counts here only when it is durable there."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.state = LogState.of(ledger.entries())

    def write(self, entries: Sequence[LogEntry]) -> list[LogEntry]:
        """Append rows; the same rows, for the caller's account."""
        if entries:
            self._ledger.append(entries)
        for entry in entries:
            self.state.add(entry)
        return list(entries)
