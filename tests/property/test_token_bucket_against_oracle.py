"""The token bucket equals one that is kept millisecond by millisecond in exact fractions."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.measure.token_bucket import MutationCharge, TokenBucket

_SETTINGS = settings(deadline=None, max_examples=100, print_blob=True)
# 125 a second are 1/8 a ms: every step is exact in binary, so equality is too.
STEPS = st.lists(st.tuples(st.integers(0, 150), st.integers(0, 1_500), st.booleans()), max_size=15)


class Oracle:
    """Fills up by limit/1000 each ms, one ms after the other."""

    def __init__(self, capacity: int, limit: int) -> None:
        self.capacity = Fraction(capacity)
        self.per_ms = Fraction(limit, 1_000)
        self.tokens = self.capacity

    def wait(self, ms: int) -> None:
        for _ in range(ms):
            self.tokens = min(self.capacity, self.tokens + self.per_ms)

    def take(self, amount: int, *, is_strict: bool) -> tuple[bool, int]:
        """Accepted or not, and how many whole ms until there are 0 tokens, by waiting for them."""
        if is_strict and self.tokens < 0:
            return False, self.missing_ms()
        before, self.tokens = self.tokens, self.tokens - amount
        return True, 0 if is_strict and before >= 0 else self.missing_ms()

    def missing_ms(self) -> int:
        return 0 if self.tokens >= 0 else -(self.tokens // self.per_ms)


@_SETTINGS
@given(st.integers(1, 12), STEPS)
def test_bucket_equals_the_oracle(windows: int, steps: list[tuple[int, int, bool]]) -> None:
    limit = 125
    bucket, oracle = TokenBucket(RateConfig(windows, 1_000)), Oracle(windows * limit, limit)
    time_ms = 1_700_000_000_000
    for gap_ms, amount, is_strict in steps:
        time_ms += gap_ms * 8  # 8 ms are exactly one token
        oracle.wait(gap_ms * 8)
        charge = MutationCharge(bucket, float(limit), is_strict=is_strict)
        is_accepted, missing_ms = oracle.take(amount, is_strict=is_strict)
        assert charge.take(amount, time_ms) is is_accepted
        assert bucket.tokens(time_ms, float(limit)) == oracle.tokens
        assert charge.throttle_ms(time_ms) == missing_ms
        assert charge.throttle_ms(time_ms + 3) == max(0, missing_ms - 3)
