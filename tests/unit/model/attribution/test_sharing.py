"""Who slowed whom: caused and suffered delays have one sum, equal users are equal, and the indices are known ones."""

from __future__ import annotations

from collections import Counter

import pytest

from kquota_spark.model.attribution.counterfactuals import (
    Case,
    Client,
    LimitFrom,
    Replay,
    Request,
    with_own_times,
)
from kquota_spark.model.attribution.sharing import (
    OTHERS,
    Fairness,
    fairness,
    jain_index,
    max_min_fair,
    who_slowed_whom,
)
from kquota_spark.model.measure.sampled_rate import RateConfig
from tests.support.attribution.labelled import CAUSES
from tests.support.attribution.labelled import shared_bucket as shared
from tests.support.attribution.simulated import Recording, Sender, observed, sent
from tests.support.chance import Chance

ALICE, BOB = ("alice", "a"), ("bob", "b")
HOUR_MS = 3_600_000
T = 10 * HOUR_MS
REPLAY = Replay(RateConfig(), T)


def _case(*requests: tuple[int, int, Client, int], limit: float = 100.0) -> Case:
    made = [
        Request(T + time_ms, order, 1, connection, client, amount)
        for order, (time_ms, connection, client, amount) in enumerate(requests)
    ]
    return with_own_times(Case(made, (LimitFrom(0, limit),)), REPLAY)


def test_one_that_fills_the_bucket_causes_what_another_suffers() -> None:
    # Alice's 1,500 bytes throttle her by 5 s, and Bob's request of 0 bytes as well. Bob causes nothing.
    found = who_slowed_whom(_case((0, 1, ALICE, 1_500), (1_000, 2, BOB, 0)), REPLAY)
    assert [(each.client, each.caused_ms, each.suffered_ms, each.of_others_ms) for each in found.clients] == [
        (ALICE, 10_000, 5_000, 5_000),
        (BOB, 0, 5_000, 0),
    ]
    assert found.matrix == {
        (ALICE, ALICE): 5_000, (ALICE, BOB): 5_000, (BOB, ALICE): 0, (BOB, BOB): 0,
    }  # fmt: skip


def test_two_that_are_only_together_above_the_limit_share_the_delay() -> None:
    # 800 bytes each at the same time: only the second is throttled, by (160 - 100) / 100 * 10 s. Each caused half.
    found = who_slowed_whom(_case((0, 1, ALICE, 800), (0, 2, BOB, 800)), REPLAY)
    assert [(each.client[0], each.caused_ms, each.suffered_ms) for each in found.clients] == [
        ("alice", 3_000, 0),
        ("bob", 3_000, 6_000),
    ]


@pytest.mark.parametrize("seed", range(300, 302))
def test_caused_and_suffered_delays_have_one_sum(seed: int) -> None:
    for made in (shared, *CAUSES.values()):
        bucket = observed(made(Chance(seed)))
        found = who_slowed_whom(bucket.case, bucket.replay)
        assert sum(each.caused_ms for each in found.clients) == bucket.delay_ms
        assert sum(each.suffered_ms for each in found.clients) == bucket.delay_ms
        assert sum(found.matrix.values()) == bucket.delay_ms


@pytest.mark.parametrize("count", [2, 4, 10])
def test_equal_users_differ_by_2_percent_at_most(count: int) -> None:
    # Together they want 150 % of the limit, in requests of 20 kB each 200 ms or less often.
    limits = (LimitFrom(0, 100_000.0),)
    senders = [
        Sender((f"user{number}", "app"), lambda _: 20_000.0, lambda _: 400.0 * count / 3)
        for number in range(count)
    ]
    bucket = observed(Recording(sent(senders, limits, Chance(count)), limits))
    found = who_slowed_whom(bucket.case, bucket.replay)
    # The sizes are drawn, so the users are equal per byte.
    amounts = Counter[Client]()
    for request in bucket.case.requests:
        amounts[request.client] += request.amount
    caused = [each.caused_ms / amounts[each.client] for each in found.clients]
    # Drawn orders have an error on top.
    error = max(each.standard_error_ms / amounts[each.client] for each in found.clients)
    assert max(caused) - min(caused) <= 0.02 * max(caused) + 3 * error
    assert error < 0.005 * max(caused)
    assert (found.orders == 0) == (count <= 8)
    assert [each.standard_error_ms > 0 for each in found.clients] == [count > 8] * count


def test_more_than_20_clients_are_one_row_beyond_the_largest() -> None:
    requests = [(number, number, (f"user{number:02}", ""), 100 + number) for number in range(30)]
    found = who_slowed_whom(_case(*requests), REPLAY)
    assert len(found.clients) == 20
    assert found.others == 11
    assert OTHERS in [each.client for each in found.clients]
    assert ("user29", "") in [each.client for each in found.clients]


@pytest.mark.parametrize(
    ("values", "index"),
    [([5.0, 5.0, 5.0], 1.0), ([9.0, 0.0, 0.0], 1 / 3), ([4.0, 2.0], 36 / 40), ([0.0, 0.0], 1.0)],
)
def test_jains_index_by_hand(values: list[float], index: float) -> None:
    assert jain_index(values) == index


@pytest.mark.parametrize(
    ("total", "demands", "parts"),
    [
        (12.0, [2.0, 8.0, 10.0], [2.0, 5.0, 5.0]),
        (12.0, [10.0, 8.0, 2.0], [5.0, 5.0, 2.0]),
        (30.0, [2.0, 8.0, 10.0], [2.0, 8.0, 10.0]),
        (9.0, [4.0, 4.0, 4.0], [3.0, 3.0, 3.0]),
        (5.0, [], []),
    ],
)
def test_small_demands_are_met_first(total: float, demands: list[float], parts: list[float]) -> None:
    assert max_min_fair(total, demands) == parts


def test_the_fairness_of_an_hour_by_hand() -> None:
    # Alice got 300 and was throttled in 1,800 of 3,600 s, so she wanted 600. Bob got 900, and wanted it. The fair parts
    # of 1,200 are 600 and 600. Alice lacks 300, a quarter of all. The shares of the fair parts are 0.5 and 1.5:
    # (0.5 + 1.5)^2 / (2 * (0.25 + 2.25)) = 4 / 5.
    case = _case((0, 1, ALICE, 300), (5, 2, BOB, 900))
    throttles = [(case.requests[0], 1_800_000)]
    assert fairness(case, throttles, T, T + HOUR_MS) == [Fairness(T, 2, 0.8, 300.0, 25.0)]


def test_each_hour_counts_alone_and_a_part_of_an_hour_counts_as_it_is() -> None:
    case = _case((0, 1, ALICE, 300), (HOUR_MS + 5, 1, ALICE, 100), (HOUR_MS + 6, 2, BOB, 100))
    assert fairness(case, [], T, T + HOUR_MS + 60_000) == [
        Fairness(T, 1, 1.0, 0.0, 0.0),
        Fairness(T + HOUR_MS, 2, 1.0, 0.0, 0.0),
    ]
