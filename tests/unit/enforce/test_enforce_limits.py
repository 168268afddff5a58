"""Guards over how much, how often and when; those over what is known are in `test_enforce_guards`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from kquota_spark.config.rules import Duration
from kquota_spark.enforce.changes import OVERRIDE, Mode, Quota
from kquota_spark.enforce.in_memory import MemoryCluster
from kquota_spark.enforce.ports import Change, Frozen, Held
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.support.enforcement.enforced_world import (
    ALICE,
    BOB,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    NOW_MS,
    SETTINGS,
    World,
    events,
    evidence,
    proposal,
    situation,
    with_throttled,
)

SENT = ["planned", "sending", "applied"]


@pytest.mark.parametrize("after", [1e6 - 1, 8e6 + 1, float("nan"), None])
def test_bounds_are_kept_and_nothing_is_removed(after: float | None) -> None:
    world = World()
    before = 1.5e6 if after == 1e6 - 1 else 7e6
    world.set(ALICE, before)
    assert events(world.enforce(proposal(after, before))) == ["refused by bounds"]


def test_bounds_a_key_without_them_is_never_changed() -> None:
    quota = Quota(Entity(user="alice"), QuotaKey.CONSUMER_BYTE_RATE)
    assert events(World().enforce(proposal(2e6, None, quota=quota))) == ["refused by bounds"]


@pytest.mark.parametrize(
    ("after", "expected"),
    [(2e6, SENT), (2e6 - 1, ["refused by step"]), (6e6, SENT), (6e6 + 1, ["refused by step"])],
)  # 50 % of 4 MB/s each way
def test_step_is_no_larger_than_allowed(after: float, expected: list[str]) -> None:
    assert events(World().enforce(proposal(after))) == expected


def test_step_is_measured_from_the_default_that_held_before() -> None:
    of_default = replace(evidence(), numbers={"limit_per_s": 4e6})
    for after, expected in ((6e6, SENT), (6e6 + 1, ["refused by step"])):
        world = World()
        world.set(ALICE, None)
        raised = replace(proposal(after, None), evidence=of_default)
        assert events(world.enforce(with_throttled(raised, 60))) == expected, "a raise is not censored"


def test_hold_one_change_of_a_quota_within_the_hold_time() -> None:
    world = World()
    world.enforce(proposal(3e6))
    at_ms = NOW_MS + HOUR_MS - 1
    assert events(world.enforce(proposal(2e6, 3e6, now_ms=at_ms), now_ms=at_ms)) == ["refused by hold"]
    at_ms += 1
    assert events(world.enforce(proposal(2e6, 3e6, now_ms=at_ms), now_ms=at_ms)) == SENT


def test_hold_time_and_turns_are_no_bounds_for_a_person() -> None:
    world = World(replace(SETTINGS, reversals_per_day=0))
    world.enforce(proposal(3e6))
    for minute, (after, before) in enumerate(((4e6, 3e6), (3e6, 4e6)), 1):
        at_ms = NOW_MS + minute * MINUTE_MS
        wanted = proposal(after, before, now_ms=at_ms, policy=OVERRIDE, lasts_ms=HOUR_MS)
        assert events(world.enforce(wanted, now_ms=at_ms)) == SENT


def test_hold_begins_again_when_a_change_is_taken_back() -> None:
    world = World()
    world.enforce(proposal(3e6, lasts_ms=HOUR_MS))
    at_ms = NOW_MS + HOUR_MS
    found = world.enforce(proposal(3e6, now_ms=at_ms), now_ms=at_ms)
    assert events(found) == ["restoring", "restored", "refused by hold"]


def test_hold_two_policies_do_not_change_one_quota_in_one_plan() -> None:
    found = World().enforce(proposal(3e6), proposal(3.5e6, policy="share"))
    assert events(found) == ["planned", "refused by hold", "sending", "applied"]


def test_budget_of_changes_in_an_hour() -> None:
    world = World(replace(SETTINGS, changes_per_hour=2, hold_time=Duration(0)))
    carol = replace(proposal(2e6, None), quota=Quota(Entity(user="carol"), QuotaKey.PRODUCER_BYTE_RATE))
    found = world.enforce(proposal(), proposal(quota=BOB), carol)
    assert events(found)[:3] == ["planned", "planned", "refused by budget"]
    for at_ms, expected in ((NOW_MS + HOUR_MS - 1, ["refused by budget"]), (NOW_MS + HOUR_MS, SENT)):
        later = replace(carol, evidence=evidence(at_ms))
        assert events(world.enforce(later, now_ms=at_ms)) == expected


def test_budget_holds_over_plans_that_were_approved_side_by_side() -> None:
    world = World(replace(SETTINGS, changes_per_hour=1))
    world.mode = Mode.APPROVE
    for quota in (ALICE, BOB):
        plan = world.enforcer().plan([proposal(quota=quota)], situation(), NOW_MS)
        world.enforcer().approve(plan.plan_id, "ann", NOW_MS)
    assert events(world.enforce()) == ["sending", "applied", "refused by budget"]


def test_plan_size_is_bounded() -> None:
    world = World(replace(SETTINGS, changes_per_plan=1))
    assert events(world.enforce(proposal(), proposal(quota=BOB)))[:2] == ["planned", "refused by plan_size"]


def test_censored_a_throttled_client_is_not_cut_because_it_uses_little() -> None:
    world = World()
    assert events(world.enforce(with_throttled(proposal(3e6), 1))) == ["refused by censored"]
    assert events(world.enforce(with_throttled(proposal(5e6), 1))) == SENT


def test_censored_a_penalty_may_cut_throttled_clients_for_a_time() -> None:
    penalty = replace(with_throttled(proposal(3e6, lasts_ms=HOUR_MS), 60), is_penalty=True)
    assert events(World().enforce(penalty)) == SENT
    assert events(World().enforce(replace(penalty, expires_at_ms=None))) == ["refused by censored"]


def test_censored_what_is_over_a_budget_though_throttled_may_be_cut() -> None:
    cut = with_throttled(proposal(3e6), 60)
    for used, expected in ((9e6, SENT), (8e6, ["refused by censored"])):
        numbers = {"used_per_s": used, "budget_per_s": 8e6}
        assert (
            events(World().enforce(replace(cut, evidence=replace(cut.evidence, numbers=numbers)))) == expected
        )


def test_unstable_a_quota_that_turns_round_too_often_is_left_alone_for_a_day() -> None:
    world = World()
    moves = [(3e6, 4e6), (4e6, 3e6), (3e6, 4e6), (4e6, 3e6)]  # down, up (1), down (2), up (3): one too many
    for hour, (after, before) in enumerate(moves):
        at_ms = NOW_MS + hour * HOUR_MS
        found = events(world.enforce(proposal(after, before, now_ms=at_ms), now_ms=at_ms))
        assert found == (SENT if hour < 3 else ["refused by unstable"])
    said = "it would turn round 3 times within a day, more than 2"
    assert world.ledger.entries()[-1].detail == said
    # A day after the first turn, at 1 h, there is one turn less to count.
    at_ms = NOW_MS + HOUR_MS + DAY_MS
    plan = world.enforcer().plan([proposal(3.5e6, 3e6)], situation(at_ms - 1), at_ms - 1)
    assert events(list(plan.entries)) == ["refused by unstable"]
    assert events(world.enforce(proposal(4e6, 3e6, now_ms=at_ms), now_ms=at_ms)) == SENT


class WithoutAWayBack(MemoryCluster):
    """A cluster where what is there could not be put back."""

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        problem = "the node is not JSON"
        return {q: replace(held, note=None, problem=problem) for q, held in super().read(quotas).items()}


def test_restorable_nothing_is_written_without_a_way_back() -> None:
    world = World()
    world.target = WithoutAWayBack(world.leases, world.cluster.nodes)
    (row,) = world.enforce(proposal())
    assert (row.guard, row.detail) == ("restorable", "the node is not JSON")
    assert world.value() == 4e6


class Picky(MemoryCluster):
    """A cluster that would refuse fractions."""

    def refusal(self, change: Change) -> str | None:
        [value] = change.values.values()
        return "fractions are not allowed" if value is not None and value % 1 else None


def test_validate_what_the_cluster_would_refuse_is_not_sent() -> None:
    world = World()
    world.target = Picky(world.leases, world.cluster.nodes)
    (row,) = world.enforce(proposal(3e6 + 0.5))
    assert (row.guard, row.detail) == ("validate", "fractions are not allowed")


def test_lease_who_lost_it_sends_nothing_and_leaves_the_step_to_the_other() -> None:
    world = World()
    plan = world.enforcer().plan([proposal()], situation(), NOW_MS)
    world.leases.take("another")
    before = world.log()
    assert events(world.enforcer().apply(plan.plan_id, situation(), NOW_MS)) == ["refused by lease"]
    assert (world.log(), world.value()) == (before, 4e6)
    assert events(world.enforcer("another").apply(plan.plan_id, situation(), NOW_MS)) == [
        "sending",
        "applied",
    ]


def test_frozen_between_plan_and_apply_nothing_is_sent() -> None:
    world = World()
    plan = world.enforcer().plan([proposal()], situation(), NOW_MS)
    world.switch.freeze(Frozen(NOW_MS, "ann", "what is it doing?"))
    (row,) = world.enforcer().apply(plan.plan_id, situation(), NOW_MS + MINUTE_MS)
    assert (row.guard, row.detail, world.value()) == ("frozen", "frozen by ann: what is it doing?", 4e6)
