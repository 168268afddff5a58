"""Plan, approve, apply, expire, roll back: what each writes to the log and to the cluster, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kquota_spark.enforce.changes import OVERRIDE, Event, Mode
from kquota_spark.enforce.ports import Frozen
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.closed_loop.troubled_ports import TroubledLedger
from tests.support.enforcement.enforced_world import (
    ALICE,
    BOB,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    NOW_MS,
    World,
    events,
    evidence,
    proposal,
    situation,
)

FREEZE = Frozen(NOW_MS, "ann", "what is it doing?")
RESTORED = ["restoring", "restored"]


def test_the_same_batch_is_the_same_plan_and_has_no_second_effect() -> None:
    world = World()
    batch = [proposal(), proposal(quota=BOB)]
    first = world.enforcer().run(batch, situation(), NOW_MS)
    assert first.plan is not None
    assert events(list(first.entries)) == ["planned", "planned", "sending", "applied", "sending", "applied"]
    log, nodes = world.log(), dict(world.cluster.nodes)
    for again in (batch, batch[::-1]):
        second = world.enforcer().run(again, situation(), NOW_MS + DAY_MS)
        assert second.plan == first.plan
        assert second.entries == ()
    assert (world.log(), world.cluster.nodes) == (log, nodes)


def test_a_plan_id_is_short_and_only_the_batch_decides_it() -> None:
    plan_ids = {World().enforcer().plan([proposal()], situation(), ms).plan_id for ms in (NOW_MS, NOW_MS + 1)}
    assert plan_ids == {"p-1907205b"}
    later = replace(proposal(), evidence=evidence(NOW_MS + 1))
    assert World().enforcer().plan([later], situation(), NOW_MS).plan_id != "p-1907205b"


def test_a_plan_that_waits_is_not_written_again_in_every_round() -> None:
    world = World()
    world.mode = Mode.APPROVE
    plans = [
        world.enforcer().run(
            [proposal(now_ms=ms), proposal(9e6 + ms % 7, quota=BOB, now_ms=ms)], situation(ms), ms
        )
        for ms in range(NOW_MS, NOW_MS + HOUR_MS, MINUTE_MS)
    ]
    assert len({report.plan.plan_id for report in plans if report.plan}) == 1
    assert world.log() == [(1, "planned"), (2, "refused")]
    assert plans[-1].plan is not None
    refused = plans[-1].plan.entries[1]
    assert (refused.guard, refused.at_ms) == ("bounds", NOW_MS + HOUR_MS - MINUTE_MS), "as it is refused now"


def test_a_newer_plan_takes_the_place_of_one_that_waits() -> None:
    world = World()
    world.mode = Mode.APPROVE
    old = world.enforcer().plan([proposal(3e6)], situation(), NOW_MS)
    new = world.enforcer().plan([proposal(3.5e6)], situation(), NOW_MS)
    closed = world.ledger.entries()[1]
    assert (closed.step_id.plan_id, closed.event) == (old.plan_id, Event.SUPERSEDED)
    assert (closed.actor, closed.detail) == ("enforcer", f"replaced by plan {new.plan_id} of the same author")
    assert world.enforcer().approve(old.plan_id, "ann", NOW_MS) == []


def test_a_plan_that_somebody_else_replaces_names_them() -> None:
    world = World()
    world.mode = Mode.APPROVE
    old = world.enforcer("ann").plan([proposal(3e6)], situation(), NOW_MS)
    world.leases.holder = None
    new = world.enforcer("bill").plan([proposal(3.5e6)], situation(), NOW_MS)
    closed = world.ledger.entries()[1]
    assert (closed.step_id.plan_id, closed.actor) == (old.plan_id, "bill")
    assert (closed.author, closed.detail) == ("ann", f"replaced by plan {new.plan_id} of bill")


@pytest.mark.parametrize(
    ("lasts_ms", "waited_ms", "why"),
    [
        (None, DAY_MS + 1, "nobody approved it within 24 h"),
        (HOUR_MS, HOUR_MS, "nobody approved it before its time was over"),
    ],
)
def test_a_change_that_nobody_approved_in_time_is_closed_once(
    lasts_ms: int | None, waited_ms: int, why: str
) -> None:
    world = World()
    world.mode = Mode.APPROVE
    crashed = replace(proposal(lasts_ms=lasts_ms), policy=OVERRIDE)
    plan = world.enforcer("ann").plan([crashed], situation(), NOW_MS)
    assert world.enforce(now_ms=NOW_MS + waited_ms - 1) == []
    (row,) = world.enforce(now_ms=NOW_MS + waited_ms)
    assert (row.event, row.guard, row.detail) == (Event.REFUSED, "stale", why)
    assert world.enforce(now_ms=NOW_MS + waited_ms + 1) == []
    assert world.enforcer().approve(plan.plan_id, "bill", NOW_MS + waited_ms) == []


def test_the_mode_of_now_decides_whether_a_plan_can_be_approved() -> None:
    world = World()
    world.mode = Mode.OBSERVE
    plan = world.enforcer().plan([proposal()], situation(), NOW_MS)
    assert world.enforcer().approve(plan.plan_id, "ann", NOW_MS) == []
    world.mode = Mode.APPROVE
    (approved,) = world.enforcer().approve(plan.plan_id, "ann", NOW_MS, "CHG-1")
    assert (approved.author, approved.approver, approved.ticket) == ("enforcer", "ann", "CHG-1")
    rows = world.enforcer().apply(plan.plan_id, situation(), NOW_MS)
    assert [(row.event, row.approver, row.ticket) for row in rows] == [
        (Event.SENDING, "ann", "CHG-1"),
        (Event.APPLIED, "ann", "CHG-1"),
    ]


def test_nobody_approves_their_own_plan_where_a_second_person_is_asked_for() -> None:
    world = World()
    world.mode, world.needs_second_person = Mode.APPROVE, True
    plan = world.enforcer("ann").plan([proposal()], situation(), NOW_MS)
    said = (
        f"^{plan.plan_id} is not approved: ann planned it, and enforcement.approval asks for a second person$"
    )
    with pytest.raises(UserError, match=said):
        world.enforcer().approve(plan.plan_id, "ann", NOW_MS)
    assert events(world.enforcer().approve(plan.plan_id, "bill", NOW_MS)) == ["approved"]


def test_nothing_is_sent_before_somebody_approves_it() -> None:
    world = World()
    world.mode = Mode.APPROVE
    plan = world.enforcer().plan([proposal()], situation(), NOW_MS)
    assert world.enforcer().apply(plan.plan_id, situation(), NOW_MS) == []
    (approved,) = world.enforcer().approve(plan.plan_id, "ann", NOW_MS + 1)
    assert (approved.event, approved.actor) == (Event.APPROVED, "ann")
    assert world.enforcer().approve(plan.plan_id, "bill", NOW_MS + 2) == []
    # The loop sends it in its next round, and asks nobody for a change that waits to be sent.
    later = replace(proposal(2e6, 4e6), evidence=evidence(NOW_MS + 3))
    assert events(world.enforce(later, now_ms=NOW_MS + 3)) == ["refused by hold", "sending", "applied"]
    assert world.value() == 3e6


def test_a_plan_that_nobody_knows_is_an_error() -> None:
    enforcer = World().enforcer()
    with pytest.raises(UserError, match=r"^there is no plan p-0"):
        enforcer.approve("p-0", "ann", NOW_MS)
    with pytest.raises(UserError, match=r"^there is no plan p-0"):
        enforcer.apply("p-0", situation(), NOW_MS)
    with pytest.raises(UserError, match=r"^there is no plan p-0"):
        enforcer.roll_back("p-0", NOW_MS, "ann")


def test_the_row_before_the_write_holds_the_way_back_and_the_fencing_number() -> None:
    world = World()
    sending = world.enforce(proposal())[1]
    assert (sending.event, sending.fencing) == (Event.SENDING, world.leases.fencing)
    assert sending.note == '{"has_node": true, "text": "4000000.0"}'


def test_what_has_run_out_is_put_back_after_a_day_away() -> None:
    world = World()
    nodes = {path: dict(node) for path, node in world.cluster.nodes.items()}
    carol = proposal(2e6, None, quota=ALICE._replace(entity=replace(ALICE.entity, user="carol")), lasts_ms=1)
    world.enforce(proposal(lasts_ms=HOUR_MS), carol)
    assert world.cluster.nodes != nodes
    assert world.enforcer().expire(NOW_MS) == []
    rows = world.enforcer().expire(NOW_MS + DAY_MS)
    assert events(rows) == RESTORED * 2
    assert world.cluster.nodes == nodes, "and carol has no node, as before"
    assert world.enforcer().expire(NOW_MS + 2 * DAY_MS) == []


def test_changes_that_lie_on_each_other_are_put_back_from_the_top() -> None:
    world = World()
    world.enforce(proposal(3e6, lasts_ms=2 * HOUR_MS))
    at_ms = NOW_MS + HOUR_MS
    world.enforce(proposal(2e6, 3e6, now_ms=at_ms, lasts_ms=2 * HOUR_MS), now_ms=at_ms)
    at_ms += HOUR_MS  # the first is over, and lies below the second
    assert world.enforcer().expire(at_ms) == []
    assert world.value() == 2e6
    at_ms += HOUR_MS
    assert events(world.enforcer().expire(at_ms)) == RESTORED * 2
    assert world.value() == 4e6


@pytest.mark.parametrize("operators", [5e6, 1e6, None])
def test_an_operator_who_set_it_since_wins_over_expiry_and_rollback(operators: float | None) -> None:
    for is_rolled_back in (False, True):
        world = World()
        first = world.enforcer().run([proposal(3e6, lasts_ms=2 * HOUR_MS)], situation(), NOW_MS).plan
        at_ms = NOW_MS + HOUR_MS
        world.enforce(proposal(2e6, 3e6, now_ms=at_ms, lasts_ms=HOUR_MS), now_ms=at_ms)
        world.set(ALICE, operators)
        assert first is not None
        at_ms += HOUR_MS
        if is_rolled_back:
            with pytest.raises(UserError, match="changed producer_byte_rate of users/alice later"):
                world.enforcer().roll_back(first.plan_id, at_ms, "ann")
        assert events(world.enforcer().expire(at_ms)) == ["superseded"] * 2
        assert world.value() == operators


def test_an_operator_who_put_it_back_wins_over_the_changes_below() -> None:
    world = World()
    world.enforce(proposal(3e6, lasts_ms=HOUR_MS))
    at_ms = NOW_MS + HOUR_MS - 1
    world.settings = replace(world.settings, hold_time=type(world.settings.hold_time)(0))
    world.enforce(proposal(2e6, 3e6, now_ms=at_ms, lasts_ms=HOUR_MS), now_ms=at_ms)
    world.set(ALICE, 3e6)
    assert events(world.enforcer().expire(NOW_MS + DAY_MS)) == ["restored", "superseded"]
    assert world.value() == 3e6


def test_a_change_upon_an_operators_gives_up_what_was_ours_below() -> None:
    world = World()
    world.enforce(proposal(3e6, lasts_ms=2 * HOUR_MS))
    world.set(ALICE, 6e6)
    at_ms = NOW_MS + HOUR_MS
    found = world.enforce(proposal(5e6, 6e6, now_ms=at_ms, lasts_ms=2 * HOUR_MS), now_ms=at_ms)
    assert events(found) == ["planned", "superseded", "sending", "applied"]
    assert events(world.enforcer().expire(NOW_MS + DAY_MS)) == RESTORED
    assert world.value() == 6e6


def test_a_roll_back_restores_the_whole_plan_and_works_while_frozen() -> None:
    world = World()
    plan = world.enforcer().run([proposal(), proposal(quota=BOB)], situation(), NOW_MS).plan
    assert plan is not None
    world.switch.freeze(FREEZE)
    rows = world.enforcer().roll_back(plan.plan_id, NOW_MS + 1, "bill")
    assert events(rows) == RESTORED * 2
    assert {row.actor for row in rows} == {"bill"}
    assert (world.value(ALICE), world.value(BOB)) == (4e6, 4e6)
    assert world.enforcer().roll_back(plan.plan_id, NOW_MS + 2, "bill") == []


def test_a_roll_back_waits_until_the_enforcer_at_work_lets_go_which_a_freeze_makes_it_do() -> None:
    world = World()
    plan = world.enforcer().run([proposal()], situation(), NOW_MS).plan
    assert plan is not None
    with pytest.raises(UserError, match="an enforcer is at work; freeze it"):
        world.enforcer("by hand").roll_back(plan.plan_id, NOW_MS, "ann")
    world.switch.freeze(FREEZE)
    assert world.enforcer().run([], situation(), NOW_MS).frozen == FREEZE
    assert events(world.enforcer("by hand").roll_back(plan.plan_id, NOW_MS, "ann")) == RESTORED


def test_while_frozen_nothing_is_written_and_expiry_waits() -> None:
    world = World()
    world.enforce(proposal(lasts_ms=HOUR_MS))
    log, at_ms = world.log(), NOW_MS + HOUR_MS
    world.switch.freeze(FREEZE)
    report = world.enforcer().run([proposal(2e6, quota=BOB, now_ms=at_ms)], situation(at_ms), at_ms)
    assert (report.frozen, report.plan, [step.step for step in report.waiting]) == (FREEZE, None, [1])
    assert world.enforcer().expire(at_ms) == []
    assert (world.log(), world.value(ALICE), world.value(BOB)) == (log, 3e6, 4e6)
    world.switch.unfreeze()
    assert events(world.enforce(now_ms=at_ms)) == RESTORED


def test_a_freeze_stops_a_batch_that_is_under_way() -> None:
    world = World()

    def freeze_after_the_first(call: str) -> None:
        if call == "append applied":
            world.switch.freeze(FREEZE)

    world.log_port = TroubledLedger(world.ledger, freeze_after_the_first)
    rows = world.enforce(proposal(), proposal(quota=BOB))
    assert events(rows) == ["planned", "planned", "sending", "applied", "refused by frozen"]
    assert (world.value(ALICE), world.value(BOB)) == (3e6, 4e6)


def test_an_enforcer_without_the_lease_does_nothing() -> None:
    world = World()
    world.enforce(proposal(lasts_ms=HOUR_MS))
    log, at_ms, idle = world.log(), NOW_MS + HOUR_MS, world.enforcer("second")
    report = idle.run([proposal(quota=BOB, now_ms=at_ms)], situation(at_ms), at_ms)
    assert (report.is_leader, report.plan, report.entries) == (False, None, ())
    assert (idle.resume(at_ms), idle.expire(at_ms), world.log()) == ([], [], log)


def test_other_keys_of_the_entity_stay() -> None:
    world = World()
    consumer = ALICE._replace(key=QuotaKey.CONSUMER_BYTE_RATE)
    world.set(consumer, 7e6)
    world.cluster.nodes["users/alice"]["SCRAM-SHA-256"] = "salt=c2FsdA=="
    world.enforce(proposal(lasts_ms=HOUR_MS))
    world.enforcer().expire(NOW_MS + HOUR_MS)
    assert world.cluster.nodes["users/alice"] == {
        "producer_byte_rate": "4000000.0",
        "consumer_byte_rate": "7000000.0",
        "SCRAM-SHA-256": "salt=c2FsdA==",
    }
