"""What the log amounts to, whoever wrote its rows and in whatever order two processes came to it."""

from __future__ import annotations

from dataclasses import replace

from kquota_spark.enforce.changes import Event, LogEntry, Mode, StepId
from kquota_spark.enforce.log_state import LogState
from kquota_spark.enforce.ports import Change, Held
from tests.support.enforcement.enforced_world import (
    ALICE,
    HOUR_MS,
    NOW_MS,
    World,
    events,
    proposal,
    situation,
)

PLANNED = LogEntry(StepId("p-1", 1), Event.PLANNED, NOW_MS, proposal(), Mode.ENFORCE, "enforcer")


def row(event: Event, fencing: int | None = 1) -> LogEntry:
    return replace(PLANNED, event=event, fencing=fencing, note="back")


def state(*events: LogEntry) -> LogState:
    return LogState.of([PLANNED, *events])


def test_what_another_process_says_of_a_step_that_was_sent_meanwhile_does_not_count() -> None:
    sent = (row(Event.SENDING), row(Event.APPLIED))
    for late in (Event.APPROVED, Event.REFUSED, Event.SUPERSEDED):
        found = state(*sent, row(late, fencing=None))
        step = found.steps[PLANNED.step_id]
        assert (step.last.event, step.is_open, found.live[ALICE]) == (Event.APPLIED, False, [step])
        in_doubt = state(sent[0], row(late, fencing=None))
        assert [step.step_id for step in in_doubt.in_doubt()] == [PLANNED.step_id]


def test_a_step_that_was_planned_anew_and_sent_all_the_same_holds() -> None:
    found = state(row(Event.SUPERSEDED, fencing=None), row(Event.SENDING), row(Event.APPLIED))
    assert [step.step_id for step in found.live[ALICE]] == [PLANNED.step_id]


def test_only_a_change_that_was_made_counts_as_a_move() -> None:
    assert len(state(row(Event.SENDING), row(Event.APPLIED)).moves[ALICE]) == 1
    assert state(row(Event.SENDING), row(Event.FAILED)).moves[ALICE] == []
    back = (row(Event.SENDING), row(Event.APPLIED), row(Event.RESTORING))
    assert [move.is_up for move in state(*back, row(Event.RESTORED)).moves[ALICE]] == [False, True]
    failed = state(*back, row(Event.FAILED))
    assert ([move.is_up for move in failed.moves[ALICE]], len(failed.live[ALICE])) == ([False], 1)
    again = state(*back, replace(row(Event.RESTORING), at_ms=NOW_MS + 5), row(Event.RESTORED))
    assert [move.at_ms for move in again.moves[ALICE]] == [NOW_MS, NOW_MS + 5], (
        "the hold time runs from the last try"
    )
    assert again.live[ALICE] == []


def test_two_changes_of_a_plan_below_an_edit_of_somebody_else_are_given_up_once() -> None:
    world = World()
    note = world.cluster.read([ALICE])[ALICE].note
    for number, (before, after) in enumerate(((4e6, 3e6), (3e6, 2e6)), start=1):
        planned = replace(PLANNED, step_id=StepId("p-1", number), proposal=proposal(after, before))
        sent = replace(planned, event=Event.SENDING, fencing=1, note=note)
        world.ledger.append([planned, sent, replace(sent, event=Event.APPLIED)])
    world.set(ALICE, 7e6)
    rows = world.enforcer().roll_back("p-1", NOW_MS, "ann")
    assert [(each.step_id.step, each.event) for each in rows] == [
        (2, Event.SUPERSEDED),
        (1, Event.SUPERSEDED),
    ]
    assert world.value() == 7e6


def test_what_a_person_lifted_lies_on_top_until_it_is_put_back() -> None:
    # `kquota lift` writes into the same log, and removes what a penalty had set.
    world = World()
    world.enforce(proposal(3e6, lasts_ms=HOUR_MS))
    lift = replace(
        PLANNED, step_id=StepId("off-1", 1), proposal=proposal(None, 3e6, policy="enforcement disable")
    )
    note = world.cluster.read([ALICE])[ALICE].note
    assert note is not None
    world.ledger.append([lift])
    for event in (Event.SENDING, Event.APPLIED):
        world.ledger.append([replace(lift, event=event, fencing=1, note=note)])
    world.set(ALICE, None)
    at_ms = NOW_MS + HOUR_MS
    assert world.enforcer().expire(at_ms) == []
    assert world.value() is None
    world.cluster.write(Change.of(ALICE, 3e6, note), Held(None, None), 1)
    for event in (Event.RESTORING, Event.RESTORED):
        world.ledger.append([replace(lift, event=event, fencing=1)])
    assert events(world.enforcer().expire(at_ms)) == ["restoring", "restored"]
    assert world.value() == 4e6


def test_two_batches_with_the_same_short_id_get_different_ones() -> None:
    world = World()
    first = world.enforcer().plan([proposal()], situation(), NOW_MS)
    # As if another batch had been given this id: the next one takes a digit more.
    taken = replace(PLANNED, step_id=StepId(first.plan_id, 1), proposal=proposal(2.5e6))
    other = World()
    other.ledger.append([taken])
    second = other.enforcer().plan([proposal()], situation(), NOW_MS)
    assert second.plan_id.startswith(first.plan_id)
    assert len(second.plan_id) == len(first.plan_id) + 1
