"""A raise goes to who is throttled much while the brokers have headroom, a step at a time, never downwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kquota_spark.enforce.guard_settings import Bounds, GuardSettings
from kquota_spark.enforce.policies.context import demand_per_s, used_per_s
from kquota_spark.enforce.policies.observations import BucketUse, RateSeconds
from kquota_spark.enforce.policies.policy import Raise
from kquota_spark.enforce.policies.raise_policy import throttled_buckets
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.rightsize.target import RightSize
from tests.support.enforcement.observed_uses import DAY, WRITE, broker, only, place, seen, use, wanted

# 70 % of 60 MB/s are 42 MB/s; the brokers use 10 MB/s.
POLICY = Raise(name="raise-throttled", kind="raise", broker_capacity_per_s={WRITE.value: 60_000_000.0})
HELD: dict[str, Any] = {"throttled_seconds": 400, "throttled_rate_per_s": 1_050_000.0, "episodes": 3}


def test_a_client_that_is_throttled_much_gets_a_step_more() -> None:
    rates = {place(): (RateSeconds(900_000.0, 600), RateSeconds(1_100_000.0, 250), RateSeconds(2e6, 150))}
    found = only(wanted(POLICY, seen(use(**HELD), rates=rates)))
    # demand: 1,050,000 x (1 + 0.4) = 1,470,000; a step of 25 % leads to 1,250,000
    assert (found.before, found.after) == (1_000_000.0, 1_250_000.0)
    assert found.expires_at_ms is None
    assert found.reason == (
        "throttled 40 % of 1,000 seconds on broker 1 since 2026-11-20 05:40 UTC, 3 episodes, and the brokers have "
        "headroom: from 1,000,000 B/s to 1,250,000 B/s; it wanted about 1,470,000 B/s by the share of its time "
        "throttled"
    )
    assert found.would_have.startswith("in the last day it would have throttled about 150 of 1,000 seconds")
    assert found.evidence.numbers["demand_at_least_per_s"] == 1_470_000.0


def test_it_does_not_go_beyond_what_was_wanted() -> None:
    little = use(throttled_seconds=210, throttled_rate_per_s=1_000_000.0)
    assert only(wanted(POLICY, seen(little))).after == 1_210_000.0  # 1,000,000 x 1.21, under the step


def test_demand_is_never_taken_from_what_a_throttled_client_was_left() -> None:
    # Rates of a throttled client are low because it is throttled: the limit counts.
    starved = use(throttled_seconds=500, throttled_rate_per_s=200_000.0, p95_rate_per_s=100_000.0)
    assert demand_per_s(starved, 1_000_000.0) == 1_500_000.0
    assert used_per_s(starved) == 200_000.0
    # a few throttled seconds are among the 5 % that are left out
    for few, demand in ((0, 100_000.0), (50, 100_000.0), (51, 1_051_000.0)):
        hardly = use(p95_rate_per_s=100_000.0, throttled_seconds=few)
        assert demand_per_s(hardly, 1_000_000.0) == pytest.approx(demand, rel=1e-12)


def test_who_is_throttled_little_or_was_hardly_there_gets_nothing() -> None:
    assert wanted(POLICY, seen(use(**{**HELD, "throttled_seconds": 200}))) == []
    assert wanted(POLICY, seen(use(**{**HELD, "throttled_seconds": 201})))
    assert wanted(POLICY, seen(use(**{**HELD, "seconds": 599}))) == []


def test_who_takes_more_than_its_limit_is_not_rewarded() -> None:
    assert wanted(POLICY, seen(use(**HELD, mean_rate_per_s=1_200_000.0)))
    assert wanted(POLICY, seen(use(**HELD), use(place(2), mean_rate_per_s=1_200_001.0))) == []


def test_a_few_throttled_seconds_are_no_reason_whatever_the_policy_says() -> None:
    eager = replace(POLICY, throttled_percent=1.0)
    assert wanted(eager, seen(use(throttled_seconds=50, p95_rate_per_s=100_000.0))) == []
    assert wanted(eager, seen(use(throttled_seconds=51, p95_rate_per_s=100_000.0)))


def _on(broker_id: int, user: str = "alice") -> BucketUse:
    return use(place(broker_id, user), rule=Entity(user=user), **HELD)


def test_without_headroom_on_one_of_its_brokers_there_is_no_raise() -> None:
    busy = (
        broker(1),
        broker(2, 41_900_000.0),
    )  # 42,000,000 less 41,900,000 leaves 100,000; 250,000 are needed
    assert wanted(POLICY, seen(_on(1), brokers=busy))
    assert wanted(POLICY, seen(_on(1), _on(2), brokers=busy)) == []
    assert wanted(POLICY, seen(_on(1), brokers=())) == []  # a broker of which nothing is known has none


def test_raises_of_one_look_share_the_headroom_in_order_of_names() -> None:
    # 600,000 are left: enough for two raises of 250,000, not for three.
    left = (broker(1, 41_400_000.0),)
    found = wanted(POLICY, seen(_on(1, "carol"), _on(1, "alice"), _on(1, "bob"), brokers=left))
    assert [str(one.quota.entity) for one in found] == ["users/alice", "users/bob"]


def _sized(target: float, upper: float | None = 1_150_000.0) -> dict[tuple[QuotaType, Bucket], RightSize]:
    size = RightSize(
        target=target, uncapped=target, is_at_least=upper is None, quantile=1_080_000.0, lower=1_000_000.0, upper=upper,
        hidden_percent=0.0, above_percent=0.0, above_least_percent=0.0, above_most_percent=0.0, left_out=None,
        odd_ratio=1.0, days=28,
    )  # fmt: skip
    return {(QuotaType.PRODUCE, Bucket("alice", "")): size}


def test_a_right_size_goes_before_the_share_of_throttled_seconds() -> None:
    found = only(wanted(POLICY, seen(use(**HELD), sizes=_sized(1_188_400.0))))
    # Three digits of 1,188,400: below the step of 25 %, and below the other estimate of 1,470,000.
    assert (found.before, found.after) == (1_000_000.0, 1_190_000.0)
    assert found.reason.endswith(
        "from 1,000,000 B/s to 1,190,000 B/s; its right size of 28 days is 1,190,000 B/s, for a demand of "
        "1,000,000 B/s to 1,150,000 B/s"
    )
    numbers = {
        name: found.evidence.numbers[name]
        for name in ("target_per_s", "demand_per_s", "lower_per_s", "upper_per_s")
    }
    assert numbers == {
        "target_per_s": 1_190_000, "demand_per_s": 1_080_000, "lower_per_s": 1_000_000, "upper_per_s": 1_150_000,
    }  # fmt: skip
    assert found.evidence.numbers["history_days"] == 28
    assert "demand_at_least_per_s" not in found.evidence.numbers


def test_guards_and_steps_hold_for_a_right_size_too() -> None:
    assert only(wanted(POLICY, seen(use(**HELD), sizes=_sized(9e6)))).after == 1_250_000.0  # a step of 25 %
    low = GuardSettings(bounds={WRITE.value: Bounds(floor=100_000.0, ceiling=1_100_000.0)})
    assert only(wanted(POLICY, seen(use(**HELD), sizes=_sized(1_190_000.0)), guards=low)).after == 1_100_000.0
    # 42,000,000 less 41,900,000 leaves 100,000; 190,000 are needed.
    busy = (broker(1, 41_900_000.0),)
    assert wanted(POLICY, seen(use(**HELD), sizes=_sized(1_190_000.0), brokers=busy)) == []


def test_a_limit_that_fits_four_weeks_is_not_raised_for_one_day() -> None:
    assert wanted(POLICY, seen(use(**HELD), sizes=_sized(990_000.0))) == []


def test_a_demand_without_an_end_is_named_as_one() -> None:
    found = only(wanted(POLICY, seen(use(**HELD), sizes=_sized(1_190_000.0, upper=None))))
    assert found.reason.endswith("for a demand of at least 1,080,000 B/s")
    assert "upper_per_s" not in found.evidence.numbers


def test_the_most_throttled_buckets_are_sized_first_and_quiet_ones_not() -> None:
    observed = seen(
        use(place(user="bob"), **HELD, throttle_ms=5),
        use(place(user="carol"), **HELD, throttle_ms=9),
        use(place(user="dave"), **{**HELD, "throttled_seconds": 200}, throttle_ms=99),
    )
    found = throttled_buckets(POLICY, observed.periods[DAY])
    assert [bucket.user for _, bucket in found] == ["carol", "bob"]
