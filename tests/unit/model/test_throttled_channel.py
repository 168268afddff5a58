"""A throttle mutes one connection, or before 2.0 holds its response back; long ones have consequences."""

from __future__ import annotations

import pytest

from kquota_spark.model.throttled_channel import (
    Consequence,
    Delivery,
    ThrottledChannel,
    Timeouts,
    consequences,
)

HELD_BACK, MUTED = Delivery.HELD_BACK, Delivery.MUTED
NOTHING = frozenset[Consequence]()


@pytest.mark.parametrize(
    ("version", "delivery"),
    [("0.9.0", HELD_BACK), ("1.1.1", HELD_BACK), ("2.0.0", MUTED), ("3.9.1", MUTED), ("4.0", MUTED)],
)
def test_delivery_of_a_version(version: str, delivery: Delivery) -> None:
    assert Delivery.of_version(version) is delivery


def test_from_2_0_the_response_goes_out_at_once() -> None:
    channel = ThrottledChannel(MUTED)
    assert channel.respond(1_000, 5_000) == 1_000
    assert channel.muted_until_ms == 6_000


def test_before_2_0_the_response_waits() -> None:
    channel = ThrottledChannel(HELD_BACK)
    assert channel.respond(1_000, 5_000) == 6_000
    assert channel.muted_until_ms == 6_000


@pytest.mark.parametrize("delivery", [HELD_BACK, MUTED])
@pytest.mark.parametrize("throttle_ms", [0, -1])
def test_no_throttle_no_mute(delivery: Delivery, throttle_ms: int) -> None:
    channel = ThrottledChannel(delivery)
    assert channel.respond(1_000, throttle_ms) == 1_000
    assert channel.muted_until_ms == 1_000


def test_a_response_held_back_longer_than_the_request_timeout() -> None:
    def of(throttle_ms: int) -> frozenset[Consequence]:
        return consequences(HELD_BACK, throttle_ms, Timeouts(), does_client_hold_back=False)

    assert of(30_000) == NOTHING
    assert of(30_001) == {Consequence.REQUEST_TIMEOUT}


def test_from_2_0_only_a_client_that_does_not_hold_back_times_out() -> None:
    assert consequences(MUTED, 60_000, Timeouts(), does_client_hold_back=True) == NOTHING
    assert consequences(MUTED, 60_000, Timeouts(), does_client_hold_back=False) == {
        Consequence.REQUEST_TIMEOUT
    }


def test_a_group_member_that_is_silent_for_a_session_leaves() -> None:
    def of(throttle_ms: int, *, carries_group: bool) -> frozenset[Consequence]:
        return consequences(
            MUTED, throttle_ms, Timeouts(), does_client_hold_back=True, carries_group=carries_group
        )

    assert of(45_000, carries_group=True) == NOTHING
    assert of(45_001, carries_group=True) == {Consequence.REBALANCE}
    # A consumer's fetches have a connection of their own.
    assert of(45_001, carries_group=False) == NOTHING


@pytest.mark.parametrize("delivery", [HELD_BACK, MUTED])
def test_a_mute_is_no_excuse_from_the_idle_timeout(delivery: Delivery) -> None:
    # The Selector of Kafka 3.9.1 closed a connection that was muted and idle for the timeout.
    timeouts = Timeouts(request_ms=1_000_000)
    assert consequences(delivery, 600_000, timeouts, does_client_hold_back=True) == NOTHING
    assert consequences(delivery, 600_001, timeouts, does_client_hold_back=True) == {Consequence.IDLE_CLOSE}
