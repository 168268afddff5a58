"""A shaken ring is a sample ring whose moments are off by a few ms, and the same in every run."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.sampled_rate import RateConfig, RingVariant, SampleRing
from kquota_spark.model.shaken_ring import SHAKES, Scrape, Shake, ShakenRing

_SETTINGS = settings(deadline=None, max_examples=200, print_blob=True)
# Gaps about a window and about the whole ring are where a few ms matter.
GAPS_MS = st.one_of(
    st.integers(0, 50), st.integers(990, 1_010), st.integers(10_980, 11_020), st.integers(0, 30_000)
)
EVENTS = st.lists(st.tuples(GAPS_MS, st.integers(0, 10_000_000)), min_size=1, max_size=40)
CONFIGS = st.builds(
    RateConfig, st.integers(1, 12), st.sampled_from([1_000, 2_000]), st.sampled_from(RingVariant)
)
Events = list[tuple[int, int]]


@_SETTINGS
@given(CONFIGS, EVENTS)
def test_without_any_shake_it_is_the_brokers(config: RateConfig, events: Events) -> None:
    ring, unshaken = SampleRing(config), ShakenRing(config, Shake(((0, 0),), Scrape.NEVER))
    time_ms = 0
    for gap_ms, amount in events:
        time_ms += gap_ms
        assert unshaken.record(amount, time_ms) == ring.record(amount, time_ms)
        assert unshaken.total == ring.total


@_SETTINGS
@given(CONFIGS, EVENTS, st.sampled_from(SHAKES), st.data())
def test_how_the_events_are_cut_into_batches_does_not_matter(
    config: RateConfig, events: Events, shake: Shake, data: st.DataObject
) -> None:
    whole, cut = ShakenRing(config, shake), ShakenRing(config, shake)
    amounts, times_ms, time_ms = [], [], 0
    for gap_ms, amount in events:
        time_ms += gap_ms
        times_ms.append(time_ms)
        amounts.append(amount)
    expected, found = whole.record_all(amounts, times_ms), list[tuple[int, int]]()
    for amount, time_ms in zip(amounts, times_ms, strict=True):
        if data.draw(st.booleans()):
            cut = ShakenRing(config, shake, deepcopy(cut.state))
        window_ms = cut.record(amount, time_ms)
        found.append((cut.total, window_ms))
    assert found == list(zip(*expected, strict=True))
    assert cut.state == whole.state


@_SETTINGS
@given(CONFIGS, EVENTS, st.sampled_from(SHAKES), st.integers(0, 40_000))
def test_after_the_horizon_nothing_is_left(
    config: RateConfig, events: Events, shake: Shake, more_ms: int
) -> None:
    used, new = ShakenRing(config, shake), ShakenRing(config, shake)
    time_ms = 0
    for gap_ms, amount in events:
        time_ms += gap_ms
        used.record(amount, time_ms)
    time_ms += config.horizon_ms + more_ms
    for gap_ms in (0, 400, 700, 1_500, 11_004):
        time_ms += gap_ms
        assert used.record(5, time_ms) == new.record(5, time_ms)
        assert used.total == new.total
