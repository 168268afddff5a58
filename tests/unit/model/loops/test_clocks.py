"""The next gap of a client that has its next request ready when a throttle ends."""

from __future__ import annotations

from kquota_spark.model.loops.clocks import Clock, Ticks

CLOCK = Clock(100, 2)


def test_a_throttle_below_the_usual_gap_does_not_delay_the_next_request() -> None:
    # Recorded: a throttle of 40 ms in a gap of 100. Under 70 ms the gap stays, and 150 ms cover it.
    assert Ticks(CLOCK).gap_ms(60, 40, 70, is_moved=True) == 100
    assert Ticks(CLOCK).gap_ms(60, 40, 150, is_moved=True) == 152


def test_a_gap_that_a_throttle_hid_is_the_usual_one_under_a_shorter_throttle() -> None:
    assert Ticks(CLOCK).gap_ms(3, 400, 0, is_moved=True) == 100
    assert Ticks(CLOCK).gap_ms(3, 400, 250, is_moved=True) == 253


def test_a_short_gap_stays_short_only_if_the_throttles_of_the_run_left_something_to_make_up_for() -> None:
    assert Ticks(CLOCK).gap_ms(1, 0, 0, is_moved=True) == 100
    ticks = Ticks(CLOCK)
    # 130 ms leave 30 of the usual 100: the next gap is 30 ms shorter than usual, and the one after it is not.
    assert ticks.gap_ms(3, 400, 130, is_moved=True) == 133
    assert [ticks.gap_ms(1, 0, 0, is_moved=True) for _ in range(2)] == [70, 100]


def test_a_request_at_its_recorded_time_with_its_recorded_throttle_keeps_its_gap() -> None:
    assert [Ticks(clock).gap_ms(-3, 4, 4, is_moved=False) for clock in (CLOCK, None)] == [1, 1]


def test_a_client_that_always_has_more_to_send_waits_for_the_throttle_only() -> None:
    assert Ticks(None).gap_ms(100, 0, 250, is_moved=True) == 250
    assert Ticks(None).gap_ms(100, 400, 20, is_moved=True) == 100
