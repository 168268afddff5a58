"""Lift the quotas of a cluster or of some entities, and restore exactly the state before (KIP-13's tooling).

To lift a quota is to remove its key. Before that, `enforcement_log` gets a note from which the exact state, to the
byte, can be restored. `enable` needs only the log: a quota is lifted if its removal was sent, did not fail, and was not
restored. The order of rows is that of all enforcement: planned, sending, applied; restoring, restored. A crash leaves a
step at `sending` or `restoring`, and the next run reads back its outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from kquota_spark.enforce.changes import Event, Evidence, LogEntry, Mode, Proposal, Quota, StepId, name_of
from kquota_spark.enforce.ports import Change, Cluster, Held, Ledger, Outcome, Written
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity, Name

POLICY = "enforcement disable"
BATCH = 50
"""Maximum quotas per commit of the log: one commit takes as long as several writes to the cluster."""

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
    GONE = "not set any more"
    KEPT = "set again since it was lifted: stays"
    SUPERSEDED = "somebody else set it meanwhile: stays"
    FAILED = "failed"

    @property
    def is_bad(self) -> bool:
        """Whether the outcome is not the requested one."""
        return self in (Fate.SUPERSEDED, Fate.FAILED)


_FATES = {
    (True, Event.APPLIED): Fate.LIFTED,
    (False, Event.RESTORED): Fate.RESTORED,
    (False, Event.SUPERSEDED): Fate.SUPERSEDED,
}
"""The outcome by direction (True is lifting) and event; all other pairs are failures."""


class Line(NamedTuple):
    """One quota, its values before and after, and its outcome; None is no quota."""

    quota: Quota
    before: float | None
    after: float | None
    fate: Fate
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Lift:
    """A quota that is lifted, or may be: `last` is sending or restoring if it was not read back yet."""

    sent: LogEntry
    last: Event

    @property
    def quota(self) -> Quota:
        """The lifted quota."""
        return self.sent.proposal.quota

    @property
    def value(self) -> float | None:
        """Its value before."""
        return self.sent.proposal.before

    @property
    def is_in_doubt(self) -> bool:
        """Whether it has to be read back."""
        return self.last in (Event.SENDING, Event.RESTORING)


class FencedError(Exception):
    """Another enforcer has taken the lease: this one may not send any more."""


def lifts(log: Iterable[LogEntry]) -> list[Lift]:
    """The lifted quotas, in the order in which they were lifted."""
    found: dict[StepId, Lift] = {}
    for entry in log:
        if entry.proposal.policy != POLICY:
            continue
        if entry.event is Event.SENDING:
            found[entry.step_id] = Lift(entry, entry.event)
        elif entry.step_id in found:
            lift = found[entry.step_id]
            did_restoring_fail = entry.event is Event.FAILED and lift.last is Event.RESTORING
            if did_restoring_fail or entry.event in (Event.APPLIED, Event.RESTORING):
                last = Event.APPLIED if did_restoring_fail else entry.event
                found[entry.step_id] = Lift(lift.sent, last)
            else:
                del found[entry.step_id]
    return list(found.values())


def planned_lifting(in_force: Mapping[Quota, float], lifted: Iterable[Lift]) -> list[Line]:
    """The quotas to lift, by name; a quota that was lifted and set again is kept.

    Args:
        in_force: the selected quotas, as the cluster has them now.
        lifted: the result of `lifts`.
    """
    known = {lift.quota for lift in lifted if not lift.is_in_doubt}
    return [
        Line(quota, value, value, Fate.KEPT) if quota in known else Line(quota, value, None, Fate.LIFT)
        for quota, value in sorted(in_force.items(), key=lambda found: name_of(found[0]))
    ]


def planned_restoring(lifted: Iterable[Lift], now: Mapping[Quota, float | None]) -> list[Line]:
    """The quotas to restore, the last lifted first.

    Args:
        lifted: the selected ones.
        now: the present values of their quotas.
    """
    lines = []
    for lift in reversed(list(lifted)):
        value = now[lift.quota]
        fate = Fate.RESTORE if value is None else _found_set(lift, value)
        lines.append(Line(lift.quota, value, lift.value if value is None else value, fate))
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
        self._cluster, self._ledger = cluster, ledger
        self._fencing, self._actor = fencing, actor

    def settle(self, now_ms: int) -> None:
        """Read back the writes that a crash left in doubt, and log their outcomes."""
        self._read_back([lift for lift in lifts(self._ledger.entries()) if lift.is_in_doubt], {}, now_ms)

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
        lines: dict[Quota, Line] = {}
        sending: list[Lift] = []
        rows: list[LogEntry] = []
        for index, quota in enumerate(batch):
            there = held[quota]
            if there.value is None:
                lines[quota] = Line(quota, None, None, Fate.GONE)
            elif there.note is None:
                lines[quota] = Line(quota, there.value, there.value, Fate.FAILED, there.problem)
            else:
                proposal = Proposal(quota, there.value, None, POLICY, reason, None, _NO_EVIDENCE)
                step_id = first._replace(step=first.step + index)
                planned = LogEntry(
                    step_id, Event.PLANNED, now_ms, proposal, Mode.ENFORCE, self._actor,
                    author=self._actor, ticket=ticket,
                )  # fmt: skip
                sent = replace(planned, event=Event.SENDING, fencing=self._fencing, note=there.note)
                sending.append(Lift(sent, Event.SENDING))
                rows += [planned, sent]
        self._append(rows)
        written = {
            lift.quota: self._sent(Change.of(lift.quota, None), held[lift.quota])
            for lift in sending
        }
        lines |= self._read_back(sending, written, now_ms)
        return [lines[quota] for quota in batch]

    def restore(self, batch: Sequence[Lift], now_ms: int) -> list[Line]:
        """Restore lifted quotas, no entity twice in a batch; a quota that somebody else has set meanwhile stays."""
        held = self._cluster.read([lift.quota for lift in batch])
        restoring = [Lift(lift.sent, Event.RESTORING) for lift in batch]
        gone = [lift for lift in restoring if held[lift.quota].value is None]
        self._append([self._row(lift, Event.RESTORING, now_ms) for lift in gone])
        written = {
            lift.quota: self._sent(
                Change.of(lift.quota, lift.value, lift.sent.note or ""), Held(None, None)
            )
            for lift in gone
        }
        lines = self._read_back(restoring, written, now_ms)
        return [lines[lift.quota] for lift in batch]

    def _append(self, rows: Sequence[LogEntry]) -> None:
        if rows:
            self._ledger.append(rows)

    def _sent(self, change: Change, expect: Held) -> Written:
        try:
            written = self._cluster.write(change, expect, self._fencing)
        except UserError as error:
            return Written(Outcome.REFUSED, f"nothing was sent: {error}")
        if written.outcome is Outcome.FENCED:
            raise FencedError
        return written

    def _read_back(
        self, doubtful: Sequence[Lift], written: Mapping[Quota, Written], now_ms: int
    ) -> dict[Quota, Line]:
        """Read back writes and log their outcomes.

        A write with neither an answer nor a visible effect stays in doubt.
        """
        if not doubtful:
            return {}
        held = self._cluster.read([lift.quota for lift in doubtful])
        lines: dict[Quota, Line] = {}
        rows: list[LogEntry] = []
        for lift in doubtful:
            value = held[lift.quota].value
            answer = written.get(lift.quota)
            event, detail = _outcome(lift, value, answer)
            is_lifting = lift.last is Event.SENDING
            before = lift.value if is_lifting else None if event is not Event.SUPERSEDED else value
            fate = _FATES.get((is_lifting, event), Fate.FAILED)
            lines[lift.quota] = Line(lift.quota, before, value, fate, detail)
            if event is not Event.FAILED or answer is None or answer.outcome is not Outcome.UNKNOWN:
                rows.append(self._row(lift, event, now_ms, detail))
        self._append(rows)
        return lines

    def _row(self, lift: Lift, event: Event, now_ms: int, detail: str = "") -> LogEntry:
        return replace(
            lift.sent, event=event, at_ms=now_ms, actor=self._actor, fencing=self._fencing, note=None, detail=detail
        )  # fmt: skip


def _outcome(lift: Lift, value: float | None, written: Written | None) -> tuple[Event, str]:
    """The outcome of a write, from its answer and the value found afterwards; without an answer from the value only."""
    is_lifting = lift.last is Event.SENDING
    is_refused = written is not None and written.outcome in (Outcome.REFUSED, Outcome.CHANGED)
    said = (
        "it was sent, and is not to be seen" if written is None else written.detail or written.outcome.value
    )
    if is_refused and is_lifting:
        return Event.FAILED, said
    if value == (None if is_lifting else lift.value):
        return (Event.APPLIED if is_lifting else Event.RESTORED), ""
    if value == (lift.value if is_lifting else None):
        return Event.FAILED, said
    return Event.SUPERSEDED, "somebody else has set it"


def _found_set(lift: Lift, value: float) -> Fate:
    return Fate.RESTORED if value == lift.value else Fate.SUPERSEDED
