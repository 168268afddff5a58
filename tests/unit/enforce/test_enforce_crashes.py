"""A crash or a lost answer at any edge: the next round finds what became of it, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kquota_spark.enforce.changes import Event, LogEntry
from kquota_spark.enforce.ports import Frozen, Written
from kquota_spark.enforce.writing import LATE_WRITE_MS
from kquota_spark.errors import UserError
from tests.closed_loop.troubled_ports import (
    CrashError,
    Trouble,
    TroubledCluster,
    TroubledLedger,
)
from tests.support.enforcement.enforced_world import (
    ALICE,
    BOB,
    DAY_MS,
    HOUR_MS,
    NOW_MS,
    World,
    events,
    evidence,
    proposal,
    situation,
)

CRASHES = (Trouble.CRASH_BEFORE, Trouble.CRASH_AFTER)


class TroubledWorld(World):
    """One call, the first of its name, goes wrong."""

    def __init__(self, call: str, trouble: Trouble) -> None:
        super().__init__()
        self.troubles = {call: trouble}
        self.effects: list[str] = []
        self.late: list[Callable[[], Written]] = []
        self.target = TroubledCluster(self.cluster, self._ask, self.late.append)
        self.log_port = TroubledLedger(self.ledger, self._ask)

    def _ask(self, call: str) -> Trouble | None:
        trouble = self.troubles.pop(call, None)
        if call in ("write", "put_back") and trouble not in (Trouble.CRASH_BEFORE, Trouble.REFUSED):
            self.effects.append(call)
        return trouble

    def enforce_and_die(self, lasts_ms: int | None = None) -> None:
        with pytest.raises(CrashError):
            self.enforcer().run([proposal(lasts_ms=lasts_ms)], situation(), NOW_MS)


def later(ms: int) -> int:
    return NOW_MS + ms


@pytest.mark.parametrize("trouble", CRASHES)
@pytest.mark.parametrize("call", ["read", "append planned", "append sending", "write", "append applied"])
def test_after_a_crash_at_any_edge_the_change_is_made_once(call: str, trouble: Trouble) -> None:
    world = TroubledWorld(call, trouble)
    world.enforce_and_die()
    # Rounds follow, the policy proposes the same as long as it is not so.
    for ms in (1_000, LATE_WRITE_MS + 1_000, LATE_WRITE_MS + 61_000):
        wanted = [proposal(now_ms=later(ms))] if world.value() == 4e6 else []
        world.enforce(*wanted, now_ms=later(ms))
    assert world.value() == 3e6
    assert world.effects == ["write"]
    assert world.log()[-1] == (1, "applied")


def test_a_change_that_was_made_before_the_crash_is_only_recorded() -> None:
    world = TroubledWorld("write", Trouble.CRASH_AFTER)
    world.enforce_and_die()
    assert world.log() == [(1, "planned"), (1, "sending")]
    assert events(world.enforcer().resume(NOW_MS + DAY_MS)) == ["applied"]
    assert world.enforcer().resume(NOW_MS + DAY_MS) == []


def test_a_change_that_was_not_made_before_the_crash_is_not_made_afterwards() -> None:
    world = TroubledWorld("append sending", Trouble.CRASH_AFTER)
    world.enforce_and_die()
    # It might still be on its way, so it waits; meanwhile nothing else is sent for that quota.
    at_ms = later(LATE_WRITE_MS - 1)
    assert events(world.enforce(proposal(2.5e6, now_ms=at_ms), now_ms=at_ms)) == ["refused by hold"]
    at_ms += 1
    assert events(world.enforcer().resume(at_ms)) == ["failed"]
    assert (world.value(), world.effects) == (4e6, [])


def test_a_change_that_an_operator_overtook_during_the_crash_is_given_up() -> None:
    world = TroubledWorld("write", Trouble.CRASH_AFTER)
    world.enforce_and_die(lasts_ms=HOUR_MS)
    world.set(ALICE, 6e6)
    assert events(world.enforcer().resume(later(1))) == ["superseded"]
    assert world.enforcer().expire(later(DAY_MS)) == []
    assert world.value() == 6e6


@pytest.mark.parametrize(
    ("call", "trouble"),
    [
        ("append restoring", Trouble.CRASH_BEFORE),
        ("append restoring", Trouble.CRASH_AFTER),
        ("put_back", Trouble.CRASH_BEFORE),
        ("put_back", Trouble.CRASH_AFTER),
        ("append restored", Trouble.CRASH_BEFORE),
        ("append restored", Trouble.CRASH_AFTER),
    ],
)
def test_after_a_crash_while_putting_back_it_is_put_back_once(call: str, trouble: Trouble) -> None:
    world = TroubledWorld(call, trouble)
    world.enforce(proposal(lasts_ms=HOUR_MS))
    with pytest.raises(CrashError):
        world.enforcer().expire(later(HOUR_MS))
    for _ in range(2):
        world.enforce(now_ms=later(HOUR_MS + 1))
    assert (world.value(), world.effects) == (4e6, ["write", "put_back"])
    assert [event for _, event in world.log()].count("restored") == 1


def test_what_was_being_put_back_waits_while_frozen() -> None:
    world = TroubledWorld("put_back", Trouble.DROPPED)
    world.enforce(proposal(lasts_ms=HOUR_MS))
    assert events(world.enforcer().expire(later(HOUR_MS))) == ["restoring"]
    world.switch.freeze(Frozen(later(HOUR_MS), "ann", "wait"))
    assert world.enforcer().resume(later(HOUR_MS + 1)) == []
    assert world.value() == 3e6
    world.switch.unfreeze()
    assert events(world.enforcer().resume(later(HOUR_MS + 2))) == ["restoring", "restored"]


@pytest.mark.parametrize(
    ("trouble", "at_once", "afterwards", "value"),
    [
        (Trouble.LOST, ["applied"], [], 3e6),
        (Trouble.DROPPED, [], ["failed"], 4e6),
        (Trouble.LATE, [], ["applied"], 3e6),
    ],
)
def test_an_answer_that_is_lost_is_read_back(
    trouble: Trouble, at_once: list[str], afterwards: list[str], value: float
) -> None:
    world = TroubledWorld("write", trouble)
    rows: list[LogEntry] = world.enforce(proposal())
    assert events(rows) == ["planned", "sending", *at_once]
    for write in world.late:
        write()
    assert events(world.enforcer().resume(later(LATE_WRITE_MS))) == afterwards
    assert world.value() == value


def test_one_that_the_cluster_refuses_keeps_no_other() -> None:
    world = TroubledWorld("write", Trouble.REFUSED)
    rows = world.enforce(proposal(), proposal(quota=BOB))
    assert events(rows) == ["planned", "planned", "sending", "failed", "sending", "applied"]
    assert rows[3].detail == "not today"
    assert (world.value(ALICE), world.value(BOB)) == (4e6, 3e6)
    # A refused change was none: the next batch may try again at once.
    again = replace(proposal(), evidence=evidence(later(1)))
    assert events(world.enforce(again, now_ms=later(1))) == ["planned", "sending", "applied"]


def test_a_restoration_that_the_cluster_refuses_is_tried_again_later() -> None:
    world = TroubledWorld("put_back", Trouble.REFUSED)
    world.enforce(proposal(lasts_ms=HOUR_MS))
    assert events(world.enforcer().expire(later(HOUR_MS))) == ["restoring", "failed"]
    assert world.enforcer().expire(later(HOUR_MS + LATE_WRITE_MS - 1)) == []
    assert events(world.enforcer().expire(later(HOUR_MS + LATE_WRITE_MS))) == ["restoring", "restored"]


def test_a_server_that_is_away_ends_the_round_and_the_next_one_goes_on() -> None:
    world = TroubledWorld("read", Trouble.UNREACHABLE)
    with pytest.raises(UserError):
        world.enforce(proposal())
    assert world.log() == []
    assert events(world.enforce(proposal())) == ["planned", "sending", "applied"]


def test_who_wakes_up_after_losing_the_lease_writes_neither_quota_nor_log() -> None:
    world = World()
    plan = world.enforcer().plan([proposal()], situation(), NOW_MS)

    def take_over(call: str) -> None:
        if call == "append sending":  # it slept between its last look at the lease and the write
            world.leases.take("another")

    world.log_port = TroubledLedger(world.ledger, take_over)
    assert events(world.enforcer().apply(plan.plan_id, situation(), NOW_MS)) == ["sending"]
    assert (world.value(), world.ledger.entries()[-1].event) == (4e6, Event.SENDING)
    assert events(world.enforcer("another").resume(later(LATE_WRITE_MS))) == ["failed"]
