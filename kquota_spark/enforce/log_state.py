"""The state that follows from the log of enforcement: open steps, changes in force, and our moves of each quota."""

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
    """One change of one plan, as of its newest row."""

    planned: LogEntry
    """Its first row: planned, or refused immediately."""
    last: LogEntry
    approved: LogEntry | None = None
    sending: LogEntry | None = None
    restoring: LogEntry | None = None
    """The row with which its restoration began; None again if the restoration failed."""

    @property
    def step_id(self) -> StepId:
        """Plan and number of the step."""
        return self.planned.step_id

    @property
    def proposal(self) -> Proposal:
        """The planned change."""
        return self.planned.proposal

    @property
    def is_open(self) -> bool:
        """Whether it is planned, and neither sent nor refused."""
        return self.last.event in _OPEN

    @property
    def needs_approval(self) -> bool:
        """Whether it is open and not approved, and was planned in a mode above `OBSERVE`."""
        return self.is_open and self.approved is None and self.planned.mode >= Mode.APPROVE

    @property
    def is_approved_by_author(self) -> bool:
        """Whether the same person planned and approved it."""
        return self.approved is not None and self.approved.actor == self.planned.actor

    def overdue(self, now_ms: int, approve_within_ms: int) -> str | None:
        """Why it does not wait for approval any more; None while it may wait."""
        expires_at_ms = self.proposal.expires_at_ms
        if expires_at_ms is not None and expires_at_ms <= now_ms:
            return "nobody approved it before its time was over"
        if now_ms - self.planned.at_ms > approve_within_ms:
            return f"nobody approved it within {person_span(approve_within_ms)}"
        return None

    @property
    def is_in_doubt(self) -> bool:
        """Whether a write was sent and its outcome is not known."""
        return self.last.event in _IN_DOUBT


class Move(NamedTuple):
    """One change or restoration of a quota by us; None is no quota."""

    at_ms: int
    before: float | None
    after: float | None
    step_id: StepId | None = None
    """Its step; None for a change that is only planned."""

    @property
    def is_up(self) -> bool:
        """Whether it raised or removed the limit."""
        return _height(self.after) > _height(self.before)


def _height(value: float | None) -> float:
    return math.inf if value is None else value


@dataclass(slots=True, eq=False)
class LogState:
    """The state after the rows of the log, folded row by row; an enforcer has no other state."""

    steps: dict[StepId, Step] = field(default_factory=dict)
    plans: dict[str, list[Step]] = field(default_factory=dict)
    live: dict[Quota, list[Step]] = field(default_factory=dict)
    """Changes of each quota that are or may be in force, the newest last: it covers those before it."""
    moves: dict[Quota, list[Move]] = field(default_factory=dict)
    """Our changes of each quota, the newest last."""
    sends: list[int] = field(default_factory=list)
    """When changes were sent (epoch ms), whatever their outcome; without lifts."""
    _ended_lifts: set[StepId] = field(default_factory=set)
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
            # One process approved, refused or planned it again while another one sent it: the sending counts.
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
        """Steps that were sent or restored, and must be read back to find their outcome."""
        return [step for steps in self.live.values() for step in steps if step.is_in_doubt]

    def sent_since(self, from_ms: int) -> int:
        """The number of changes sent after `from_ms`, whatever their outcome."""
        return sum(1 for _ in takewhile(lambda at_ms: at_ms > from_ms, reversed(self.sends)))

    def counted_moves(self, quota: Quota) -> list[Move]:
        """Our changes of a quota, the newest last, without lifts that have ended: these left the value as it was."""
        return [move for move in self.moves.get(quota, ()) if move.step_id not in self._ended_lifts]

    def reversals_since(self, from_ms: int, quota: Quota, planned: Move) -> int:
        """The number of reversals of our changes of a quota after `from_ms`, including the planned one."""
        moves = [*self.counted_moves(quota), planned]
        return sum(
            later.at_ms > from_ms and later.is_up is not earlier.is_up for earlier, later in pairwise(moves)
        )

    def expired(self, now_ms: int) -> list[Step]:
        """Expired changes that are the newest of their quota; one that it covers is found after it is restored."""
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
                if not step.proposal.is_lift:
                    self.sends.append(entry.at_ms)
                self.live.setdefault(quota, []).append(step)
                self._moved(entry, step.proposal.before, step.proposal.after)
            case Event.RESTORING:
                if step.restoring is not None:  # a second attempt to restore it
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
                if step.proposal.is_lift and entry.event is Event.RESTORED:
                    self._ended_lifts.add(step.step_id)
            case _:
                pass

    def _moved(self, entry: LogEntry, before: float | None, after: float | None) -> None:
        self.moves.setdefault(entry.proposal.quota, []).append(
            Move(entry.at_ms, before, after, entry.step_id)
        )

    def _forget_move(self, quota: Quota) -> None:
        """Drop the newest move, which is that of the step in doubt: until then nothing else is sent for the quota."""
        if moves := self.moves.get(quota):
            moves.pop()

    def _remove(self, step: Step) -> None:
        steps = self.live.get(step.proposal.quota, [])
        self.live[step.proposal.quota] = [other for other in steps if other is not step]


class Journal:
    """The log and its state, kept consistent: the state has a row only after the row is durable in the log."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.state = LogState.of(ledger.entries())

    def write(self, entries: Sequence[LogEntry]) -> list[LogEntry]:
        """Append rows and return them."""
        if entries:
            self._ledger.append(entries)
        for entry in entries:
            self.state.add(entry)
        return list(entries)
