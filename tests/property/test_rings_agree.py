"""Both rings are one measure, and what it says lies between the bounds that its window allows."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.measure.sampled_rate import FloatRing, RateConfig, RingVariant, SampleRing
from kquota_spark.model.measure.throttle_time import bounded_throttle_time_ms, rate_per_s, throttle_time_ms

_SETTINGS = settings(deadline=None, max_examples=200, print_blob=True)
GAPS_MS = st.one_of(st.integers(0, 50), st.integers(0, 3_000), st.integers(0, 30_000))
EVENTS = st.lists(st.tuples(GAPS_MS, st.integers(-1_000, 10_000_000)), min_size=1, max_size=40)
CONFIGS = st.builds(
    RateConfig, st.integers(1, 12), st.sampled_from([1_000, 2_000]), st.sampled_from(RingVariant)
)


@_SETTINGS
@given(CONFIGS, EVENTS)
def test_on_whole_amounts_both_rings_say_the_same(config: RateConfig, events: list[tuple[int, int]]) -> None:
    fast, plain = SampleRing(config), FloatRing(config)
    time_ms = 0
    for gap_ms, amount in events:
        time_ms += gap_ms
        window_ms = fast.record(amount, time_ms)
        plain.add(amount, time_ms)
        assert plain.measure(time_ms) == (fast.total, window_ms)
        # To measure again at the same time changes nothing.
        assert plain.measure(time_ms) == (fast.total, window_ms)


@_SETTINGS
@given(CONFIGS, EVENTS, st.data())
def test_to_look_at_a_ring_changes_nothing(
    config: RateConfig, events: list[tuple[int, int]], data: st.DataObject
) -> None:
    watched, alone = SampleRing(config), SampleRing(config)
    time_ms = 0
    for gap_ms, amount in events:
        time_ms += gap_ms
        if data.draw(st.booleans()):
            watched = SampleRing(config, deepcopy(watched.state))
        assert watched.record(amount, time_ms) == alone.record(amount, time_ms)
        assert (watched.total, watched.state) == (alone.total, alone.state)


@_SETTINGS
@given(CONFIGS, EVENTS, st.lists(st.integers(0, 10_000_000), min_size=2, max_size=8))
def test_the_order_within_a_millisecond_does_not_matter_to_the_total(
    config: RateConfig, events: list[tuple[int, int]], amounts: list[int]
) -> None:
    one, other = SampleRing(config), SampleRing(config)
    time_ms = 0
    for gap_ms, amount in events:
        time_ms += gap_ms
        one.record(amount, time_ms)
        other.record(amount, time_ms)
    for there, back in zip(amounts, reversed(amounts), strict=True):
        windows_ms = {one.record(there, time_ms), other.record(back, time_ms)}
    assert len(windows_ms) == 1
    assert (one.total, one.state) == (other.total, other.state)


@_SETTINGS
@given(CONFIGS, st.lists(st.tuples(GAPS_MS, st.integers(0, 10_000_000)), min_size=1, max_size=40))
def test_the_rate_lies_between_what_surely_and_what_possibly_counts(
    config: RateConfig, events: list[tuple[int, int]]
) -> None:
    ring = SampleRing(config)
    n, w = config.num_samples, config.window_ms
    past: list[tuple[int, int]] = []
    time_ms = 0
    for gap_ms, amount in events:
        time_ms += gap_ms
        past.append((time_ms, amount))
        window_ms = ring.record(amount, time_ms)
        # Events of the last (N - 1) windows count: those before them may be in a sample that is gone. Nothing
        # counts that is older than N windows after the end of the sample it is in.
        surely = sum(a for t, a in past if time_ms - t < (n - 1) * w)
        possibly = sum(a for t, a in past if time_ms - t < (n + 1) * w)
        assert surely <= ring.total <= possibly
        assert max((n - 1) * w, 1) <= window_ms < (n + 1) * w
        assert rate_per_s(surely, (n + 1) * w) <= rate_per_s(ring.total, window_ms)
        assert rate_per_s(ring.total, window_ms) <= rate_per_s(possibly, max((n - 1) * w, 1))


@_SETTINGS
@given(
    st.integers(0, 10**12),
    st.integers(1, 24_000),
    st.floats(0.1, 1e9, allow_nan=False),
    st.integers(1, 5_000),
)
def test_to_wait_the_throttle_out_brings_the_rate_to_the_limit(
    total: int, window_ms: int, limit: float, cap_ms: int
) -> None:
    throttle_ms = throttle_time_ms(total, window_ms, limit)
    exact_ms = total * 1_000 / limit - window_ms
    if exact_ms > 2.0**31 - 2:
        return  # narrowed to 32 bits: no wait of that length
    # Rounded to whole ms, up to the noise of doubles.
    assert abs(throttle_ms - max(exact_ms, 0.0)) <= 0.5 + 1e-6 + 1e-12 * abs(exact_ms)
    assert bounded_throttle_time_ms(total, window_ms, limit, cap_ms) == min(throttle_ms, cap_ms)
