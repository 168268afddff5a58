"""The sample ring gives the numbers that Kafka's own classes gave, for both variants."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kquota_spark.model.measure.sampled_rate import FloatRing, RateConfig, RingVariant, SampleRing
from kquota_spark.model.measure.throttle_time import rate_per_s, throttle_time_ms

OLD, NEW = RingVariant.UP_TO_3_7, RingVariant.FROM_3_8
Q = 1_000_000.0
BOTH = pytest.mark.parametrize("variant", [OLD, NEW], ids=lambda variant: str(variant.value))


class Measured(NamedTuple):
    rate_per_s: float
    window_ms: int
    throttle_ms: int


def last(
    variant: RingVariant, *events: tuple[int, int], num: int = 11, size_ms: int = 1_000, limit: float = Q
) -> Measured:
    """What the last of (amount, time in ms) measures, in both rings."""
    config = RateConfig(num, size_ms, variant)
    ring, floats = SampleRing(config), FloatRing(config)
    window_ms = 0
    for amount, time_ms in events:
        window_ms = ring.record(amount, time_ms)
        floats.add(amount, time_ms)
        assert floats.measure(time_ms) == (ring.total, window_ms)
    return Measured(
        rate_per_s(ring.total, window_ms), window_ms, throttle_time_ms(ring.total, window_ms, limit)
    )


@BOTH
def test_a_15_mb_at_once(variant: RingVariant) -> None:
    # 15 MB / 10 s, the window of a cold client; 15 s of quota - 10 s.
    assert last(variant, (15_000_000, 0)) == (1_500_000.0, 10_000, 5_000)


@BOTH
def test_b_one_big_sample_holds_until_it_is_purged(variant: RingVariant) -> None:
    events = ((15_000_000, 0), (1, 5_000), (1, 10_000), (1, 15_000))
    # (15,000,001 - 10,000,000) / 1000 = 5000.001 ms, rounded.
    assert last(variant, *events[:2]) == (1_500_000.1, 10_000, 5_000)
    assert last(variant, *events[:3]) == (1_500_000.2, 10_000, 5_000)
    # 15 s >= 11 s: purged. Left are 3 B since 5 s.
    assert last(variant, *events) == (0.3, 10_000, 0)


@BOTH
def test_c_a_cold_client_may_burst_ten_seconds_of_quota(variant: RingVariant) -> None:
    # The rate is not above the limit, so this is no violation.
    assert last(variant, (10_000_000, 0)) == (1_000_000.0, 10_000, 0)


@BOTH
def test_d_one_byte_more_is_a_violation_of_no_length(variant: RingVariant) -> None:
    # 0.1 / 1,000,000 * 10,000 = 0.001 ms, rounded to 0.
    assert last(variant, (10_000_000, 0), (1, 0)) == (1_000_000.1, 10_000, 0)


@BOTH
def test_e_exactly_at_quota_in_bursts_is_throttled(variant: RingVariant) -> None:
    events = [(1_000_000, second * 1_000) for second in range(15)]
    assert last(variant, *events[:10]) == (1_000_000.0, 10_000, 0)
    # From t = 10 s on there are 11 bursts within 10 s.
    for count in range(11, 16):
        assert last(variant, *events[:count]) == (1_100_000.0, 10_000, 1_000)


def test_f_half_a_megabyte_every_400_ms() -> None:
    events = [(500_000, index * 400) for index in range(30)]
    for variant in (OLD, NEW):
        unthrottled = [last(variant, *events[: count + 1]).throttle_ms for count in range(20)]
        assert unthrottled == [0] * 20
        # t = 8.0 s: 21 events, 10.5 MB / 10 s.
        assert last(variant, *events[:21]) == (1_050_000.0, 10_000, 500)
        # t = 10.8 s: 28 events, 14 MB / 10.8 s = 1,296,296.
        assert last(variant, *events[:28]) == (14_000_000 / 10.8, 10_800, 3_200)
    # t = 11.6 s: the sample of 0.0 to 0.8 s had its last event 10.8 s ago (kept, 15 MB / 11.6 s) but its
    # start 11.6 s ago (gone with its 3 events, the next began at 1.2 s: 13.5 MB / 10.4 s).
    assert last(NEW, *events) == (15_000_000 / 11.6, 11_600, 3_400)
    assert last(OLD, *events) == (13_500_000 / 10.4, 10_400, 3_100)


@pytest.mark.parametrize(
    ("variant", "time_ms", "rate", "window_ms"),
    [
        (NEW, 10_999, 4_000_000 / 10.999, 10_999),  # 363,669
        (NEW, 11_000, 4_000_000 / 11.0, 11_000),  # 363,636
        (NEW, 11_899, 4_000_000 / 11.899, 11_899),  # 336,163
        (NEW, 11_900, 0.0, 10_000),  # 11 s after the last event
        (OLD, 10_999, 4_000_000 / 10.999, 10_999),
        (OLD, 11_000, 0.0, 10_000),  # 11 s after the start
        (OLD, 11_899, 0.0, 10_000),
        (OLD, 11_900, 0.0, 10_000),
    ],
)
def test_g_when_a_sample_is_purged(variant: RingVariant, time_ms: int, rate: float, window_ms: int) -> None:
    # An event of nothing measures without changing the sum.
    found = last(variant, (2_000_000, 0), (2_000_000, 900), (0, time_ms))
    assert found == (rate, window_ms, 0)


@BOTH
def test_h_old_data_is_gone_after_a_pause(variant: RingVariant) -> None:
    # 12 MB / 10 s; 12 s of quota - 10 s.
    assert last(variant, (3_000_000, 0), (12_000_000, 60_000)) == (1_200_000.0, 10_000, 2_000)


@BOTH
def test_i_one_sample_has_a_window_of_a_millisecond(variant: RingVariant) -> None:
    # 5 MB / 1 ms; (5e9 - 1e6) / 1e6 * 1 ms.
    assert last(variant, (5_000_000, 0), num=1) == (5_000_000_000.0, 1, 4_999)


@BOTH
def test_the_spike_of_kafkas_own_test(variant: RingVariant) -> None:
    steady = [(400, second * 1_000) for second in range(10)]
    assert last(variant, *steady, limit=500.0) == (400.0, 10_000, 0)
    # 4,000 + 2,300 B at 9.5 s: 9 whole windows and a half, one missing: 10.5 s, 600 B/s; 100 / 500 * 10,500.
    spike = [*steady, (2_300, 9_500)]
    assert last(variant, *spike, limit=500.0) == (600.0, 10_500, 2_100)
    # The client waits 2.1 s and goes on. At 19.6 s the spike's sample (9.0 to 9.5 s) is the oldest left:
    # 400 + 2,300 + 9 * 400 B in 10.6 s; 12.6 s of quota - 10.6 s.
    after = [*spike, *((400, 11_600 + second * 1_000) for second in range(10))]
    assert last(variant, *after[:-1], limit=500.0) == (6_300 / 10.6, 10_600, 2_000)
    # At 20.6 s it is 11.6 s (its last event 11.1 s) old and gone, and so it stays.
    assert last(variant, *after, limit=500.0) == (400.0, 10_000, 0)
    assert last(variant, *after, (0, 21_600), limit=500.0) == (400.0, 10_000, 0)


@BOTH
def test_five_windows_of_two_seconds(variant: RingVariant) -> None:
    # At least 4 * 2 s: 16 MB / 8 s. At 3 s: one whole window and a half, (4 - 1 - 1) missing: 3 + 3 * 2 = 9 s.
    assert last(variant, (16_000_000, 0), num=5, size_ms=2_000) == (2_000_000.0, 8_000, 8_000)
    assert last(variant, (16_000_000, 0), (2_000_000, 3_000), num=5, size_ms=2_000) == (2e6, 9_000, 9_000)


@pytest.mark.parametrize(
    ("version", "variant"),
    [("2.8", OLD), ("3.7.2", OLD), ("3.8", NEW), ("3.8.0", NEW), ("3.10.1", NEW), ("4.0", NEW)],
)
def test_ring_of_a_version(version: str, variant: RingVariant) -> None:
    assert RingVariant.of_version(version) is variant


@pytest.mark.parametrize("version", ["", "4", "3.x", "new", "3.9-SNAPSHOT"])
def test_no_ring_of_what_is_no_version(version: str) -> None:
    with pytest.raises(ValueError):
        RingVariant.of_version(version)


def test_names_and_horizon() -> None:
    assert RateConfig().name == "3.8+/11x1000ms"
    assert RateConfig(5, 2_000, OLD).name == "<=3.7/5x2000ms"
    assert RateConfig(5, 2_000).horizon_ms == 12_000


@BOTH
def test_after_the_horizon_a_ring_is_as_new(variant: RingVariant) -> None:
    config = RateConfig(3, 1_000, variant)
    used, new = SampleRing(config), SampleRing(config)
    for time_ms in range(0, 5_000, 300):
        used.record(1_000, time_ms)
    # 4,800 was the last event; 4,800 + 4,000 = 8,800.
    for time_ms in (8_800, 9_100, 9_900, 13_000):
        assert used.record(7, time_ms) == new.record(7, time_ms)
        assert used.total == new.total


def test_fractions_are_added_up_in_the_order_of_the_samples() -> None:
    ring = FloatRing(RateConfig())
    for second in range(11):
        ring.add(0.1, second * 1_000)
    # Eleven times 0.1 is 1.0999999999999999 when added one by one; exactly rounded it would be 1.1.
    assert ring.measure(10_000) == (1.0999999999999999, 10_000)
    # Kafka 3.9.1's Rate gave this.
    assert rate_per_s(*ring.measure(10_000)) == 0.10999999999999999


def test_a_small_amount_drowns_between_two_large_ones() -> None:
    ring = FloatRing(RateConfig())
    for time_ms, amount in enumerate((1e16, 1.0, 1.0, -1e16)):
        ring.add(amount, time_ms * 1_000)
    # 1e16 + 1 is 1e16 in doubles, twice: 0 is left, as from Kafka 3.9.1's Rate, not 2.
    assert ring.measure(3_000) == (0.0, 10_000)


@BOTH
def test_un_recording_leaves_a_new_sample_open(variant: RingVariant) -> None:
    ring = FloatRing(RateConfig(11, 1_000, variant))
    ring.add(8_000_000, 0)
    ring.add(4_000_000, 1_200)
    assert ring.measure(1_200) == (12_000_000, 10_200)
    ring.add(-4_000_000, 1_200)
    assert ring.measure(1_200) == (8_000_000, 10_200)
    # At 12.1 s the sample of 0 s is gone; the one of 1.2 s, which holds nothing, still starts the window.
    assert ring.measure(12_100) == (0.0, 10_900)


def test_only_measuring_purges() -> None:
    config = RateConfig(3, 1_000)
    measured, unmeasured = FloatRing(config), FloatRing(config)
    for ring in (measured, unmeasured):
        ring.add(1, 0)
        ring.add(1, 1_000)
    # 3 s after its last event the sample of 0 s is reset to begin then, at 3.0 s or only when 3.9 s measures it;
    # the sample of 1 s begins the window in both: 2.9 s.
    assert measured.measure(3_000) == (1.0, 2_000)
    assert measured.measure(3_900) == unmeasured.measure(3_900) == (1.0, 2_900)
    # 3 s after its last event that one goes too: the oldest is then the reset of 3.0 s (1 s ago, one whole
    # window and one missing) or that of 3.9 s (0.1 s ago, two missing).
    assert measured.measure(4_000) == (0.0, 2_000)
    assert unmeasured.measure(4_000) == (0.0, 2_100)


def test_measuring_an_empty_ring_opens_its_first_sample() -> None:
    ring = FloatRing(RateConfig())
    assert ring.measure(500) == (0.0, 10_000)
    ring.add(100, 700)
    # The sample began at 500, not at 700.
    assert ring.measure(700) == (100.0, 10_200)
