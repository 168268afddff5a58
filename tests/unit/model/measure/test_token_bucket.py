"""The token bucket gives the numbers that Kafka's own class gave; requests take from it as KIP-599 says."""

from __future__ import annotations

import math

import pytest

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.measure.token_bucket import MutationCharge, TokenBucket

T = 1_700_000_000_000
CONFIG = RateConfig()


def test_five_a_second() -> None:
    bucket = TokenBucket(CONFIG)
    assert bucket.tokens(T, 5.0) == 55.0  # 11 windows of 1 s * 5
    assert bucket.record(60, T, 5.0) == -5.0
    assert bucket.tokens(T + 500, 5.0) == -2.5
    assert bucket.tokens(T + 1_000, 5.0) == 0.0
    assert bucket.tokens(T + 12_000, 5.0) == 55.0  # after 11 s it is full
    assert bucket.tokens(T + 60_000, 5.0) == 55.0  # and gets no fuller


def test_the_capacity_is_all_windows_not_one_less() -> None:
    # 5 windows of 2 s * 3 a second.
    assert TokenBucket(RateConfig(5, 2_000)).tokens(T, 3.0) == 30.0


def test_putting_back_does_not_overfill() -> None:
    bucket = TokenBucket(CONFIG)
    bucket.record(10, T, 5.0)
    assert bucket.record(-3, T, 5.0) == 48.0
    assert bucket.record(-30, T, 5.0) == 55.0


def test_a_new_limit_counts_for_the_time_since_the_last_look() -> None:
    bucket = TokenBucket(CONFIG)
    bucket.record(55, T, 5.0)
    assert bucket.tokens(T + 1_000, 100.0) == 100.0
    # A smaller limit holds fewer: 11 * 2.
    assert bucket.tokens(T + 1_000, 2.0) == 22.0


def test_tokens_without_a_limit_are_those_of_jmx() -> None:
    # 11 * 2^63; a real broker's JMX showed this number.
    assert TokenBucket(CONFIG).tokens(T, None) == 1.0145709240540253e20


def test_a_negative_limit_has_taken_tokens_since_the_epoch() -> None:
    bucket = TokenBucket(CONFIG)
    assert bucket.tokens(100_000, -5.0) == -500.0  # -5 * 100 s; 11 * -5 would be the most
    # Set right, it takes as long to come back: -500 + 5 * 10.
    assert bucket.tokens(110_000, 5.0) == -450.0


def test_an_infinite_limit_spoils_the_bucket() -> None:
    bucket = TokenBucket(CONFIG)
    assert bucket.record(1, T, math.inf) == math.inf
    # The refill of no time at all is infinity * 0, and what is no number stays so under any limit.
    assert math.isnan(bucket.record(1, T, math.inf))
    assert math.isnan(bucket.record(10**9, T + 1_000, 5.0))
    assert MutationCharge(bucket, 5.0, is_strict=True).take(1, T + 2_000)


def test_a_clock_that_steps_back_takes_tokens() -> None:
    bucket = TokenBucket(CONFIG)
    bucket.record(70, T, 5.0)
    assert bucket.tokens(T - 5_000, 5.0) == -40.0  # 55 - 70 - 5 * 5


def test_a_permissive_request_is_accepted_and_throttled() -> None:
    bucket = TokenBucket(CONFIG)
    charge = MutationCharge(bucket, 5.0, is_strict=False)
    assert charge.take(55, T)
    assert charge.throttle_ms(T) == 0  # at 0 it is not violated
    assert charge.take(15, T)
    assert charge.throttle_ms(T) == 3_000  # 15 / 5 s
    assert charge.take(3, T)
    assert charge.throttle_ms(T) == 3_600  # 18 / 5 s


def test_a_strict_request_may_take_any_amount_from_a_bucket_that_is_not_below_zero() -> None:
    bucket = TokenBucket(CONFIG)
    first = MutationCharge(bucket, 5.0, is_strict=True)
    assert first.take(1_055, T)
    # The taker itself is not throttled; 1,000 tokens are missing.
    assert first.throttle_ms(T) == 0
    assert bucket.tokens(T, 5.0) == -1_000.0
    second = MutationCharge(bucket, 5.0, is_strict=True)
    assert not second.take(1, T + 100)
    assert second.throttle_ms(T + 100) == 199_900  # 999.5 / 5 s
    # What is refused is not charged.
    assert bucket.tokens(T + 100, 5.0) == -999.5
    assert MutationCharge(bucket, 5.0, is_strict=True).take(1, T + 200_000)


def test_an_empty_bucket_is_not_below_zero() -> None:
    bucket = TokenBucket(CONFIG)
    bucket.record(55, T, 5.0)
    assert MutationCharge(bucket, 5.0, is_strict=True).take(10, T)
    assert bucket.tokens(T, 5.0) == -10.0


def test_a_strict_request_stops_in_its_middle() -> None:
    bucket = TokenBucket(CONFIG)
    charge = MutationCharge(bucket, 5.0, is_strict=True)
    # Topics of 40 partitions: 55 -> 15 -> -25, and then none.
    assert [charge.take(40, T) for _ in range(4)] == [True, True, False, False]
    assert charge.throttle_ms(T) == 5_000


def test_time_that_the_request_waited_is_taken_off_the_throttle() -> None:
    charge = MutationCharge(TokenBucket(CONFIG), 5.0, is_strict=False)
    charge.take(70, T)
    assert charge.throttle_ms(T + 1_200) == 1_800
    assert charge.throttle_ms(T + 3_000) == 0
    assert charge.throttle_ms(T + 9_000) == 0


def test_no_limit_never_throttles() -> None:
    charge = MutationCharge(TokenBucket(CONFIG), None, is_strict=True)
    assert charge.take(1_000_000, T)
    assert charge.throttle_ms(T) == 0


@pytest.mark.parametrize(
    ("limit", "is_accepted", "throttle_ms"),
    [  # after 10 mutations; the throttles are those of Kafka 3.9.1's classes
        (0.0, False, -1),  # Long.MAX; narrowed it is not above 0
        (-5.0, False, 0),
        (math.nan, True, 0),
        (math.inf, True, 0),
        (1e-9, False, 1_316_123_912),  # (10 - 11e-9) / 1e-9 * 1000 = 9,999,999,989,000 - 2328 * 2^32
    ],
)
def test_odd_limits(limit: float, is_accepted: bool, throttle_ms: int) -> None:
    bucket = TokenBucket(CONFIG)
    bucket.record(10, T, limit)
    charge = MutationCharge(bucket, limit, is_strict=True)
    assert charge.take(1, T) is is_accepted
    assert charge.throttle_ms(T) == throttle_ms
