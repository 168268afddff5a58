"""Quotas are lifted with their way back in the log first, and come back as they were, unless somebody else set them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kquota_spark.enforce.changes import Event, Evidence, LogEntry, Mode, Proposal, Quota, StepId
from kquota_spark.enforce.in_memory import (
    InMemoryLease,
)
from kquota_spark.enforce.lifting import (
    BATCH,
    Fate,
    FencedError,
    Line,
    Scope,
    in_batches,
    lifts,
    planned_lifting,
    planned_restoring,
)
from kquota_spark.enforce.log_state import LogState, Step
from kquota_spark.enforce.ports import Outcome, Written
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.support.enforcement.lifted_cluster import NODES, Cluster, Crash

PRODUCE, FETCH, REQUEST, MUTATION = QuotaKey
ALICE, ETL, ANY = Entity("alice"), Entity("alice", "etl"), Entity(DEFAULT)
ALL = Scope()
QUOTAS = [Quota(ALICE, PRODUCE), Quota(ALICE, FETCH), Quota(ETL, REQUEST), Quota(ANY, PRODUCE)]


def in_force(cluster: Cluster) -> dict[Quota, float]:
    quotas = [Quota(Entity.parse(path), key) for path in cluster.nodes for key in QuotaKey]
    held = cluster.cluster.read(quotas)
    return {quota: value for quota in quotas if (value := held[quota].value) is not None}


def lifted(cluster: Cluster) -> list[Step]:
    return lifts(LogState.of(cluster.ledger.entries()))


def disable(cluster: Cluster, scope: Scope = ALL, now_ms: int = 1) -> list[Line]:
    """As the command does."""
    lifter = cluster.lifter()
    lifter.settle(now_ms)
    meant = {quota: value for quota, value in in_force(cluster).items() if scope.holds(quota.entity)}
    planned = planned_lifting(meant, lifter.lifted)
    lines, step = [], 1
    for batch in in_batches(line.quota for line in planned if line.fate is Fate.LIFT):
        lines += lifter.lift(batch, StepId(f"plan-{now_ms}", step), "incident 7", now_ms)
        step += len(batch)
    return lines


def enable(cluster: Cluster, scope: Scope = ALL, now_ms: int = 2) -> list[Line]:
    """As the command does."""
    lifter = cluster.lifter()
    lifter.settle(now_ms)
    meant = {lift.proposal.quota: lift for lift in lifter.lifted if scope.holds(lift.proposal.quota.entity)}
    lines = []
    for batch in in_batches(reversed(meant)):
        lines += lifter.restore([meant[quota] for quota in batch], now_ms)
    return lines


def events(cluster: Cluster) -> list[str]:
    return [entry.event.value for entry in cluster.ledger.entries()]


def test_a_whole_cluster_is_lifted_and_comes_back_as_it_was() -> None:
    cluster = Cluster()
    assert {(line.quota, line.fate) for line in disable(cluster)} == {(q, Fate.LIFTED) for q in QUOTAS}
    assert cluster.nodes == {
        "users/alice": {"SCRAM-SHA-256": "s"},
        "users/alice/clients/etl": {},
        "users/<default>": {},
    }
    lines = enable(cluster)
    assert {(line.quota, line.fate) for line in lines} == {(quota, Fate.RESTORED) for quota in QUOTAS}
    assert cluster.nodes == NODES
    assert lifted(cluster) == []


def test_the_way_back_is_written_before_anything_is_sent() -> None:
    cluster = Cluster(crashes_at=1)
    with pytest.raises(Crash):
        disable(cluster)
    assert cluster.nodes == NODES
    sending = [entry for entry in cluster.ledger.entries() if entry.event is Event.SENDING]
    assert [entry.proposal.quota for entry in sending] == [Quota(ANY, PRODUCE), QUOTAS[1], QUOTAS[2]]
    assert all(entry.note for entry in sending)
    first = sending[0]
    assert (first.proposal.before, first.proposal.after, first.proposal.expires_at_ms) == (5.0, None, None)
    assert (first.proposal.policy, first.proposal.reason, first.actor, first.fencing) == (
        "enforcement disable", "incident 7", "ann", 1
    )  # fmt: skip


# Batches {default, alice's first key, etl} and {alice's second}: rows, three writes, rows; rows, a write, rows.
@pytest.mark.parametrize("crashes_at", range(8))
def test_a_crash_anywhere_is_resumed_by_running_it_again(crashes_at: int) -> None:
    cluster = Cluster(crashes_at=crashes_at)
    with pytest.raises(Crash):
        disable(cluster)
    cluster.crashes_at = None
    disable(cluster, now_ms=3)
    assert in_force(cluster) == {}
    assert sorted(lift.proposal.quota.key.value for lift in lifted(cluster)) == [
        "consumer_byte_rate", "producer_byte_rate", "producer_byte_rate", "request_percentage"
    ]  # fmt: skip
    cluster.crashes_at = crashes_at
    with pytest.raises(Crash):
        enable(cluster, now_ms=4)
    cluster.crashes_at = None
    enable(cluster, now_ms=5)
    assert cluster.nodes == NODES
    assert lifted(cluster) == []


@pytest.mark.parametrize("crashes_at", range(8))
def test_a_crash_and_no_second_run_still_comes_back_as_it_was(crashes_at: int) -> None:
    cluster = Cluster(crashes_at=crashes_at)
    with pytest.raises(Crash):
        disable(cluster)
    cluster.crashes_at = None
    assert not [line for line in enable(cluster) if line.fate.is_bad]
    assert cluster.nodes == NODES


def test_a_second_run_changes_nothing() -> None:
    cluster = Cluster()
    disable(cluster)
    before = events(cluster)
    assert disable(cluster, now_ms=9) == []
    enable(cluster)
    after = events(cluster)
    assert enable(cluster, now_ms=9) == []
    assert before == after[: len(before)]
    assert events(cluster) == after


def test_what_somebody_else_has_set_meanwhile_stays() -> None:
    cluster = Cluster()
    disable(cluster)
    cluster.nodes["users/alice"]["producer_byte_rate"] = "42"
    cluster.nodes["users/new"] = {"producer_byte_rate": "8"}
    assert planned_lifting({QUOTAS[0]: 42.0}, lifted(cluster)) == [Line(QUOTAS[0], 42.0, 42.0, Fate.KEPT)]
    planned = planned_restoring(lifted(cluster)[:2], {QUOTAS[1]: None, Quota(ANY, PRODUCE): 6.0})
    assert planned == [
        Line(QUOTAS[1], None, 7.0, Fate.RESTORE),
        Line(Quota(ANY, PRODUCE), 6.0, 6.0, Fate.SUPERSEDED),
    ]
    bad = [line for line in enable(cluster) if line.fate.is_bad]
    assert bad == [Line(QUOTAS[0], 42.0, 42.0, Fate.SUPERSEDED, "somebody else has set it")]
    alice = {"SCRAM-SHA-256": "s", "consumer_byte_rate": "7", "producer_byte_rate": "42"}
    assert cluster.nodes == {**NODES, "users/alice": alice, "users/new": {"producer_byte_rate": "8"}}
    assert events(cluster).count("superseded") == 1
    assert enable(cluster) == []


def test_a_change_of_the_enforcer_on_a_lifted_quota_keeps_its_end() -> None:
    """It lies on the lift, so it is no edit of somebody else, and is in force when the lift ends."""
    cluster, quota = Cluster(), QUOTAS[0]
    disable(cluster)
    proposal = Proposal(quota, None, 3e6, "penalty", "over its limit", 9_000, Evidence(0, 0, 0, 0, 0))
    planned = LogEntry(StepId("p-1", 1), Event.PLANNED, 1, proposal, Mode.ENFORCE, "enforcer")
    sent = replace(planned, event=Event.SENDING, fencing=1, note="{}")
    cluster.ledger.append([planned, sent, replace(sent, event=Event.APPLIED)])
    cluster.nodes["users/alice"]["producer_byte_rate"] = "3000000"
    [bad] = [line for line in enable(cluster) if line.fate.is_bad]
    assert bad == Line(quota, 3e6, 3e6, Fate.SUPERSEDED, "somebody else has set it")
    state = LogState.of(cluster.ledger.entries())
    assert [step.step_id.plan_id for step in state.live[quota]] == ["p-1"]
    assert [step.step_id.plan_id for step in state.expired(9_000)] == ["p-1"]


def test_what_somebody_else_has_put_back_is_restored() -> None:
    cluster = Cluster()
    disable(cluster)
    cluster.nodes["users/<default>"]["producer_byte_rate"] = "5"
    assert {line.fate for line in enable(cluster)} == {Fate.RESTORED}


@pytest.mark.parametrize(
    ("scope", "meant"),
    [
        (Scope(), {"alice": 2, "etl": 1, "default": 1}),
        (Scope("alice"), {"alice": 2, "etl": 1}),
        (Scope("alice", "etl"), {"etl": 1}),
        (Scope(None, "etl"), {"etl": 1}),
        (Scope(DEFAULT), {"default": 1}),
        (Scope("<default>"), {}),
        (Scope("bob"), {}),
    ],
)
def test_only_the_quotas_that_are_meant_are_touched(scope: Scope, meant: dict[str, int]) -> None:
    names = {ALICE: "alice", ETL: "etl", ANY: "default"}
    cluster = Cluster()
    touched = [names[line.quota.entity] for line in disable(cluster, scope)]
    assert {name: touched.count(name) for name in touched} == meant
    disable(cluster, now_ms=7)
    assert len(enable(cluster, scope)) == len(touched)
    assert len(lifted(cluster)) == 4 - len(touched)


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.CHANGED])
def test_one_that_is_refused_keeps_no_other(outcome: Outcome) -> None:
    cluster = Cluster(answers={QUOTAS[2]: Written(outcome, "no right to write it")})
    bad = [line for line in disable(cluster) if line.fate.is_bad]
    assert bad == [Line(QUOTAS[2], 12.5, 12.5, Fate.FAILED, "no right to write it")]
    assert in_force(cluster) == {QUOTAS[2]: 12.5}
    assert len(lifted(cluster)) == 3
    cluster.answers = {QUOTAS[0]: Written(outcome, "no right to write it")}
    bad = [line for line in enable(cluster) if line.fate.is_bad]
    assert bad == [Line(QUOTAS[0], None, None, Fate.FAILED, "no right to write it")]
    # It is lifted still, and comes back when it may.
    cluster.answers = {}
    assert [line.fate for line in enable(cluster)] == [Fate.RESTORED]
    assert cluster.nodes == NODES


def test_what_somebody_else_removes_is_not_ours_to_put_back() -> None:
    cluster = Cluster(vanishing=QUOTAS[2])
    [bad] = [line for line in disable(cluster) if line.fate.is_bad]
    assert (bad.quota, bad.after, bad.fate) == (QUOTAS[2], None, Fate.FAILED)
    enable(cluster)
    assert cluster.nodes == {**NODES, "users/alice/clients/etl": {}}


def test_an_answer_that_is_lost_is_read_back() -> None:
    cluster = Cluster(answers={QUOTAS[2]: Written(Outcome.UNKNOWN, "no answer")})
    bad = [line for line in disable(cluster) if line.fate.is_bad]
    assert bad == [Line(QUOTAS[2], 12.5, 12.5, Fate.FAILED, "no answer")]
    [doubtful] = [lift for lift in lifted(cluster) if lift.is_in_doubt]
    assert doubtful.proposal.quota == QUOTAS[2]
    cluster.nodes["users/alice/clients/etl"] = {}  # it arrives after all
    cluster.answers = {}
    assert disable(cluster, now_ms=9) == []
    assert not any(lift.is_in_doubt for lift in lifted(cluster))
    enable(cluster)
    assert cluster.nodes == NODES


def test_nothing_more_is_sent_once_another_enforcer_has_the_lease() -> None:
    cluster = Cluster()
    lifter = cluster.lifter()
    assert InMemoryLease(cluster.leases, "them").acquire() is None
    cluster.leases.take("them")
    with pytest.raises(FencedError):
        lifter.lift(QUOTAS[:1], StepId("p", 1), "r", 1)
    assert cluster.nodes == NODES


def test_no_entity_is_twice_in_a_batch_and_batches_are_small() -> None:
    quotas = [Quota(Entity(f"u{number}"), key) for number in range(120) for key in (PRODUCE, FETCH)]
    batches = list(in_batches(quotas))
    assert [len(batch) for batch in batches] == [50, 50, 20, 50, 50, 20]
    assert BATCH == 50
    assert all(len({quota.entity for quota in batch}) == len(batch) for batch in batches)
    assert sorted(str(quota) for batch in batches for quota in batch) == sorted(map(str, quotas))
