"""Each guard keeps one thing from happening, when a change is planned or right before it is sent.

`python -m tests.without_guards` takes one guard away at a time and shows which of these tests then fails.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from kquota_spark.enforce.changes import OVERRIDE, Mode, Proposal, Quota
from kquota_spark.enforce.guard_settings import Exempt
from kquota_spark.enforce.guards import Situation
from kquota_spark.enforce.in_memory import MemoryCluster
from kquota_spark.enforce.ports import Held
from kquota_spark.model.quotas.rules import END_MS
from tests.support.enforcement.enforced_world import (
    ALICE,
    BOB,
    DAY_MS,
    HOUR_MS,
    NOW_MS,
    SETTINGS,
    World,
    events,
    evidence,
    proposal,
    situation,
)

SENT = ["planned", "sending", "applied"]


def override(lasts_ms: int = HOUR_MS) -> Proposal:
    """A person's own change."""
    return proposal(lasts_ms=lasts_ms, policy=OVERRIDE)


def test_a_change_that_no_guard_objects_to_is_made() -> None:
    world = World()
    assert events(world.enforce(proposal(3e6))) == SENT
    assert world.value() == 3e6


def test_mode_a_policy_that_is_off_plans_nothing() -> None:
    world = World()
    world.mode = Mode.OFF
    assert events(world.enforce(proposal())) == ["refused by mode"]


def test_mode_a_policy_that_only_observes_plans_and_sends_nothing() -> None:
    world = World()
    world.mode = Mode.OBSERVE
    assert events(world.enforce(proposal())) == ["planned"]
    assert world.value() == 4e6


def test_mode_what_was_approved_is_not_sent_after_the_mode_was_lowered() -> None:
    world = World()
    world.mode = Mode.APPROVE
    plan = world.enforcer().plan([proposal()], situation(), NOW_MS)
    world.enforcer().approve(plan.plan_id, "ann", NOW_MS)
    world.mode = Mode.OBSERVE
    assert events(world.enforcer().apply(plan.plan_id, situation(), NOW_MS)) == ["refused by mode"]
    assert world.value() == 4e6


@pytest.mark.parametrize(
    ("decided_ms", "rules_ms"), [(None, 0), (0, None), (-120_001, 0), (0, -120_001)]
)  # ms from now; the oldest that is fresh is 2 min
def test_stale_decisions_or_rules_change_nothing(decided_ms: int | None, rules_ms: int | None) -> None:
    world = World()
    decided, rules = (None if ms is None else NOW_MS + ms for ms in (decided_ms, rules_ms))
    known = Situation(decided, rules, is_view_whole=True)
    assert events(world.enforce(proposal(), known=known)) == ["refused by stale"]
    fresh = Situation(NOW_MS - 120_000, NOW_MS - 120_000, True)
    later = replace(proposal(), evidence=evidence(NOW_MS + 1))
    assert events(world.enforce(later, known=fresh)) == SENT


@pytest.mark.parametrize(
    ("decided_ms", "rules_ms", "reason"),
    [
        (5_001, 0, "decisions are known through 2099-01-01 00:00:05 UTC, ahead of this clock"),
        (0, 5_001, "rules are known through 2099-01-01 00:00:05 UTC, ahead of this clock"),
    ],
)  # ms from now; clocks of two hosts differ by 5 s at most
def test_stale_what_is_known_through_the_future_is_not_fresh(
    decided_ms: int, rules_ms: int, reason: str
) -> None:
    now_ms = 4_070_908_800_000
    known = Situation(now_ms + decided_ms, now_ms + rules_ms, is_view_whole=True)
    (row,) = World().enforce(proposal(), known=known, now_ms=now_ms)
    assert (row.guard, row.detail) == ("stale", reason)


def test_stale_hosts_may_differ_by_5_s_and_a_quota_file_knows_all_times() -> None:
    for rules_ms in (NOW_MS + 5_000, END_MS):
        known = Situation(NOW_MS + 5_000, rules_ms, is_view_whole=True)
        assert events(World().enforce(proposal(), known=known)) == SENT


def test_stale_a_plan_that_was_made_while_the_clock_was_ahead_is_not_sent() -> None:
    for ahead_ms, expected in ((5_000, ["sending", "applied"]), (5_001, ["refused by stale"])):
        world = World()
        world.mode = Mode.APPROVE
        planned_ms = NOW_MS + ahead_ms
        plan = world.enforcer().plan([proposal()], situation(planned_ms), planned_ms)
        world.enforcer().approve(plan.plan_id, "ann", NOW_MS)
        assert events(world.enforcer().apply(plan.plan_id, situation(), NOW_MS)) == expected


def test_stale_an_approved_plan_is_sent_within_a_day() -> None:
    for age_ms, expected in ((DAY_MS, ["sending", "applied"]), (DAY_MS + 1, ["refused by stale"])):
        world = World()
        world.mode = Mode.APPROVE
        plan = world.enforcer().plan([proposal()], situation(), NOW_MS)
        world.enforcer().approve(plan.plan_id, "ann", NOW_MS)
        found = world.enforcer().apply(plan.plan_id, situation(NOW_MS + age_ms), NOW_MS + age_ms)
        assert events(found) == expected


def test_stale_a_change_whose_time_is_over_is_not_made() -> None:
    assert events(World().enforce(proposal(lasts_ms=0))) == ["refused by stale"]


def test_partial_view_changes_nothing() -> None:
    world = World()
    partial = Situation(NOW_MS, NOW_MS, False, ("nothing was heard of broker 2",))
    (row,) = world.enforce(proposal(), known=partial)
    assert (row.guard, row.detail) == ("partial", "nothing was heard of broker 2")


@pytest.mark.parametrize(("certain", "expected"), [(57, SENT), (56, ["refused by uncertain"])])
def test_uncertain_decisions_change_nothing(certain: int, expected: list[str]) -> None:
    # 57 / 60 = 95 %
    wanted = replace(proposal(), evidence=evidence(certain=certain))
    assert events(World().enforce(wanted)) == expected


def test_uncertain_a_change_without_decisions_is_not_made() -> None:
    wanted = replace(proposal(), evidence=replace(evidence(), seconds=0, certain_seconds=0))
    assert events(World().enforce(wanted)) == ["refused by uncertain"]


@pytest.mark.parametrize("exempt", [Exempt(users=("alice",)), Exempt(patterns=("al.*",))])
def test_exempt_names_are_not_touched(exempt: Exempt) -> None:
    world = World(exempt=exempt)
    rows = world.enforce(proposal(), proposal(quota=BOB))
    assert events(rows) == ["refused by exempt", *SENT]
    assert (world.value(ALICE), world.value(BOB)) == (4e6, 3e6)


class SomebodyElses(MemoryCluster):
    """A cluster where another tool manages the quotas."""

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        return {quota: replace(held, owner="strimzi") for quota, held in super().read(quotas).items()}


def test_owner_what_another_tool_manages_is_not_touched() -> None:
    world = World()
    world.target = SomebodyElses(world.leases, world.cluster.nodes)
    (row,) = world.enforce(proposal())
    assert (row.guard, row.detail) == ("owner", "managed by strimzi")


def test_owner_what_the_policy_file_gives_to_a_tool_is_not_touched() -> None:
    world = World(replace(SETTINGS, owners={"terraform": ("clients/.*",), "strimzi": ("users/al.*",)}))
    plan = world.enforcer().plan([proposal(), proposal(quota=BOB)], situation(), NOW_MS)
    assert [(row.guard, row.detail) for row in plan.entries] == [("owner", "managed by strimzi"), (None, "")]


@pytest.mark.parametrize(("edited_ms", "expected"), [(-10_000, SENT), (-9_999, ["refused by owner"])])
def test_owner_what_was_edited_after_the_evidence_is_not_touched(edited_ms: int, expected: list[str]) -> None:
    # The evidence ends ten seconds ago. The edit may have set the very value that was there before.
    known = situation(edited_at_ms={ALICE: NOW_MS + edited_ms})
    assert events(World().enforce(proposal(), known=known)) == expected


def test_owner_an_own_change_of_5_s_ago_is_no_edit_by_somebody_else() -> None:
    world = World()
    world.enforce(proposal(3e6))
    later_ms = NOW_MS + 5_000
    own = situation(later_ms, edited_at_ms={ALICE: NOW_MS + 1_000})
    (row,) = world.enforce(proposal(2e6, 3e6, now_ms=later_ms), now_ms=later_ms, known=own)
    assert (row.guard, row.detail) == (
        "hold",
        "enforcement itself changed it 5.00 s ago, and hold_time is 1 h",
    )


@pytest.mark.parametrize(("after_ms", "value"), [(120_001, 3e6), (-5_001, 3e6), (1_000, 3.5e6)])
def test_owner_an_edit_at_another_time_or_to_another_value_is_somebody_elses(
    after_ms: int, value: float
) -> None:
    world = World()
    world.enforce(proposal(3e6))
    world.set(ALICE, value)
    later_ms = NOW_MS + 2 * HOUR_MS
    wanted = replace(proposal(2e6, value), evidence=evidence(NOW_MS - 10_000))
    known = situation(later_ms, edited_at_ms={ALICE: NOW_MS + after_ms})
    assert events(world.enforce(wanted, now_ms=later_ms, known=known)) == ["refused by owner"]


def test_guards_print_rates_as_people_write_them() -> None:
    world = World()
    world.set(ALICE, 1_048_576.0)
    (row,) = world.enforce(proposal(9e6, 1_048_576.0))
    assert (row.guard, row.detail) == ("bounds", "9.0 MB/s is not between 1.0 MB/s and 8.0 MB/s")
    (row,) = world.enforce(proposal(3e6, 1_048_576.0))
    assert (row.guard, row.detail) == ("step", "from 1.0 MB/s to 3.0 MB/s is more than 50 %")
    (row,) = world.enforce(proposal(1e6, 4e6))
    said = "it is 1.0 MB/s in the cluster, and was 4.0 MB/s when this was decided"
    assert (row.guard, row.detail) == ("changed", said)


def test_guards_tell_rates_apart_that_round_to_the_same() -> None:
    world = World()
    (row,) = world.enforce(proposal(3e6, 4_000_001.0))
    said = "it is 4,000,000 B/s in the cluster, and was 4,000,001 B/s when this was decided"
    assert (row.guard, row.detail) == ("changed", said)


def test_mode_what_its_author_approved_is_not_sent_where_a_second_person_is_asked_for() -> None:
    world = World()
    world.mode = Mode.APPROVE
    plan = world.enforcer().plan([proposal()], situation(), NOW_MS)
    world.enforcer().approve(plan.plan_id, "enforcer", NOW_MS)
    world.needs_second_person = True
    (row,) = world.enforcer().apply(plan.plan_id, situation(), NOW_MS)
    said = "enforcer planned and approved it: a second person has to approve it"
    assert (row.guard, row.detail, world.value()) == ("mode", said, 4e6)


def test_changed_another_value_than_the_decision_was_based_on_stays() -> None:
    world = World()
    world.set(ALICE, 5e6)
    assert events(world.enforce(proposal(3e6, 4e6))) == ["refused by changed"]
    assert world.value() == 5e6


def test_changed_between_plan_and_apply_an_operator_wins() -> None:
    world = World()
    plan = world.enforcer().plan([proposal(3e6, 4e6)], situation(), NOW_MS)
    world.set(ALICE, 5e6)
    assert events(world.enforcer().apply(plan.plan_id, situation(), NOW_MS)) == ["refused by changed"]
    assert world.value() == 5e6


def test_changed_nothing_is_written_where_it_is_so_already() -> None:
    assert events(World().enforce(proposal(4e6, 4e6))) == ["refused by changed"]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (
            Situation(NOW_MS - 180_000, NOW_MS, True),
            "decisions are 180 s old, more than 2 min (guards.max_age in the policy file)",
        ),
        (Situation(NOW_MS, None, True), "no rules are known"),
        (
            Situation(NOW_MS + DAY_MS, NOW_MS, True),
            "decisions are known through 2023-11-15 22:13:20 UTC, ahead of this clock",
        ),
    ],
)
def test_stale_a_person_is_told_to_edit_only_what_would_let_the_change_pass(
    known: Situation, said: str
) -> None:
    (row,) = World().enforce(override(), known=known)
    assert (row.guard, row.detail) == ("stale", said)


def test_stale_an_approved_change_of_a_person_waits_as_long_as_approvals_hold() -> None:
    world = World()
    plan = world.enforcer().plan([override(lasts_ms=3 * DAY_MS)], situation(), NOW_MS)
    world.enforcer().approve(plan.plan_id, "ann", NOW_MS)
    later_ms = NOW_MS + 2 * DAY_MS
    (row,) = world.enforcer().apply(plan.plan_id, situation(later_ms), later_ms)
    said = "it was planned 48.0 h ago, more than 24 h (guards.approve_within in the policy file)"
    assert (row.guard, row.detail) == ("stale", said)


def test_stale_no_key_of_the_policy_brings_back_a_time_that_is_over() -> None:
    (row,) = World().enforce(override(lasts_ms=-1))
    assert (row.guard, row.detail) == ("stale", "its time is over already")


def test_mode_a_person_is_told_which_key_asks_for_what() -> None:
    world = World()
    world.mode = Mode.OFF
    (row,) = world.enforce(override())
    assert (row.guard, row.detail) == ("mode", "the policy is off (mode in the policy file)")
    world = World()
    world.mode = Mode.APPROVE
    plan = world.enforcer().plan([override()], situation(), NOW_MS)
    world.enforcer().approve(plan.plan_id, "enforcer", NOW_MS)
    world.needs_second_person = True
    (row,) = world.enforcer().apply(plan.plan_id, situation(), NOW_MS)
    said = "a second person has to approve it (enforcement.approval in the settings)"
    assert (row.guard, row.detail) == ("mode", f"enforcer planned and approved it: {said}")


def test_owner_a_person_is_refused_by_the_owners_and_not_by_an_edit_after_decisions() -> None:
    owned = replace(SETTINGS, owners={"strimzi": ("users/al.*",)})
    (row,) = World(owned).enforce(override())
    assert (row.guard, row.detail) == ("owner", "managed by strimzi (guards.owners in the policy file)")
    edited = situation(edited_at_ms={ALICE: NOW_MS - 300_000})
    before_it = replace(override(), evidence=evidence(NOW_MS - 600_000))
    assert events(World().enforce(before_it, known=edited)) == SENT
    policy = replace(before_it, policy="penalty")
    (row,) = World().enforce(policy, known=edited)
    said = "edited 300 s ago, after the decisions that this rests on"
    assert (row.guard, row.detail) == ("owner", said)
