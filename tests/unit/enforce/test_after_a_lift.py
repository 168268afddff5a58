"""A lift that has ended left no trace in the cluster: guards that count our changes do not count it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kquota_spark.enforce.changes import OVERRIDE, Quota, StepId
from kquota_spark.enforce.lifting import Fate, Lifter
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.support.enforcement.enforced_world import (
    ALICE,
    BOB,
    HOUR_MS,
    MINUTE_MS,
    NOW_MS,
    SETTINGS,
    World,
    events,
    proposal,
    situation,
)

SENT = ["planned", "sending", "applied"]
LIFTED_MS, ENDED_MS = NOW_MS - 10 * MINUTE_MS, NOW_MS - 5 * MINUTE_MS


@contextmanager
def by_ann(world: World) -> Iterator[Lifter]:
    """A command of a person, which gives the lease back."""
    yield Lifter(world.cluster, world.ledger, world.leases.take("ann"), "ann")
    world.leases.holder = None


def lift(world: World, *quotas: Quota) -> None:
    """Ten minutes ago."""
    with by_ann(world) as lifter:
        lines = lifter.lift(quotas, StepId("disable-1", 1), "incident 7", LIFTED_MS)
    assert [line.fate for line in lines] == [Fate.LIFTED] * len(quotas)


def end(world: World) -> None:
    """Five minutes ago."""
    with by_ann(world) as lifter:
        lines = lifter.restore(lifter.lifted, ENDED_MS)
    assert {line.fate for line in lines} == {Fate.RESTORED}


@pytest.mark.parametrize("policy", ["penalty", OVERRIDE])
def test_a_quota_may_be_changed_as_soon_as_its_lift_has_ended(policy: str) -> None:
    world = World()
    lift(world, ALICE)
    end(world)
    # The watch has seen our own edit that put it back.
    seen = situation(edited_at_ms={ALICE: ENDED_MS})
    assert events(world.enforce(proposal(3e6, policy=policy), known=seen)) == SENT
    assert world.value() == 3e6


@pytest.mark.parametrize("policy", ["penalty", OVERRIDE])
def test_a_lifted_quota_is_held(policy: str) -> None:
    world = World()
    lift(world, ALICE)
    late_ms = NOW_MS + 2 * HOUR_MS  # after the hold time too: the end of that change would put back no quota
    (row,) = world.enforce(proposal(3e6, None, policy=policy, now_ms=late_ms), now_ms=late_ms)
    assert (row.guard, world.value()) == ("hold", None)
    assert row.detail == "it is lifted: kquota lift --end puts it back"


def test_a_lift_is_no_turn_of_a_quota() -> None:
    world = World(replace(SETTINGS, reversals_per_day=0))
    lift(world, ALICE)
    end(world)
    assert events(world.enforce(proposal(3e6))) == SENT


def test_lifted_quotas_use_up_no_budget() -> None:
    world = World(replace(SETTINGS, changes_per_hour=1))
    carol = Quota(Entity("carol"), QuotaKey.PRODUCER_BYTE_RATE)
    world.set(carol, 4e6)
    lift(world, BOB, carol)
    assert events(world.enforce(proposal(3e6))) == SENT


def test_an_end_that_somebody_prevented_leaves_the_lift_counted() -> None:
    world = World()
    lift(world, ALICE)
    world.set(ALICE, 5e6)
    with by_ann(world) as lifter:
        assert [line.fate for line in lifter.restore(lifter.lifted, ENDED_MS)] == [Fate.SUPERSEDED]
    assert events(world.enforce(proposal(4e6, 5e6))) == ["refused by hold"]
