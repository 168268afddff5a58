"""The token bucket equals one that is kept millisecond by millisecond in exact fractions, and is dropped as Kafka's."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.measure.token_bucket import MutationCharge, TokenBucket
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.mutation_replay import FORGET_AFTER_MS, MutationReplay
from kquota_spark.model.replay.replay import Outcome

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


LIMIT = Governing(125.0)
_MINUTES = st.integers(0, 4_000_000)
GAPS_MS = st.one_of(st.integers(0, 3_000), st.integers(3_590_000, 3_640_000), _MINUTES)
# Topics of 1 to 1,000,000 partitions: up to 133 minutes' worth of the limit; how long the request took, and the charge.
TOPICS = st.lists(
    st.tuples(GAPS_MS, st.sampled_from([1, 1_000, 1_000_000]), st.integers(0, 50), st.floats(0, 1)),
    max_size=12,
)


class Sensor:
    """Kafka's sensor of one bucket: each 30 s it is dropped if nothing was recorded for more than an hour."""

    def __init__(self, sweep_ms: int) -> None:
        self._sweep_ms = sweep_ms
        self._bucket, self._recorded_ms = TokenBucket(RateConfig()), 0

    def create(self, partitions: int, time_ms: int) -> int:
        """Milliseconds to wait if it is refused, else 0."""
        swept_ms = time_ms - (time_ms - self._sweep_ms) % 30_000
        if swept_ms - self._recorded_ms > 3_600_000:
            self._bucket = TokenBucket(RateConfig())
        charge = MutationCharge(self._bucket, LIMIT.limit_per_s, is_strict=True)
        if charge.take(partitions, time_ms):
            self._recorded_ms = time_ms
            return 0
        return charge.throttle_ms(time_ms)


@_SETTINGS
@given(st.integers(0, 29_999), TOPICS)
def test_no_certain_verdict_differs_from_a_broker_that_drops_idle_sensors(
    sweep_ms: int, topics: list[tuple[int, int, int, float]]
) -> None:
    sensor, replay = Sensor(sweep_ms), MutationReplay(RateConfig())
    time_ms = 1_700_000_000_000
    for name, (gap_ms, partitions, took_ms, part) in enumerate(topics):
        time_ms += gap_ms
        wait_ms = sensor.create(partitions, time_ms + round(took_ms * part))
        kind = PointKind.REFUSED_MUTATION if wait_ms else PointKind.CREATE_TOPIC
        point = Point(
            time_ms, time_ms + took_ms, name, name, 0 if wait_ms else partitions, wait_ms, int(kind)
        )
        [verdict] = replay.judge([point], [LIMIT])
        assert verdict.outcome in (Outcome.AGREES, Outcome.UNCERTAIN)
        time_ms += took_ms


@_SETTINGS
@given(TOPICS, TOPICS)
def test_a_bucket_that_was_forgotten_gives_the_same_verdicts(
    before: list[tuple[int, int, int, float]], after: list[tuple[int, int, int, float]]
) -> None:
    kept = MutationReplay(RateConfig())
    time_ms = 1_700_000_000_000
    for name, (gap_ms, partitions, _, _) in enumerate(before):
        time_ms += gap_ms
        kept.judge([Point(time_ms, time_ms, name, name, partitions, 0, int(PointKind.CREATE_TOPIC))], [LIMIT])
    new = MutationReplay(RateConfig())
    time_ms = max(kept.forget_at_ms, time_ms + FORGET_AFTER_MS)
    for name, (gap_ms, partitions, _, _) in enumerate(after):
        time_ms += gap_ms
        point = Point(time_ms, time_ms, name, name, partitions, 0, int(PointKind.CREATE_TOPIC))
        assert kept.judge([point], [LIMIT]) == new.judge([point], [LIMIT])
