"""Which connections wait for their throttles, and which had more to send, as their records show."""

from __future__ import annotations

from kquota_spark.model.loops.clocks import Clock
from kquota_spark.model.loops.closed_loop import Sent
from kquota_spark.model.loops.paces import (
    clock_of,
    connections_of,
    does_reconnect,
    is_saturated,
    is_unmuted,
    was_active,
)


def sent(*times_and_throttles: tuple[int, int]) -> list[Sent]:
    return [Sent(time_ms, 0, throttle_ms, throttle_ms, ()) for time_ms, throttle_ms in times_and_throttles]


def test_a_connection_is_saturated_if_nine_of_ten_paces_are_below_5_ms() -> None:
    ten = [(1_004 * place, 1_000) for place in range(11)]
    assert is_saturated(sent(*ten))
    slower = [*ten[:-1], (ten[-1][0] + 1, 0)]
    assert is_saturated(sent(*slower))
    slower = [*ten[:-2], (ten[-2][0] + 1, 1_000), (ten[-1][0] + 2, 0)]
    assert not is_saturated(sent(*slower))


def test_few_gaps_show_no_saturation() -> None:
    assert not is_saturated(sent(*[(place, 0) for place in range(5)]))
    assert is_saturated(sent(*[(place, 0) for place in range(6)]))


def test_a_connection_with_requests_during_its_throttles_does_not_wait() -> None:
    assert is_unmuted(sent((0, 1_000), (100, 1_000), (200, 1_000), (300, 0)))
    # Within 100 ms of the end it may have waited, and two signs are too few.
    assert not is_unmuted(sent((0, 1_000), (900, 1_000), (1_800, 1_000), (2_700, 0)))
    assert not is_unmuted(sent((0, 1_000), (100, 1_000), (200, 0)))


def test_a_client_that_leaves_throttled_connections_for_new_ones_does_not_wait() -> None:
    assert does_reconnect([sent((300 * name, 0), (300 * name + 100, 2_000)) for name in range(5)])
    assert not does_reconnect([sent((0, 2_000), (2_100, 2_000), (4_200, 2_000), (6_300, 2_000))])


def test_a_new_connection_after_the_end_of_the_throttle_is_no_escape() -> None:
    assert not does_reconnect([sent((3_000 * name, 2_000)) for name in range(5)])


def test_a_client_sends_by_the_clock_if_its_next_request_is_ready_after_long_throttles() -> None:
    usual = [(0, 0), (100, 0), (200, 0), (300, 400)]
    ready = [*usual, (701, 400), (1_103, 400), (1_506, 0)]
    # Usual gaps of 100 ms; 1, 2 and 3 ms after the throttles.
    assert clock_of([sent(*ready)]) == Clock(100, 2)
    # Connections of one client show it together.
    assert clock_of([sent(*usual), sent(*ready[3:])]) == Clock(100, 2)
    pausing = [*usual, (800, 400), (1_300, 400), (1_800, 0)]
    assert clock_of([sent(*pausing)]) is None


def test_the_usual_gaps_may_be_those_before_the_period() -> None:
    before = {7: sent((0, 0), (100, 0), (200, 0), (300, 0))}
    # All throttles are longer than 100 ms, and 1, 2 and 3 ms after them the next request comes.
    period = {7: sent((400, 400), (801, 400), (1_203, 400), (1_606, 0))}
    clients = {7: ("alice", "etl")}
    [alone] = connections_of(period, clients, 2_000)
    [found] = connections_of(period, clients, 2_000, lambda: before)
    assert (alone.clock, found.clock) == (None, Clock(100, 2))
    assert list(found.sent) == period[7]


def test_few_or_short_throttles_show_no_clock() -> None:
    usual = [(0, 0), (100, 0), (200, 0), (300, 400)]
    assert clock_of([sent(*usual, (701, 400), (1_102, 0))]) is None
    # A client by the clock fills the rest of its usual gap after a throttle of 40 ms.
    short = [(0, 0), (100, 0), (200, 0), (300, 40), (400, 40), (500, 40), (600, 0)]
    assert clock_of([sent(*short)]) is None
    assert clock_of([sent((0, 400), (401, 400), (802, 400), (1_203, 0))]) is None


def test_a_connection_was_active_if_its_last_throttle_explains_the_silence() -> None:
    # Own paces of 100 ms. The last throttle of 2 s and one such pace end at 2,600 ms, and the longest gap is 100 ms.
    last = [(100 * place, 0) for place in range(5)] + [(500, 2_000)]
    assert was_active(sent(*last), 2_600)
    assert not was_active(sent(*last), 2_601)
    assert was_active(sent(*last[:-1], (500, 0)), 600)
    assert not was_active(sent(*last[:-1], (500, 0)), 601)
    assert not was_active(sent(*last[1:]), 600)
