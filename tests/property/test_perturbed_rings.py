"""A perturbed ring is a sample ring whose moments are off by a few ms, and the same in every run."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant, SampleRing
from kquota_spark.model.replay.perturbed_rings import (
    PERTURBATIONS,
    Perturbation,
    PerturbedRing,
    PerturbedRings,
    Scrape,
)

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
    ring, unperturbed = SampleRing(config), PerturbedRing(config, Perturbation(((0, 0),), Scrape.NEVER))
    time_ms = 0
    for gap_ms, amount in events:
        time_ms += gap_ms
        assert unperturbed.record(amount, time_ms) == ring.record(amount, time_ms)
        assert unperturbed.total == ring.total


@_SETTINGS
@given(CONFIGS, EVENTS, st.sampled_from(PERTURBATIONS), st.data())
def test_how_the_events_are_cut_into_batches_does_not_matter(
    config: RateConfig, events: Events, shake: Perturbation, data: st.DataObject
) -> None:
    whole, cut = PerturbedRing(config, shake), PerturbedRing(config, shake)
    amounts, times_ms, time_ms = [], [], 0
    for gap_ms, amount in events:
        time_ms += gap_ms
        times_ms.append(time_ms)
        amounts.append(amount)
    expected, found = whole.record_all(amounts, times_ms), list[tuple[int, int]]()
    for amount, time_ms in zip(amounts, times_ms, strict=True):
        if data.draw(st.booleans()):
            cut = PerturbedRing(config, shake, deepcopy(cut.state))
        window_ms = cut.record(amount, time_ms)
        found.append((cut.total, window_ms))
    assert found == list(zip(*expected, strict=True))
    assert cut.state == whole.state


@_SETTINGS
@given(CONFIGS, EVENTS, st.sampled_from(PERTURBATIONS), st.integers(0, 40_000))
def test_after_the_horizon_nothing_is_left(
    config: RateConfig, events: Events, shake: Perturbation, more_ms: int
) -> None:
    used, new = PerturbedRing(config, shake), PerturbedRing(config, shake)
    time_ms = 0
    for gap_ms, amount in events:
        time_ms += gap_ms
        used.record(amount, time_ms)
    time_ms += config.horizon_ms + more_ms
    for gap_ms in (0, 400, 700, 1_500, 11_004):
        time_ms += gap_ms
        assert used.record(5, time_ms) == new.record(5, time_ms)
        assert used.total == new.total


@_SETTINGS
@given(CONFIGS, EVENTS, st.data())
def test_rings_that_wait_come_out_as_those_that_do_not(
    config: RateConfig, events: Events, data: st.DataObject
) -> None:
    waiting, plain = PerturbedRings(config), [PerturbedRing(config, shake) for shake in PERTURBATIONS]
    events, time_ms = events * 3, 0  # so many that they are recorded although they could wait
    while events:
        part = events[: data.draw(st.integers(1, len(events)))]
        events = events[len(part) :]
        amounts, times_ms = [amount for _, amount in part], list[int]()
        for gap_ms, _ in part:
            time_ms += gap_ms
            times_ms.append(time_ms)
        least_per_ms = data.draw(st.sampled_from([0.0, 1_000.0, 100_000.0, float("inf")]))
        expected = [ring.record_all(amounts, times_ms) for ring in plain]
        if waiting.wait(amounts, times_ms, least_per_ms):
            measured = [
                each for totals, windows_ms in expected for each in zip(totals, windows_ms, strict=True)
            ]
            assert all(total <= least_per_ms * window_ms for total, window_ms in measured)
        else:
            assert waiting.record_all(amounts, times_ms) == expected
        if data.draw(st.booleans()):
            waiting = PerturbedRings(config, deepcopy(waiting.state))
    assert [ring.memory for ring in waiting.recorded()] == [ring.memory for ring in plain]
