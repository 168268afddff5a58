"""All policies together: one proposal for each quota, in the order of the file, the same every time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kquota_spark.enforce.changes import Mode, Quota
from kquota_spark.enforce.policies.observations import BucketUse, Observations, Place
from kquota_spark.enforce.policies.policy import ClusterQuota, DefaultQuota, Lower, Penalty, Policies, Raise
from kquota_spark.enforce.policies.proposing import proposals
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from tests.support.enforcement.observed_uses import ALICE, GUARDS, NOW_MS, WRITE, client, place, seen, use

PENALTY = Penalty(name="offenders", kind="penalty", used_percent=110.0)
RAISE = Raise(name="throttled", kind="raise", broker_capacity_per_s={WRITE.value: 60_000_000.0})
BOTH: dict[str, Any] = {
    "episodes": 9,
    "mean_rate_per_s": 1_150_000.0,
    "throttled_seconds": 400,
    "throttle_ms": 72_000_000,
    "throttled_rate_per_s": 1_100_000.0,
}


def _of(user: str) -> BucketUse:
    return use(place(1, user), rule=Entity(user=user), **BOTH)


def _found(observed: Observations, *policies: Any, **changed: Any) -> list[tuple[str, str, float | None]]:
    all_of_them = Policies(guards=GUARDS, policies=policies, **changed)
    return [
        (one.policy, str(one.quota.entity), one.after) for one in proposals(all_of_them, observed, NOW_MS)
    ]


def test_the_first_policy_of_the_file_wins_and_the_reason_names_the_other() -> None:
    policies = Policies(guards=GUARDS, policies=(PENALTY, RAISE))
    (found,) = proposals(policies, seen(use(**BOTH)), NOW_MS)
    assert (found.policy, found.after) == ("offenders", 500_000.0)
    assert found.reason.endswith(" UTC; throttled wanted 1,250,000 B/s")
    (other,) = proposals(replace(policies, policies=(RAISE, PENALTY)), seen(use(**BOTH)), NOW_MS)
    assert (other.policy, other.after) == ("throttled", 1_250_000.0)


def test_proposals_are_in_the_order_of_the_policies_then_of_names_whatever_the_order_of_the_rows() -> None:
    uses = [_of(user) for user in ("carol", "alice", "bob")]
    unlimited = use(place(1, "", "app"), rule=None)
    default = DefaultQuota(name="default", kind="default", values={"producer_byte_rate": 5_000_000.0})
    forwards = seen(unlimited, *uses, clients=(client("dave", "app"),))
    backwards = seen(*reversed(uses), unlimited, clients=(client("dave", "app"),))
    expected = [
        ("default", "clients/<default>", 5_000_000.0),
        ("offenders", "users/alice", 500_000.0),
        ("offenders", "users/bob", 500_000.0),
        ("offenders", "users/carol", 500_000.0),
    ]
    assert _found(forwards, default, PENALTY) == _found(backwards, default, PENALTY) == expected


def test_a_policy_that_is_off_wants_nothing() -> None:
    off = replace(PENALTY, mode=Mode.OFF)
    assert _found(seen(use(**BOTH)), off, RAISE) == [("throttled", "users/alice", 1_250_000.0)]
    assert _found(seen(use(**BOTH)), PENALTY, RAISE, mode=Mode.OFF) == []


def test_a_policy_may_go_as_far_as_itself_and_all_may() -> None:
    policies = Policies(
        mode=Mode.APPROVE,
        policies=(replace(PENALTY, mode=Mode.ENFORCE), replace(RAISE, mode=Mode.OBSERVE)),
    )
    assert policies.mode_of("offenders") is Mode.APPROVE
    assert policies.mode_of("throttled") is Mode.OBSERVE
    assert policies.mode_of("override") is Mode.APPROVE


def test_request_percentages_are_said_in_percent() -> None:
    at = Place(1, QuotaType.REQUEST, Bucket("alice", ""))
    guards = replace(GUARDS, bounds={"request_percentage": next(iter(GUARDS.bounds.values()))})
    floor = replace(guards.bounds["request_percentage"], floor=1.0, ceiling=400.0)
    over = use(at, **{**BOTH, "limit_per_s": 50.0, "mean_rate_per_s": 57.5})
    policies = Policies(
        guards=replace(guards, bounds={"request_percentage": floor}),
        policies=(replace(PENALTY, keys=(QuotaKey.REQUEST_PERCENTAGE,)),),
    )
    (found,) = proposals(policies, seen(over), NOW_MS)
    assert found.quota == Quota(ALICE, QuotaKey.REQUEST_PERCENTAGE)
    assert "; to 25.0 % until" in found.reason


HOSTILE = "{0}%s\x1b[31m<script>\n=cmd"


def test_no_name_of_a_client_is_in_a_sentence() -> None:
    entity = Entity(user=HOSTILE)
    of_hostile = use(place(1, HOSTILE), rule=entity, **BOTH)
    unused = use(place(1, "", HOSTILE), rule=Entity(client_id=HOSTILE), peak_rate_per_s=1.0)
    policies = Policies(
        guards=GUARDS,
        policies=(
            PENALTY,
            RAISE,
            Lower(name="lower", kind="lower"),
            ClusterQuota(name="budgets", kind="cluster_quota", key=WRITE, budgets={str(entity): 9e6}),
            DefaultQuota(name="default", kind="default", values={"producer_byte_rate": 5e6}),
        ),
    )
    observed = seen(of_hostile, unused, use(rule=None), clients=(client("u", HOSTILE + "2"),))
    found = proposals(policies, observed, NOW_MS)
    assert [one.policy for one in found] == ["offenders", "lower", "default"]
    assert found[0].quota.entity == entity and found[2].quota.entity == Entity(client_id=DEFAULT)
    said = "".join(one.reason + one.would_have + "".join(one.evidence.numbers) for one in found)
    assert said.isascii() and said.isprintable() and "script" not in said


@pytest.mark.parametrize("length", [1, 2])
def test_a_period_that_was_not_gathered_gives_nothing(length: int) -> None:
    assert _found(seen(use(**BOTH), periods={}), *(PENALTY, RAISE)[:length]) == []
