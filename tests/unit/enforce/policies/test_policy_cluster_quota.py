"""One value on every broker keeps the whole cluster at a budget, as the load lies; the even split does not serve it."""

from __future__ import annotations

from typing import Any

import pytest

from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.guard_settings import Bounds, Exempt, GuardSettings
from kquota_spark.enforce.policies.cluster_quota_policy import served
from kquota_spark.enforce.policies.observations import BucketUse, Observations
from kquota_spark.enforce.policies.policy import ClusterQuota
from kquota_spark.model.measure.max_min_fair import value_under
from tests.support.chance import Chance
from tests.support.enforcement.observed_uses import ALICE, WRITE, broker, only, place, seen, use, wanted

MB = 1_000_000.0
POLICY = ClusterQuota(name="budgets", kind="cluster_quota", key=WRITE, budgets={"users/alice": 30 * MB})


def _load(*demands: float, limit: float = 10 * MB) -> list[BucketUse]:
    """What alice does on brokers 1, 2, ...; nothing of it throttled."""
    return [
        use(place(number), limit_per_s=limit, p95_rate_per_s=demand, peak_rate_per_s=demand)
        for number, demand in enumerate(demands, 1)
    ]


def _observed(*demands: float, limit: float = 10 * MB) -> Observations:
    return seen(*_load(*demands, limit=limit))


@pytest.mark.parametrize(
    ("demands", "value", "even_serves"),
    [
        # 2 + 3 + 25 = 30: all of it may be served; with 10 for each broker 2 + 3 + 10 = 15 is
        ((25.0, 3.0, 2.0), 25.0, 15.0),
        # 5 + 12.5 + 12.5 = 30; evenly 5 + 10 + 10
        ((20.0, 20.0, 5.0), 12.5, 25.0),
        ((10.0, 10.0, 10.0), 10.0, 30.0),
        ((100.0, 100.0, 100.0), 10.0, 30.0),
        # 9 are left over, and the broker with 15 may have them: 24 + 6 = 30
        ((15.0, 6.0, 0.0), 24.0, 16.0),
        ((0.0, 0.0, 0.0), 30.0, 0.0),
    ],
)
def test_the_value_under_which_the_shares_add_up_to_the_budget(
    demands: tuple[float, ...], value: float, even_serves: float
) -> None:
    assert value_under(demands, 30.0) == value
    assert served(demands, 10.0) == even_serves
    assert served(demands, value) == min(30.0, sum(demands))


def test_shares_never_exceed_the_budget_and_use_all_of_it_if_wanted(chance: Chance) -> None:
    for number in range(2_000):
        budget = chance.uniform(1.0, 100.0)
        demands = [chance.choice((0.0, chance.uniform(0.0, 80.0))) for _ in range(chance.randint(1, 12))]
        value = value_under(demands, budget)
        total = served(demands, value)
        assert total <= budget * (1 + 1e-12), number
        assert total == pytest.approx(min(budget, sum(demands)), rel=1e-12), number
        assert value >= budget / len(demands) * (1 - 1e-12), number  # never worse than the even split
        assert value <= budget * (1 + 1e-12), number


def test_a_skewed_load_gets_one_value_by_its_skew_and_the_evidence_shows_the_even_split_s_loss() -> None:
    skewed = _observed(25 * MB, 3 * MB, 2 * MB, limit=20 * MB)
    found = only(wanted(POLICY, skewed))
    assert (found.quota, found.before, found.after) == (Quota(ALICE, WRITE), 20 * MB, 25 * MB)
    assert found.reason == (
        "budget of 30,000,000 B/s for the cluster, and since 2026-11-21 04:40 UTC 3 brokers had a demand of "
        "30,000,000 B/s, 25,000,000 B/s of it on one. One value holds on every broker: 25,000,000 B/s serves "
        "30,000,000 B/s; an even split of 10,000,000 B/s would serve 15,000,000 B/s"
    )
    assert found.evidence.numbers == {
        "budget_per_s": 30 * MB,
        "used_per_s": 30 * MB,
        "serves_per_s": 30 * MB,
        "even_split_per_s": 10 * MB,
        "even_split_serves_per_s": 15 * MB,
        "even_split_loses_per_s": 15 * MB,
        "worst_case_per_s": 75 * MB,  # if the load grew to the value on all three before the next look
        "share_of_broker_1_per_s": 25 * MB,
        "share_of_broker_2_per_s": 3 * MB,
        "share_of_broker_3_per_s": 2 * MB,
        "demand_of_broker_1_per_s": 25 * MB,
        "demand_of_broker_2_per_s": 3 * MB,
        "demand_of_broker_3_per_s": 2 * MB,
    }


def test_moving_the_load_changes_the_value() -> None:
    before = only(wanted(POLICY, _observed(25 * MB, 3 * MB, 2 * MB, limit=20 * MB)))
    # The leaders move: three brokers at 14 want 42 in all, and each may have 10; a step goes half of the way at most.
    first = only(wanted(POLICY, _observed(14 * MB, 14 * MB, 14 * MB, limit=25 * MB)))
    second = only(wanted(POLICY, _observed(14 * MB, 14 * MB, 14 * MB, limit=12.5 * MB)))
    assert (before.after, first.after, second.after) == (25 * MB, 12.5 * MB, 10 * MB)
    shares = [value for name, value in second.evidence.numbers.items() if name.startswith("share_")]
    assert shares == [10 * MB, 10 * MB, 10 * MB]


def test_a_throttled_broker_wants_more_than_it_got() -> None:
    # Broker 1 is held at 10 MB/s in 40 % of its seconds: 10 x 1.4 = 14, and 30 - (14 + 4) = 12 more are left for it.
    held = use(place(1), limit_per_s=10 * MB, throttled_seconds=400, throttled_rate_per_s=10 * MB)
    rest = use(place(2), limit_per_s=10 * MB, p95_rate_per_s=4 * MB)
    found = only(wanted(POLICY, seen(held, rest)))
    assert found.evidence.numbers["demand_of_broker_1_per_s"] == 14 * MB
    assert found.evidence.numbers["demand_of_broker_3_per_s"] == 0.0
    assert found.after == 15 * MB  # on the way to 26, by 50 %


def test_brokers_that_are_over_the_budget_though_throttled_are_cut() -> None:
    # Three brokers at 12 MB/s, throttled half of the time: 36 are used and more are wanted; 10 each are the budget.
    held: dict[str, Any] = {"limit_per_s": 12 * MB, "throttled_seconds": 500, "throttled_rate_per_s": 12 * MB}
    found = only(wanted(POLICY, seen(*(use(place(number), rule=ALICE, **held) for number in (1, 2, 3)))))
    assert (found.before, found.after) == (12 * MB, 10 * MB)
    assert found.evidence.numbers["used_per_s"] == 36 * MB
    assert found.is_lowering and found.evidence.throttled_seconds == 1_500 and found.evidence.is_over_budget


@pytest.mark.parametrize(("limit", "count"), [(11.2, 0), (10.9, 0), (11.5, 1), (9.0, 1)])
def test_a_change_of_less_than_ten_percent_is_none(limit: float, count: int) -> None:
    # Wanted are 10.2: from 11.2 that is 8.9 %, from 10.9 6.4 %, from 11.5 11.3 %, from 9.0 13.3 %
    budget = ClusterQuota(name="budgets", kind="cluster_quota", key=WRITE, budgets={"users/alice": 30.6 * MB})
    assert len(wanted(budget, _observed(20 * MB, 20 * MB, 20 * MB, limit=limit * MB))) == count


def test_without_a_quota_the_even_split_comes_first() -> None:
    found = only(wanted(POLICY, seen(use(rule=None))))
    assert (found.before, found.after) == (None, 10 * MB)
    assert found.reason == (
        "budget of 30,000,000 B/s for the cluster and no quota yet: 10,000,000 B/s on each of 3 brokers"
    )
    assert wanted(POLICY, seen(use(rule=None), brokers=())) == []
    assert wanted(POLICY, seen(use(rule=None)), Exempt(users=("alice",))) == []


def test_a_value_under_the_floor_is_not_proposed() -> None:
    floor = ClusterQuota(
        name="budgets", kind="cluster_quota", key=WRITE, budgets=POLICY.budgets, floor_per_broker=11 * MB
    )
    assert wanted(floor, _observed(20 * MB, 20 * MB, 20 * MB, limit=15 * MB)) == []  # 10 is wanted
    assert only(wanted(floor, _observed(14 * MB, 14 * MB, limit=20 * MB))).after == 16 * MB  # 14 and 2 left
    assert wanted(floor, seen(use(rule=None))) == []


def test_the_floor_of_the_guards_never_lifts_a_value_over_the_budget() -> None:
    guards = GuardSettings(bounds={WRITE.value: Bounds(floor=12 * MB, ceiling=50 * MB)})
    # Each of three brokers could take 12 with a floor of 12: 36 are more than 30. From 9, 10 is wanted.
    assert wanted(POLICY, _observed(20 * MB, 20 * MB, 20 * MB, limit=9 * MB), guards=guards) == []
    # Coming down from 16 the floor is still nearer to the budget.
    assert (
        only(wanted(POLICY, _observed(20 * MB, 20 * MB, 20 * MB, limit=16 * MB), guards=guards)).after
        == 12 * MB
    )


def test_brokers_count_even_if_nothing_of_the_entity_is_on_them() -> None:
    five = seen(*_load(20 * MB, 20 * MB, limit=20 * MB), brokers=tuple(broker(n) for n in range(1, 6)))
    found = only(wanted(POLICY, five))
    assert found.after == 15 * MB  # two brokers share 30
    assert found.evidence.numbers["even_split_per_s"] == 6 * MB
    assert found.evidence.numbers["even_split_loses_per_s"] == 18 * MB  # 30 less 2 x 6
