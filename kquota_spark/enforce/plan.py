"""A plan: what a batch of proposals wants, under an id that the batch alone decides."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kquota_spark.enforce.changes import OVERRIDE, Event, LogEntry, Mode, Proposal, name_of
from kquota_spark.enforce.log_state import LogState

_FEWEST_DIGITS = 8
Batch = tuple[tuple[object, ...], ...]
"""What tells a batch from others: entity, key, before, after, policy, end of the evidence, of each proposal."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Its first rows: planned and refused."""

    plan_id: str
    entries: tuple[LogEntry, ...]


def batch_of(proposals: Sequence[Proposal]) -> Batch:
    """What tells these proposals from others, whatever their order."""
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
    """The id of a batch: the same for the same batch, and another one for every other that the log knows."""
    batch = batch_of(proposals)
    digest = hashlib.sha256(json.dumps(batch).encode()).hexdigest()
    for digits in range(_FEWEST_DIGITS, len(digest)):
        plan_id = f"p-{digest[:digits]}"
        known = state.plans.get(plan_id)
        if known is None or batch_of([step.proposal for step in known]) == batch:
            return plan_id
    raise AssertionError("two batches with one digest")


def standing_plan(state: LogState, entries: Sequence[LogEntry], from_ms: int) -> Plan | None:
    """A plan, made after a moment, that says the same of the same changes and waits or was refused.

    Rounds follow each other by seconds. One that finds again what the last one found writes nothing; but a plan
    that is sent without approval is sent on the evidence of its own round. What is returned refuses with the
    sentences of now.
    """
    found = _said(entries)
    if any(entry.event is Event.PLANNED and entry.mode is Mode.ENFORCE for entry in entries):
        return None
    for plan_id, steps in reversed(state.plans.items()):
        if steps[0].planned.at_ms <= from_ms:
            return None
        is_standing = all(step.last is step.planned or step.is_open for step in steps)
        if is_standing and _said([step.planned for step in steps]) == found:
            pairs = zip(steps, entries, strict=True)
            return Plan(plan_id, tuple(_shown(step.planned, entry) for step, entry in pairs))
    return None


def _by_person(wanted: Proposal) -> tuple[object, ...]:
    """What else a person says of a change; the end and the reason of a policy's change move with each round."""
    return (wanted.expires_at_ms, wanted.reason) if wanted.policy == OVERRIDE else ()


def _shown(first: LogEntry, now: LogEntry) -> LogEntry:
    return first if first.guard is None else replace(now, step_id=first.step_id)


def _said(entries: Sequence[LogEntry]) -> list[object]:
    """What a person would read out of them; the value that a guard refused is no news when it moves."""
    return [
        (wanted.quota, wanted.policy, entry.mode, entry.event, entry.guard)
        + ((wanted.before, wanted.after, *_by_person(wanted)) if entry.guard is None else ())
        for entry in entries
        for wanted in (entry.proposal,)
    ]
