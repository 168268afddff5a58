"""The ring, which keeps a running sum and caches, equals the rules of the broker written down naively."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant, SampleRing

_SETTINGS = settings(deadline=None, max_examples=300, print_blob=True)


@dataclass
class Sample:
    value: int
    start_ms: int
    last_event_ms: int


@dataclass
class Oracle:
    """One sensor: a list of samples, nothing kept but them and the place of the current one."""

    samples_n: int
    window_ms: int
    variant: RingVariant
    samples: list[Sample] = field(default_factory=list)
    index: int = 0

    def record(self, value: int, t: int) -> None:
        if not self.samples:
            self.samples.append(Sample(0, t, t))
        sample = self.samples[self.index]
        if t - sample.start_ms >= self.window_ms:
            is_new = self.variant is RingVariant.FROM_3_8
            self.index = (self.index + 1) % (self.samples_n + 1 if is_new else self.samples_n)
            if self.index == len(self.samples):
                self.samples.append(Sample(0, t, t))
            else:
                self.samples[self.index] = Sample(0, t, t)
            sample = self.samples[self.index]
        sample.value += value
        sample.last_event_ms = t

    def measure(self, t: int) -> tuple[int, int]:
        """Length of the window and the sum in it."""
        for sample in self.samples:
            is_new = self.variant is RingVariant.FROM_3_8
            since = sample.last_event_ms if is_new else sample.start_ms
            if t - since >= self.samples_n * self.window_ms:
                sample.value, sample.start_ms, sample.last_event_ms = 0, t, t
        total = sum(sample.value for sample in self.samples)
        elapsed = t - min(sample.start_ms for sample in self.samples)
        full = elapsed // self.window_ms
        if full < self.samples_n - 1:
            elapsed += (self.samples_n - 1 - full) * self.window_ms
        return max(elapsed, 1), total


# Small gaps fill samples, middle ones walk over them, long ones purge; the edges of windows on purpose.
GAPS_MS = st.one_of(
    st.integers(0, 50),
    st.integers(0, 3_000),
    st.integers(0, 30_000),
    st.sampled_from([0, 999, 1_000, 1_001, 1_999, 2_000, 2_001, 10_999, 11_000, 11_001, 12_000]),
)
EVENTS = st.lists(st.tuples(GAPS_MS, st.integers(0, 10_000_000)), min_size=1, max_size=60)
CONFIGS = st.builds(
    RateConfig, st.integers(1, 12), st.sampled_from([1_000, 2_000]), st.sampled_from(RingVariant)
)
STARTS_MS = st.sampled_from([0, 1_795_239_600_123])


@_SETTINGS
@given(CONFIGS, STARTS_MS, EVENTS)
def test_ring_equals_the_oracle(config: RateConfig, start_ms: int, events: list[tuple[int, int]]) -> None:
    ring = SampleRing(config)
    oracle = Oracle(config.num_samples, config.window_ms, config.variant)
    time_ms = start_ms
    for gap_ms, amount in events:
        time_ms += gap_ms
        window_ms = ring.record(amount, time_ms)
        oracle.record(amount, time_ms)
        assert (window_ms, ring.total) == oracle.measure(time_ms)


@_SETTINGS
@given(CONFIGS, EVENTS, st.data())
def test_a_ring_can_be_rebuilt_at_any_moment(
    config: RateConfig, events: list[tuple[int, int]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(events)))
    ring = SampleRing(config)
    time_ms = 0
    for gap_ms, amount in events[:cut]:
        time_ms += gap_ms
        ring.record(amount, time_ms)
    rebuilt = SampleRing(config, deepcopy(ring.state))
    assert rebuilt.total == ring.total
    for gap_ms, amount in events[cut:]:
        time_ms += gap_ms
        assert rebuilt.record(amount, time_ms) == ring.record(amount, time_ms)
        assert (rebuilt.total, rebuilt.state) == (ring.total, ring.state)


@_SETTINGS
@given(CONFIGS, EVENTS, st.integers(0, 40_000))
def test_after_the_horizon_nothing_is_left(
    config: RateConfig, events: list[tuple[int, int]], more_ms: int
) -> None:
    used, new = SampleRing(config), SampleRing(config)
    time_ms = 0
    for gap_ms, amount in events:
        time_ms += gap_ms
        used.record(amount, time_ms)
    time_ms += config.horizon_ms + more_ms
    for gap_ms in (0, 400, 700, 1_500):
        time_ms += gap_ms
        assert used.record(5, time_ms) == new.record(5, time_ms)
        assert used.total == new.total
