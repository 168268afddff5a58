"""A plan: a batch of proposals, with an id that depends only on the batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kquota_spark.enforce.changes import OVERRIDE, Event, LogEntry, Mode, Proposal, name_of
from kquota_spark.enforce.log_state import LogState

_FEWEST_DIGITS = 8
Batch = tuple[tuple[object, ...], ...]
"""The identity of a batch: entity, key, before, after, policy and end of the evidence of each proposal."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The id of a plan and its first rows: planned and refused."""

    plan_id: str
    entries: tuple[LogEntry, ...]


def batch_of(proposals: Sequence[Proposal]) -> Batch:
    """The identity of these proposals, in any order."""
    found = (
        (
            *name_of(wanted.quota),
            wanted.before,
            wanted.after,
            wanted.policy,
            wanted.evidence.to_ms,
            *_by_person(wanted),
        )
        for wanted in proposals
    )
    return tuple(sorted(found, key=repr))


def plan_id_of(proposals: Sequence[Proposal], state: LogState) -> str:
    """The id of a batch: the same for the same batch, and different from every other batch in the log."""
    batch = batch_of(proposals)
    digest = hashlib.sha256(json.dumps(batch).encode()).hexdigest()
    for digits in range(_FEWEST_DIGITS, len(digest)):
        plan_id = f"p-{digest[:digits]}"
        known = state.plans.get(plan_id)
        if known is None or batch_of([step.proposal for step in known]) == batch:
            return plan_id
    raise AssertionError("two batches with one digest")


def open_plan(state: LogState, entries: Sequence[LogEntry], from_ms: int) -> Plan | None:
    """An earlier plan for the same changes that still waits or was refused; None if there is none.

    Rounds follow each other within seconds. A round with the same result as the last one writes nothing. But a plan
    that needs no approval is sent with the evidence of its own round, so it is never replaced by an earlier plan. The
    returned plan refuses with the present sentences.

    Args:
        state: the state of the log.
        entries: first rows of the new plan.
        from_ms: epoch ms; only plans made after this count.
    """
    found = _content(entries)
    if any(entry.event is Event.PLANNED and entry.mode is Mode.ENFORCE for entry in entries):
        return None
    for plan_id, steps in reversed(state.plans.items()):
        if steps[0].planned.at_ms <= from_ms:
            return None
        is_open = all(step.last is step.planned or step.is_open for step in steps)
        if is_open and _content([step.planned for step in steps]) == found:
            pairs = zip(steps, entries, strict=True)
            return Plan(plan_id, tuple(_shown(step.planned, entry) for step, entry in pairs))
    return None


def _by_person(wanted: Proposal) -> tuple[object, ...]:
    """End and reason of a person's change; for a policy nothing, because they differ in each round."""
    return (wanted.expires_at_ms, wanted.reason) if wanted.policy == OVERRIDE else ()


def _shown(first: LogEntry, now: LogEntry) -> LogEntry:
    return first if first.guard is None else replace(now, step_id=first.step_id)


def _content(entries: Sequence[LogEntry]) -> list[object]:
    """The content of rows that matters to a person; a refused value may move without being news."""
    return [
        (wanted.quota, wanted.policy, entry.mode, entry.event, entry.guard)
        + ((wanted.before, wanted.after, *_by_person(wanted)) if entry.guard is None else ())
        for entry in entries
        for wanted in (entry.proposal,)
    ]
