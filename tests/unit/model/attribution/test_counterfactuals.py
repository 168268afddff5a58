"""Cases without one cause: each moves, drops or changes only its own requests, and the replay is that of what-if."""

from __future__ import annotations

import pytest

from kquota_spark.model.attribution.counterfactuals import (
    Case,
    LimitFrom,
    Replay,
    Request,
    in_own_rings,
    limit_kept,
    merged,
    replay_at_recorded_times,
    scaled,
    spread_in_time,
    spread_over_brokers,
    uncharged,
    with_own_times,
    without_requests,
)
from kquota_spark.model.loops.closed_loop import Charge, ClosedLoop, Connection, Reading, Sent
from kquota_spark.model.loops.meters import Meter
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from tests.support.chance import Chance

ALICE, BOB = ("alice", "a"), ("bob", "b")
LIMITS = (LimitFrom(0, 100.0),)
T = 1_000_000
REPLAY = Replay(RateConfig(), T)


def _case(*requests: tuple[int, int, tuple[str, str], int], limits: tuple[LimitFrom, ...] = LIMITS) -> Case:
    """Requests of one broker by time after T, connection, client and amount."""
    made = [
        Request(T + time_ms, order, 1, connection, client, amount)
        for order, (time_ms, connection, client, amount) in enumerate(requests)
    ]
    return with_own_times(Case(made, limits), REPLAY)


def _drawn(seed: int) -> Case:
    chance = Chance(seed)
    times_ms = sorted(chance.randrange(60_000) for _ in range(60))
    requests = [(at, chance.randrange(3), ALICE, chance.randrange(400)) for at in times_ms]
    return _case(*requests, limits=(LimitFrom(0, 200.0), LimitFrom(T + 30_000, 90.0)))


def test_the_throttle_of_a_burst_by_hand() -> None:
    # 1,500 bytes in a window of 10 s are 150/s: (150 - 100) / 100 * 10 s = 5 s. The next one comes 6 s later, with
    # 1,600 in 10 s: (160 - 100) / 100 * 10 s = 6 s.
    case = _case((0, 1, ALICE, 1_500), (6_000, 1, ALICE, 100))
    assert [throttle_ms for _, throttle_ms in REPLAY.throttles(case)] == [5_000, 6_000]
    # On its own clock the second one comes 6 s - 5 s later.
    assert [request.own_ms - T for request in case.requests] == [0, 1_000]


def test_a_client_that_waits_less_sends_earlier() -> None:
    # Without its bytes the first is not throttled, so the second comes after 1 s. 10 s of 100/s let 100 bytes pass.
    case = _case((0, 1, ALICE, 1_500), (6_000, 1, ALICE, 1_100))
    assert REPLAY.delay_ms(case) == 5_000 + 16_000
    assert REPLAY.delay_ms(scaled(case, {ALICE: (1, 2)}, kept=())) == 3_000  # 750 + 550 in 10 s: 130/s


@pytest.mark.parametrize("seed", range(20))
def test_without_a_change_all_is_as_recorded(seed: int) -> None:
    case = _drawn(seed)
    assert REPLAY.throttles(case) == [
        each for each in replay_at_recorded_times(REPLAY, case) if each[0].time_ms >= T
    ]
    for same in (
        limit_kept(case, T + 10**9),
        scaled(case, {}, ()),
        uncharged(case, {BOB}),
        without_requests(case, ()),
    ):
        assert REPLAY.delay_ms(same) == REPLAY.delay_ms(case) > 0


@pytest.mark.parametrize("seed", range(20))
def test_another_limit_gives_the_same_as_the_closed_loop_of_whatif(seed: int) -> None:
    case, tried = _drawn(seed), 60.0 + 5 * seed
    throttles = {request.order: ms for request, ms in replay_at_recorded_times(REPLAY, case)}
    sent: dict[int, list[Sent]] = {}
    for each in case.requests:
        charge = (Charge(0, each.amount, each.amount, tried),)
        own = Sent(each.time_ms, each.order, throttles.get(each.order, 0), 0, charge)
        sent.setdefault(each.connection, []).append(own)
    meter = Meter(SampleRing(RateConfig()))
    ClosedLoop([Connection(each) for each in sent.values()], [meter], Reading.PACED).run(10**12)
    assert meter.delay_ms > 0
    assert REPLAY.delay_ms(case._replace(limits=(LimitFrom(0, tried),))) == meter.delay_ms


def test_connections_that_do_not_wait_keep_their_times() -> None:
    case = _case((0, 1, ALICE, 1_500), (1_000, 1, ALICE, 100))
    # It sends 4 s before its throttle ends, so its own pace is below 0: with another limit it would wait.
    kept = Replay(RateConfig(), T, not_waiting=frozenset({1}))
    lower = case._replace(limits=(LimitFrom(0, 50.0),))
    assert (
        kept.delay_ms(lower) == 20_000 + 22_000
    )  # 1,500 and 1,600 bytes of 50/s in 10 s, both in one window


def test_only_the_period_counts() -> None:
    case = _case((-10_000, 1, ALICE, 1_500), (0, 1, ALICE, 100))
    assert [(each.order, ms) for each, ms in REPLAY.all_throttles(case)] == [(0, 5_000), (1, 6_000)]
    # Both are in one window: 1,600 bytes in 10 s, (160 - 100) / 100 * 10 s.
    assert REPLAY.delay_ms(case) == 6_000


def test_a_limit_stays_from_before_a_cut() -> None:
    limits = (LimitFrom(0, 300.0), LimitFrom(T, 100.0), LimitFrom(T + 5_000, 50.0))
    case = _case((0, 1, ALICE, 1_500), (6_000, 1, ALICE, 100), limits=limits)
    assert limit_kept(case, T).limits == (LimitFrom(0, 300.0),)
    assert limit_kept(case, T + 5_000).limits == limits[:2]
    assert REPLAY.delay_ms(limit_kept(case, T)) == 0


def test_uncharged_clients_still_wait_for_the_others() -> None:
    case = _case((0, 1, ALICE, 1_500), (1_000, 2, BOB, 10))
    assert {each.client[0]: ms for each, ms in REPLAY.throttles(uncharged(case, {BOB}))} == {
        "alice": 5_000,
        "bob": 5_000,
    }
    assert REPLAY.throttles(uncharged(case, {ALICE})) == []


def test_requests_go_to_the_broker_with_the_least_bytes() -> None:
    case = _case((-1, 1, ALICE, 7), (0, 1, ALICE, 5), (1, 1, ALICE, 3), (2, 1, ALICE, 1), (3, 1, ALICE, 2))
    # The first was before. Loads of brokers 1 to 3: 5 | 5, 3 | 5, 3, 1 | 5, 3, 3.
    assert [each.broker_id for each in spread_over_brokers(case, (1, 2, 3), T).requests] == [1, 1, 2, 3, 3]


def test_small_requests_of_a_connection_become_one_without_their_fixed_parts() -> None:
    case = _case(
        (0, 1, ALICE, 50), (60, 2, ALICE, 50), (90, 1, ALICE, 70), (100, 1, ALICE, 20), (101, 1, ALICE, 60),
        (102, 1, BOB, 50),
    )  # fmt: skip
    found = merged(case, {ALICE: 40}, within_ms=100).requests
    # 50 + (70 - 40) + max(20 - 40, 0) at 0 ms; the next is 101 ms later.
    assert [(each.time_ms - T, each.amount, each.client) for each in found] == [
        (0, 80, ALICE), (60, 50, ALICE), (101, 60, ALICE), (102, 50, BOB),
    ]  # fmt: skip


def test_a_burst_comes_in_equal_parts_and_nothing_is_lost() -> None:
    case = _case((0, 1, ALICE, 700), (100, 1, ALICE, 301), (200, 2, BOB, 60), (90_000, 1, ALICE, 5))
    found = spread_in_time(case, {T: {0, 1, 2}}, over_s=60)
    of_alice = [each for each in found.requests if each.client == ALICE]
    # 1,001 bytes in 60 parts: 16 or 17 bytes each, one per second.
    assert [each.amount for each in of_alice[:3]] == [16, 17, 17]
    assert {each.time_ms - T for each in of_alice[:60]} == set(range(0, 60_000, 1_000))
    assert sum(each.amount for each in found.requests) == 700 + 301 + 60 + 5
    assert of_alice[60].time_ms == T + 90_000


def test_each_client_alone_has_a_ring_of_its_own() -> None:
    case = _case((0, 1, ALICE, 800), (0, 2, BOB, 800))
    assert REPLAY.delay_ms(case) == 6_000  # 1,600 bytes: (160 - 100) / 100 * 10 s
    assert REPLAY.delay_ms(in_own_rings(case)) == 0


def test_a_throttled_fetch_is_measured_and_taken_back() -> None:
    probe = Request(T, 0, 1, 1, ALICE, 1_500, is_probe=True)
    after = Request(T + 5_000, 1, 1, 1, ALICE, 1_000)
    case = with_own_times(Case([probe, after], LIMITS), REPLAY)
    assert [(each.order, ms) for each, ms in REPLAY.throttles(case)] == [(0, 5_000)]


def test_thread_time_is_throttled_for_one_sample_at_most() -> None:
    # 100 % of a thread is 1,000,000 microseconds per second: 30 s in one window is far above 100 %.
    replay = Replay(RateConfig(), T, is_thread_time=True)
    case = Case([Request(T, 0, 1, 1, ALICE, 30_000_000, own_ms=T)], LIMITS)
    assert replay.delay_ms(case) == 1_000
