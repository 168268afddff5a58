"""Throttle times are the broker's to the last bit: Java's doubles, rounding and casts."""

from __future__ import annotations

import math

import pytest

from kquota_spark.model.measure.throttle_time import (
    bounded_throttle_time_ms,
    java_round,
    rate_per_s,
    request_percent,
    throttle_time_ms,
)


def test_int_overflow_is_narrowed_as_the_broker_does() -> None:
    # 1e8 * 1000 - 10,000 = 99,999,990,000 ms; less 23 * 2^32 = 98,784,247,808.
    assert throttle_time_ms(100_000_000, 10_000, 1.0) == 1_215_742_192
    # At 1,000 B/s a byte is a millisecond; less the window of 10,000 ms: 2^31 - 1 is the last that fits.
    assert throttle_time_ms(2_147_483_647 + 10_000, 10_000, 1_000.0) == 2_147_483_647
    assert throttle_time_ms(2_147_483_648 + 10_000, 10_000, 1_000.0) == -2_147_483_648


LONG = 2.0**63
ODD_LIMITS = [  # limit, 10 B in 10 s, 100 MB in 10 s, the latter bounded by 1,000 ms; all from Kafka 3.9.1
    (None, 0, 0, 0),
    (1.0, 0, 1_215_742_192, 1_000),  # 10 B are at the limit
    (0.5, 10_000, -1_863_472_912, 1_000),  # 199,999,990,000 - 47 * 2^32
    (0.0, -1, -1, 1_000),  # Long.MAX: narrowed it throttles nobody, bounded it throttles everybody
    (-0.0, 0, 0, 0),  # Long.MIN, whose low 32 bits are 0
    (5e-324, -1, -1, 1_000),  # infinite, so Long.MAX again
    (1e-18, -1, -1, 1_000),
    (-5.0, -12_000, 1_474_826_480, 1_474_826_480),  # (1e7 + 5) / -5 * 10,000 = -20,000,010,000 + 5 * 2^32
    (-7.0, -11_429, -1_400_822_398, -1_400_822_398),  # (1 + 7) / -7 * 10,000 = -11,428.57
    (-1.0, -20_000, -1_215_762_192, -1_215_762_192),
    (math.nan, 0, 0, 0),  # a violation of NaN ms
    (math.inf, 0, 0, 0),
    (-math.inf, 0, 0, 0),  # infinity / infinity is NaN ms
    (LONG, 0, 0, 0),  # what the broker stores for no limit
    (1.7976931348623157e308, 0, 0, 0),
]


@pytest.mark.parametrize(("limit", "of_10_b", "of_100_mb", "bounded"), ODD_LIMITS)
def test_odd_limits(limit: float | None, of_10_b: int, of_100_mb: int, bounded: int) -> None:
    assert throttle_time_ms(10, 10_000, limit) == of_10_b
    assert throttle_time_ms(100_000_000, 10_000, limit) == of_100_mb
    assert bounded_throttle_time_ms(100_000_000, 10_000, limit, 1_000) == bounded


@pytest.mark.parametrize(
    ("total", "throttle_ms", "bounded"),
    [(math.inf, -1, 1_000), (math.nan, 0, 0), (-math.inf, 0, 0), (-1.0, 0, 0)],
)
def test_odd_amounts(total: float, throttle_ms: int, bounded: int) -> None:
    assert throttle_time_ms(total, 10_000, 1e6) == throttle_ms
    assert bounded_throttle_time_ms(total, 10_000, 1e6, 1_000) == bounded


def test_nothing_is_above_a_negative_limit() -> None:
    # (0 + 5) / -5 * 10,000: violated without any traffic, and below 0, so nobody waits.
    assert throttle_time_ms(0, 10_000, -5.0) == -10_000


def test_a_second_and_a_half_of_thread_time_at_ten_percent() -> None:
    percent = request_percent(1_500_000_000)
    assert percent == 150.0
    assert rate_per_s(percent, 10_000) == 15.0
    # (15 - 10) / 10 * 10,000, and at most one window of 1 s.
    assert throttle_time_ms(percent, 10_000, 10.0) == 5_000
    assert bounded_throttle_time_ms(percent, 10_000, 10.0, 1_000) == 1_000
    # (10.05 - 10) / 10 * 10,000 is below the cap.
    assert bounded_throttle_time_ms(100.5, 10_000, 10.0, 1_000) == 50


def test_thread_time_is_multiplied_by_a_rounded_factor() -> None:
    # The broker multiplies by the double 100.0 / 1e9; dividing 13 * 100 by 1e9 is one bit off.
    assert request_percent(13) == 1.2999999999999998e-06
    assert 13 * 100 / 1e9 == 1.3e-06


def test_nothing_recorded_is_not_above_a_limit_of_nothing() -> None:
    assert throttle_time_ms(0, 10_000, 0.0) == 0


@pytest.mark.parametrize(
    ("value", "rounded"),
    [  # Math.round of OpenJDK gives these
        (0.5, 1),
        (1.5, 2),
        (2.5, 3),
        (-0.5, 0),
        (-1.5, -1),
        (-2.5, -2),
        (-0.50000001, -1),
        (0.49999999999999994, 0),
        (4503599627370497.0, 4503599627370497),
        (9007199254740991.0, 9007199254740991),
        (1e300, 2**63 - 1),
        (-1e300, -(2**63)),
        (math.inf, 2**63 - 1),
        (math.nan, 0),
    ],
)
def testjava_rounding(value: float, rounded: int) -> None:
    assert java_round(value) == rounded


@pytest.mark.parametrize(("total", "throttle_ms"), [(8_224, 31), (8_256, 63), (8_384, 188)])
def test_the_wait_is_rounded_half_up(total: int, throttle_ms: int) -> None:
    # 1,024 B/s over 8 s is 8,192 B; each byte more is 8,000 / 8,192 = 125/128 ms, all exact in binary:
    # 32 B more are 31.25 ms, 64 are 62.5, 192 are 187.5.
    assert throttle_time_ms(total, 8_000, 1_024.0) == throttle_ms
