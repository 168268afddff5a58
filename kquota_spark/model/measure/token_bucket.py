"""Controller mutations: a token bucket, and the two ways in which a request takes tokens from it (KIP-599, Kafka 2.7).

The broker's plain rate (`mutation-rate`) is only information, and the model does not have it.
"""

from __future__ import annotations

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.measure.throttle_time import LONG_MAX, java_divide, java_min, java_round, to_int32

TokenState = tuple[float | None, int] | None
"""Tokens (None before the first use) and the time of the last use (epoch ms); None for a new bucket."""


class TokenBucket:
    """Tokens of one bucket (Kafka's `TokenBucket`); below 0 the quota is violated.

    It is full at its first use. Kafka's bucket begins empty at the epoch, which has the same effect unless the limit is
    negative. The limit is an argument because it may change at any time. The time since the last call then counts at
    the new limit.

    Args:
        config: controller.quota.window.num and .window.size.seconds; the capacity is N windows of the limit.
        state: `state` of a bucket with these settings, from which this one continues.
    """

    __slots__ = ("_capacity_s", "_last_ms", "_tokens")

    def __init__(self, config: RateConfig, state: TokenState = None) -> None:
        self._capacity_s = config.num_samples * (config.window_ms / 1000.0)
        self._tokens, self._last_ms = state or (None, 0)

    @property
    def state(self) -> TokenState:
        """The state from which another bucket can continue."""
        return self._tokens, self._last_ms

    def settle(self, tokens: float, time_ms: int) -> None:
        """Set the tokens at `time_ms`, if the broker's answer has shown them."""
        self._tokens, self._last_ms = tokens, time_ms

    def tokens(self, time_ms: int, limit_per_s: float | None) -> float:
        """The tokens in the bucket, refilled until `time_ms`; no limit counts as 2^63 per second."""
        return self.record(0, time_ms, limit_per_s)

    def record(self, amount: float, time_ms: int, limit_per_s: float | None) -> float:
        """Take any amount, even if fewer tokens are in the bucket, and return the tokens left."""
        limit = float(LONG_MAX) if limit_per_s is None else limit_per_s
        capacity = self._capacity_s * limit
        if self._tokens is None:
            # It was empty at the epoch, and a negative limit has taken tokens from it ever since.
            tokens = capacity if limit >= 0 else java_min(capacity, limit * (time_ms / 1000.0))
        else:
            tokens = java_min(capacity, self._tokens + limit * ((time_ms - self._last_ms) / 1000.0))
        self._last_ms = time_ms
        self._tokens = java_min(capacity, tokens - amount)
        return self._tokens


def wait_ms(tokens: float, limit_per_s: float) -> int:
    """How long (ms) a bucket below 0 takes to be at 0 again; a 64-bit number."""
    return java_round(java_divide(-tokens, limit_per_s) * 1000)


class MutationCharge:
    """Mutations of one request (Kafka's `StrictControllerMutationQuota` and `Permissive...`).

    Args:
        bucket: the bucket of the user and client id.
        limit_per_s: controller_mutation_rate, None without one.
        is_strict: `apis.is_strict_mutation` of the request.
    """

    __slots__ = ("_bucket", "_is_strict", "_limit_per_s", "_measured_ms", "_throttle_ms")

    def __init__(self, bucket: TokenBucket, limit_per_s: float | None, *, is_strict: bool) -> None:
        self._bucket, self._limit_per_s, self._is_strict = bucket, limit_per_s, is_strict
        self._throttle_ms = 0
        self._measured_ms = 0

    def take(self, mutations: int, time_ms: int) -> bool:
        """Charge the partitions of one topic; False if it is refused with THROTTLING_QUOTA_EXCEEDED.

        A strict request is refused while the bucket is below 0. Otherwise it may take any number, so a bucket may fall
        far below 0. A permissive request may always take any number.
        """
        if self._is_strict:
            tokens = self._bucket.tokens(time_ms, self._limit_per_s)
            if not tokens < 0:
                self._bucket.record(mutations, time_ms, self._limit_per_s)
        else:
            tokens = self._bucket.record(mutations, time_ms, self._limit_per_s)
        if tokens < 0 and self._limit_per_s is not None:
            self._throttle_ms = wait_ms(tokens, self._limit_per_s)
            self._measured_ms = time_ms
        return not (self._is_strict and tokens < 0)

    def throttle_ms(self, time_ms: int) -> int:
        """The throttle time (ms) in the response: until the bucket is at 0 again, less the time that passed since."""
        return to_int32(max(0, self._throttle_ms - (time_ms - self._measured_ms)))
