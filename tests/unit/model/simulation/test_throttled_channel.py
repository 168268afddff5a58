"""A throttle mutes one connection, or before 2.0 holds its response back."""

from __future__ import annotations

import pytest

from kquota_spark.model.simulation.throttled_channel import Delivery, ThrottledChannel

DELAYED, MUTED = Delivery.DELAYED, Delivery.MUTED


@pytest.mark.parametrize(
    ("version", "delivery"),
    [("0.9.0", DELAYED), ("1.1.1", DELAYED), ("2.0.0", MUTED), ("3.9.1", MUTED), ("4.0", MUTED)],
)
def test_delivery_of_a_version(version: str, delivery: Delivery) -> None:
    assert Delivery.of_version(version) is delivery


def test_from_2_0_the_response_goes_out_at_once() -> None:
    channel = ThrottledChannel(MUTED)
    assert channel.respond(1_000, 5_000) == 1_000
    assert channel.muted_until_ms == 6_000


def test_before_2_0_the_response_waits() -> None:
    channel = ThrottledChannel(DELAYED)
    assert channel.respond(1_000, 5_000) == 6_000
    assert channel.muted_until_ms == 6_000


@pytest.mark.parametrize("delivery", [DELAYED, MUTED])
@pytest.mark.parametrize("throttle_ms", [0, -1])
def test_no_throttle_no_mute(delivery: Delivery, throttle_ms: int) -> None:
    channel = ThrottledChannel(delivery)
    assert channel.respond(1_000, throttle_ms) == 1_000
    assert channel.muted_until_ms == 1_000
