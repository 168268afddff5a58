"""A penalty is for who takes more than the limit again and again, never for who is throttled and waits."""

from __future__ import annotations

from typing import Any

import pytest

from kquota_spark.enforce.changes import Evidence, Quota
from kquota_spark.enforce.guard_settings import Bounds, Exempt, GuardSettings
from kquota_spark.enforce.policies.observations import InForce, RateSeconds
from kquota_spark.enforce.policies.policy import Penalty
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from tests.support.enforcement.observed_uses import (
    ALICE,
    DAY,
    HOUR,
    NOW_MS,
    WRITE,
    client,
    only,
    place,
    seen,
    use,
    wanted,
)

POLICY = Penalty(name="repeat-offenders", kind="penalty")
# Twelve episodes in the hour, and 1.5 MB/s on average of an hour under a limit of 1 MB/s.
OFFENCE: dict[str, Any] = {
    "episodes": 12,
    "mean_rate_per_s": 1_500_000.0,
    "seconds": 3_412,
    "certain_seconds": 3_400,
    "throttled_seconds": 1_160,
    "peak_used_percent": 310.0,
    "throttle_ms": 72_000_000,  # of an hour of 3,600,000 ms: 20 connections would have waited
}


def test_an_offender_gets_half_of_its_limit_for_a_day() -> None:
    rates = {place(): (RateSeconds(300_000.0, 2_000), RateSeconds(1_500_000.0, 1_204))}
    found = only(wanted(POLICY, seen(use(**OFFENCE), rates=rates)))
    assert (found.quota, found.before, found.after) == (Quota(ALICE, WRITE), 1_000_000.0, 500_000.0)
    assert found.expires_at_ms == NOW_MS + DAY
    assert found.policy == "repeat-offenders"
    # 1,160 of 3,412 seconds are 34.0 %
    assert found.reason == (
        "took 150 % of its limit on broker 1 since 2026-11-21 04:40 UTC: 12 episodes, throttled 34 % of 3,412 "
        "seconds, as long as 20 waiting connections; to 500,000 B/s until 2026-11-22 05:40 UTC"
    )
    # 1,204 of 2,000 + 1,204 seconds had more than 500,000 B/s
    assert found.would_have == (
        "in the last day it would have throttled about 1,204 of 3,204 seconds with traffic: an estimate from the "
        "rates of seconds, not the broker's ring"
    )
    assert found.evidence == Evidence(
        from_ms=NOW_MS - HOUR,
        to_ms=NOW_MS,
        seconds=3_412,
        certain_seconds=3_400,
        throttled_seconds=1_160,
        numbers={
            "limit_per_s": 1_000_000.0,
            "mean_rate_per_s": 1_500_000.0,
            "used_percent": 150.0,
            "episodes": 12,
            "peak_used_percent": 310.0,
            "throttle_ms": 72_000_000,
            "waiting_connections": 20.0,
        },
    )


def test_who_is_throttled_all_the_time_and_obeys_is_no_offender() -> None:
    # An obeying client that wants more: violations all day, every second throttled, and exactly its limit on average.
    obeys = {**OFFENCE, "mean_rate_per_s": 1_000_000.0, "throttled_seconds": 3_412, "episodes": 300}
    assert wanted(POLICY, seen(use(**obeys))) == []
    # 120 % is still what bursts out of a cold bucket may come to
    assert wanted(POLICY, seen(use(**{**obeys, "mean_rate_per_s": 1_200_000.0}))) == []
    assert wanted(POLICY, seen(use(**{**obeys, "mean_rate_per_s": 1_200_001.0})))


@pytest.mark.parametrize(("throttle_ms", "count"), [(36_000_000, 0), (36_000_001, 1)])
def test_ten_connections_that_all_wait_may_be_told_to_wait_for_ten_times_the_period(
    throttle_ms: int, count: int
) -> None:
    assert len(wanted(POLICY, seen(use(**{**OFFENCE, "throttle_ms": throttle_ms})))) == count


def test_five_episodes_or_half_of_the_seconds_make_a_repeat_offender() -> None:
    few = {**OFFENCE, "episodes": 4, "throttled_seconds": 500, "seconds": 1_000}
    assert wanted(POLICY, seen(use(**few))) == []
    assert wanted(POLICY, seen(use(**{**few, "episodes": 5})))
    assert wanted(POLICY, seen(use(**{**few, "throttled_seconds": 501})))


def test_one_broker_on_which_it_offends_is_enough_and_the_evidence_is_of_that_one() -> None:
    found = only(wanted(POLICY, seen(use(), use(place(2), **OFFENCE))))
    assert "on broker 2" in found.reason and found.evidence.seconds == 3_412


def test_the_limit_must_have_been_the_same_for_the_whole_time() -> None:
    assert wanted(POLICY, seen(use(**OFFENCE, has_one_limit=False))) == []
    changed = {Quota(ALICE, WRITE): InForce(2_000_000.0, 0)}  # decisions do not know of it yet
    assert wanted(POLICY, seen(use(**OFFENCE), quotas=changed)) == []


def test_nothing_is_built_on_a_limit_that_ends_by_itself() -> None:
    of_alice, of_bob = Quota(ALICE, WRITE), Quota(Entity(user="bob"), WRITE)
    assert wanted(POLICY, seen(use(**OFFENCE), temporary=frozenset({of_bob})))
    assert wanted(POLICY, seen(use(**OFFENCE), temporary=frozenset({of_alice}))) == []
    default = Entity(user=DEFAULT)
    by_default = use(rule=default, **OFFENCE)
    assert wanted(POLICY, seen(by_default, temporary=frozenset({Quota(default, WRITE)}))) == []


def test_the_step_and_the_floor_of_the_guards_hold() -> None:
    hard = Penalty(name="hard", kind="penalty", to_percent=10.0)
    assert only(wanted(hard, seen(use(**OFFENCE)))).after == 500_000.0  # the largest step is 50 %
    floor = GuardSettings(bounds={WRITE.value: Bounds(floor=900_000.0, ceiling=5e7)})
    assert only(wanted(POLICY, seen(use(**OFFENCE)), guards=floor)).after == 900_000.0
    above = GuardSettings(bounds={WRITE.value: Bounds(floor=1_000_000.0, ceiling=5e7)})
    assert wanted(POLICY, seen(use(**OFFENCE)), guards=above) == []
    assert wanted(POLICY, seen(use(**OFFENCE)), guards=GuardSettings()) == []  # no bounds, no change


def test_a_default_stays_as_it_is_and_the_offender_gets_a_quota_of_its_own() -> None:
    by_default = use(rule=Entity(user=DEFAULT), **OFFENCE)
    found = only(wanted(POLICY, seen(by_default)))
    assert (found.quota, found.before, found.after) == (Quota(ALICE, WRITE), None, 500_000.0)
    pair = use(place(1, "alice", "etl"), rule=Entity(DEFAULT, "etl"), **OFFENCE)
    assert only(wanted(POLICY, seen(pair))).quota.entity == Entity("alice", "etl")
    client_id = use(place(1, "", "etl"), rule=Entity(client_id=DEFAULT), **OFFENCE)
    assert only(wanted(POLICY, seen(client_id))).quota.entity == Entity(client_id="etl")


def test_a_user_gets_no_own_quota_that_would_take_its_client_ids_along() -> None:
    # users/alice goes before users/<default>/clients/etl: it would lift that limit.
    others = {Quota(Entity(DEFAULT, "etl"), WRITE): InForce(100_000.0, 0)}
    assert wanted(POLICY, seen(use(rule=Entity(user=DEFAULT), **OFFENCE), quotas=others)) == []


def test_nothing_is_proposed_for_a_limit_that_no_entity_set() -> None:
    assert wanted(POLICY, seen(use(rule=None, **OFFENCE))) == []
    assert wanted(POLICY, seen(use(rule=None, limit_per_s=1_000_000.0, **OFFENCE))) == []


def test_an_exempt_name_protects_its_entity_and_every_bucket_it_is_in() -> None:
    observed = seen(use(**OFFENCE), clients=(client("alice", "mirror-maker"),))
    assert wanted(POLICY, observed)
    assert wanted(POLICY, observed, Exempt(users=("alice",))) == []
    assert wanted(POLICY, seen(use(**OFFENCE)), Exempt(users=("alice",))) == []  # not seen to send anything
    assert wanted(POLICY, observed, Exempt(client_ids=("mirror-maker",))) == []
    assert wanted(POLICY, observed, Exempt(patterns=("mirror-.*",))) == []
    assert wanted(POLICY, observed, Exempt(patterns=("mirror",)))  # whole names only
