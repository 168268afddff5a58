"""Requests under other limits as clients that wait send them. At 1,000 B/s a byte of the limit is a millisecond."""

from __future__ import annotations

import pytest

from kquota_spark.model.loops.clocks import Clock
from kquota_spark.model.loops.closed_loop import (
    Charge,
    ClosedLoop,
    Connection,
    Kind,
    Reading,
    Sent,
)
from kquota_spark.model.loops.meters import Meter
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing

UNTIL_MS = 100_000


def sent(
    time_ms: int, amount: int, limit: float | None, *, was_ms: int = 0, order: int | None = None,
    kind: Kind = Kind.PLAIN, meter: int = 0,
) -> Sent:  # fmt: skip
    """A request; `was_ms` is its recorded throttle. A fetch has a kind of its own."""
    charge = Charge(meter, amount, amount, limit, is_fetch=kind is not Kind.PLAIN)
    return Sent(time_ms, time_ms if order is None else order, was_ms, was_ms, (charge,), kind)


def ran(
    *connections: Connection, meters: int = 1, reading: Reading = Reading.USUAL, until_ms: int = UNTIL_MS
) -> ClosedLoop:
    loop = ClosedLoop(connections, [Meter(SampleRing(RateConfig())) for _ in range(meters)], reading)
    loop.run(until_ms)
    return loop


def test_a_higher_limit_takes_the_recorded_throttle_out_and_keeps_the_own_pace() -> None:
    # At 1,000 B/s 12,000 B have a throttle of 12 s - 10 s. Of the 2,300 ms to the next request 300 are the client's.
    loop = ran(Connection([sent(0, 12_000, 2_000.0, was_ms=2_000), sent(2_300, 100, 2_000.0)]))
    assert loop.times_ms == {0: 0, 2_300: 300}
    assert loop.meters[0].delay_ms == 0


def test_a_lower_limit_moves_all_later_requests_of_the_connection() -> None:
    loop = ran(
        Connection([sent(0, 12_000, 500.0, was_ms=2_000), sent(2_300, 100, 500.0), sent(2_500, 0, 500.0)])
    )
    # 12,000 B / 500 - 10 s = 14 s: the next request comes at 300 + 14,000 ms. By then the first sample is purged, and
    # 100 B have no throttle. The last request keeps its 200 ms.
    assert loop.times_ms == {0: 0, 2_300: 14_300, 2_500: 14_500}
    assert (loop.meters[0].delay_ms, loop.meters[0].throttled_requests, loop.meters[0].mutes) == (
        14_000,
        1,
        {0: 14_000},
    )


def test_lost_time_that_is_made_up_for_moves_only_what_the_mute_covers() -> None:
    requests = [sent(0, 12_000, 500.0, was_ms=2_000), sent(2_300, 100, 500.0), sent(20_000, 0, 500.0)]
    loop = ran(Connection(requests), reading=Reading.CATCHES_UP)
    assert loop.times_ms == {0: 0, 2_300: 14_000, 20_000: 20_000}


@pytest.mark.parametrize("reading", Reading)
def test_the_same_limit_returns_the_recorded_times_also_where_clocks_make_the_pace_negative(
    reading: Reading,
) -> None:
    # The second request was logged 5 ms before the unmute, the third in its throttle: 12,000 - 10,995 ms.
    requests = [
        sent(0, 12_000, 1_000.0, was_ms=2_000),
        sent(1_995, 0, 1_000.0, was_ms=1_005),
        sent(2_300, 0, 1_000.0),
    ]
    loop = ran(Connection(requests), reading=reading)
    assert loop.times_ms == {0: 0, 1_995: 1_995, 2_300: 2_300}


def test_a_client_by_the_clock_keeps_its_usual_gap_where_a_throttle_hid_it() -> None:
    requests = [sent(0, 12_000, 2_000.0, was_ms=2_000), sent(2_001, 100, 2_000.0), sent(2_301, 100, 2_000.0)]
    # Without the throttle of 2 s the second request comes after the usual 300 ms, not after the 1 ms that was left.
    loop = ran(Connection(requests, clock=Clock(300, 1)))
    assert loop.times_ms == {0: 0, 2_001: 300, 2_301: 600}


def test_a_client_by_the_clock_has_its_next_request_ready_when_a_new_throttle_ends() -> None:
    requests = [sent(0, 12_000, 1_000.0), sent(300, 100, 1_000.0), sent(40_000, 100, 1_000.0)]
    # The new throttle of 2 s covers the 300 ms. After 2,001 ms 12,100 B are measured in 10.001 s: 99 ms. That is
    # less than the next gap.
    loop = ran(Connection(requests, clock=Clock(300, 1)))
    assert loop.times_ms == {0: 0, 300: 2_001, 40_000: 2_001 + 39_700}


@pytest.mark.parametrize("reading", Reading)
def test_a_client_by_the_clock_keeps_its_times_under_the_same_limit(reading: Reading) -> None:
    requests = [
        sent(0, 12_000, 1_000.0, was_ms=2_000),
        sent(2_001, 0, 1_000.0, was_ms=0),
        sent(2_003, 0, 1_000.0),
    ]
    # After 2,001 ms 12,000 B are measured in 10.001 s, which is 1,999 ms, and after 2,003 ms 1,997 ms.
    requests[1] = requests[1]._replace(throttle_ms=1_999)
    loop = ran(Connection(requests, clock=Clock(300, 5)), reading=reading)
    assert loop.times_ms == {0: 0, 2_001: 2_001, 2_003: 2_003}


def test_a_connection_that_does_not_wait_keeps_its_times_and_its_throttles_count() -> None:
    requests = [sent(0, 12_000, 500.0, was_ms=2_000), sent(100, 0, 500.0, was_ms=1_900)]
    loop = ran(Connection(requests, does_wait=False))
    # 24 s - 10 s, and 24 s - 10.1 s.
    assert loop.times_ms == {0: 0, 100: 100}
    assert loop.meters[0].delay_ms == 14_000 + 13_900


def test_two_connections_share_what_the_ring_measures() -> None:
    one = Connection([sent(0, 12_000, 1_000.0, was_ms=0)])
    other = Connection([sent(500, 0, 1_000.0)])
    # The window is 10.5 s half a second after its first event.
    assert ran(one, other).meters[0].delay_ms == 2_000 + 1_500


def test_a_request_in_two_buckets_waits_for_the_longer_throttle() -> None:
    charges = (Charge(0, 12_000, 12_000, 1_000.0), Charge(1, 15_000, 15_000, 1_000.0))
    loop = ran(Connection([Sent(0, 0, 0, 0, charges), sent(10, 0, None, order=1)]), meters=2)
    assert loop.times_ms == {0: 0, 1: 5_010}
    assert [meter.delay_ms for meter in loop.meters] == [2_000, 5_000]


def test_what_leaves_the_period_is_not_served() -> None:
    requests = [sent(0, 12_000, 1_000.0), sent(100, 700, 1_000.0), sent(200, 50, 1_000.0)]
    loop = ran(Connection(requests), until_ms=2_000)
    assert loop.times_ms == {0: 0}
    assert (loop.meters[0].served, loop.meters[0].requests) == (12_000, 1)


def test_a_throttled_fetch_under_a_higher_limit_gets_at_once_what_it_got_later() -> None:
    requests = [
        sent(0, 0, 2_000.0, was_ms=2_000, kind=Kind.THROTTLED_FETCH),
        sent(2_010, 12_000, 2_000.0, kind=Kind.FETCH),
        sent(2_110, 10, 2_000.0, kind=Kind.FETCH),
    ]
    loop = ran(Connection(requests))
    # 12,000 B in 10 s are below 2,000 B/s. The fetch after it keeps its 100 ms; the one that asked again is not sent.
    assert loop.times_ms == {0: 0, 2_110: 100}
    assert (loop.meters[0].served, loop.meters[0].delay_ms) == (12_010, 0)


def test_a_fetch_that_a_lower_limit_throttles_is_unrecorded_and_asks_again() -> None:
    requests = [
        sent(0, 9_000, 1_000.0, kind=Kind.FETCH),
        sent(10, 2_000, 1_000.0, kind=Kind.FETCH),
    ]
    loop = ran(Connection(requests))
    # At 10 ms 11,000 B in 10.01 s have a throttle of 990 ms; at 1,001 ms the window is 10.001 s, 999 ms; and so on,
    # until the window is 11 s long.
    meter = loop.meters[0]
    assert meter.served == 11_000
    assert loop.times_ms is not None
    assert 1_001 < loop.times_ms[10] <= 11_000 + meter.longest_ms


def test_a_fetch_larger_than_an_empty_bucket_is_cut_to_it_as_brokers_do() -> None:
    # 10 windows of 1 s under 1,000 B/s are 10,000 B.
    loop = ran(Connection([sent(0, 99_000, 1_000.0, kind=Kind.FETCH)]))
    assert (loop.meters[0].served, loop.meters[0].delay_ms) == (10_000, 0)


def test_an_eager_client_is_ready_when_the_throttle_ends() -> None:
    requests = [sent(0, 12_000, 500.0, was_ms=2_000), sent(2_300, 0, 500.0)]
    # 14 s instead of 14.3 s; under the recorded limit it keeps the 2,300 ms.
    assert ran(Connection(requests), reading=Reading.EAGER).times_ms == {0: 0, 2_300: 14_000}


def test_a_throttled_fetch_under_its_recorded_limit_keeps_its_throttle() -> None:
    charge = Charge(0, 0, 0, 1_000.0, is_fetch=True, inferred_ms=700)
    loop = ran(Connection([Sent(0, 0, 700, 700, (charge,)), sent(710, 5, 1_000.0)]))
    assert (loop.times_ms, loop.meters[0].delay_ms) == ({0: 0, 710: 710}, 700)


def test_a_connection_that_was_active_goes_on_after_its_record() -> None:
    requests = [sent(0, 12_000, 2_000.0, was_ms=2_000), sent(2_300, 100, 2_000.0), sent(2_400, 100, 2_000.0)]
    loop = ran(Connection(requests, continues=True), until_ms=2_500)
    # At 0, 300 and 400 ms. It was silent for the last 100 ms, so it goes on at 500 ms with the second request: 12,300 B
    # of 20,000 in 10 s. 100 ms later the third follows, and so on.
    meter = loop.meters[0]
    assert (meter.requests, meter.served, meter.added, meter.delay_ms) == (15, 12_000 + 14 * 100, 12 * 100, 0)
    assert loop.times_ms == {0: 0, 2_300: 300, 2_400: 400}


def test_a_connection_that_goes_on_pauses_as_usual_after_a_throttle_that_ran_past_the_end() -> None:
    requests = [sent(0, 12_000, 2_000.0, was_ms=2_000), sent(2_100, 100, 2_000.0, was_ms=9_000)]
    loop = ran(Connection(requests, continues=True, pace_ms=1_000), until_ms=3_000)
    # At 0 and 100 ms, then after 1,000 ms each: the recorded throttle of 9 s would have ended at 11,100 ms.
    assert (loop.meters[0].requests, loop.meters[0].added) == (4, 2 * 100)


def test_requests_of_the_same_millisecond_do_not_end_what_a_connection_adds() -> None:
    times = [0, 500, 600, 700, 700, 800]
    requests = [sent(at_ms, 0, 2_000.0, order=order) for order, at_ms in enumerate(times)]
    requests[0] = sent(0, 12_000, 2_000.0, was_ms=400, order=0)
    loop = ran(Connection(requests, continues=True, pace_ms=100), until_ms=900)
    # At 0, 100, 200, 300, 300 and 400 ms; then the second half again at 500, 501, 601, 701, 702 and 802 ms.
    assert loop.meters[0].requests == 12


def test_the_same_limit_adds_nothing_to_a_connection_that_goes_on() -> None:
    requests = [sent(0, 12_000, 1_000.0, was_ms=2_000), sent(2_300, 0, 1_000.0)]
    loop = ran(Connection(requests, continues=True), until_ms=2_310)
    assert (loop.meters[0].requests, loop.meters[0].added) == (2, 0)


def test_thread_time_has_a_cap_and_two_amounts() -> None:
    # 10 % of a thread: 1.5 s of it in 10 s are 15 %, a raw throttle of 5 s; the cap is 1 s.
    charge = Charge(0, 900_000, 1_500_000, 10.0)
    found = []
    for is_at_most in (False, True):
        meter = Meter(SampleRing(RateConfig()), cap_ms=1_000)
        ClosedLoop([Connection([Sent(0, 0, 0, 0, (charge,))])], [meter], is_at_most=is_at_most).run(UNTIL_MS)
        found.append(meter.delay_ms)
    assert found == [0, 1_000]
