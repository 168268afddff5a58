"""Rings in columns: each measures what a ring of its own measures, over any batches and a stored state."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from kquota_spark.model.loops.shadow_bucket import ShadowLimit, ShadowPart, ShadowReplay, ShadowSecond
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant, SampleRing
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.pipeline.shadow.moved import MovedTerms
from kquota_spark.pipeline.shadow.rings import KeptRings, Key, RingColumns
from kquota_spark.pipeline.shadow.sampled import SampledBuckets
from tests.support.chance import Chance

CONFIGS = (
    RateConfig(),
    RateConfig(variant=RingVariant.UP_TO_3_7),
    RateConfig(4, 500),
    RateConfig(2, 2_000, RingVariant.UP_TO_3_7),
    RateConfig(1, 1_000),
)
RINGS, BATCHES = 7, 40
T0 = 1_800_000_000_000


def _requests(chance: Chance, last_ms: list[int]) -> list[tuple[int, int, int]]:
    """Requests of some rings after the last of each: ring, time and amount, by ring and time."""
    found = []
    for ring in range(RINGS):
        for _ in range(chance.choice([0, 0, 1, 2, 30])):
            last_ms[ring] += chance.choice([0, 1, 40, 400, 999, 1_000, 3_000, 11_000, 13_000])
            found.append((ring, last_ms[ring], chance.choice([0, 1, 5_000, 2**31])))
    return found


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_many_rings_at_once_measure_as_each_one_alone(config: RateConfig, chance: Chance) -> None:
    rings, alone = RingColumns(config, RINGS), [SampleRing(config) for _ in range(RINGS)]
    last_ms, events = [T0 + 7 * ring for ring in range(RINGS)], 0
    for _ in range(BATCHES):
        requests = _requests(chance, last_ms)
        events += len(requests)
        columns = (np.array(column, np.int64) for column in zip(*requests, strict=True)) if requests else ()
        ring_of, times_ms, amounts = tuple(columns) or (np.zeros(0, np.int64),) * 3
        totals, windows_ms = rings.record(ring_of, times_ms, amounts)
        expected = [
            (alone[ring].record(amount, time_ms), alone[ring].total) for ring, time_ms, amount in requests
        ]
        assert list(zip(windows_ms.tolist(), totals.tolist(), strict=True)) == expected
        rings = RingColumns.of_state(config, msgspec.msgpack.decode(msgspec.msgpack.encode(rings.state)))
    assert events > 500


def test_a_ring_continues_from_the_state_of_a_single_one() -> None:
    """1, 2 and 4 at seconds 0, 1 and 12: at 12 the first sample is purged, so the window has 2 and 4."""
    single, config = SampleRing(RateConfig()), RateConfig()
    single.record(1, T0)
    single.record(2, T0 + 1_000)
    rings = RingColumns(config, 2)
    rings.put(1, single.state)
    totals, windows_ms = rings.record(np.array([1]), np.array([T0 + 11_500]), np.array([4]))
    # The purged sample begins at the request; the oldest one began at second 1: 10.5 s.
    assert (totals.tolist(), windows_ms.tolist()) == ([6], [10_500])


def test_kept_rings_grow_and_forget_by_name() -> None:
    kept = KeptRings(RateConfig())
    keys = [("m", (f"user-{number}", "", None)) for number in range(40)]
    assert [kept.add(key) for key in keys] == list(range(40))
    for place in range(40):
        kept.put(place, T0 + place, T0 + 12_000 + place, (0, [place], [T0], [T0]))
    assert kept.forget(T0 + 12_036) == keys[:37]
    assert kept.places == {keys[37]: 0, keys[38]: 1, keys[39]: 2}
    assert kept.forget(T0 + 12_036) == []
    again = KeptRings.of_state(msgspec.msgpack.decode(msgspec.msgpack.encode(kept.state)))
    assert again.places == kept.places
    assert again.rings.values[:, 0].tolist() == [37, 38, 39]
    assert again.folded_ms.tolist() == [T0 + 37, T0 + 38, T0 + 39]
    assert again.add(("m", ("new", "", None))) == 3


@pytest.mark.parametrize("quota_type", [QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST])
def test_seconds_of_many_buckets_equal_those_of_each_bucket_alone(
    quota_type: QuotaType, chance: Chance
) -> None:
    """Limits of 0, none and a throttle of more than 32 bits among them; a second may have two limits."""
    config, limits = RateConfig(), [None, 0.0, 0.5, 3_000.0, 9e5]
    shadows = [
        ShadowLimit(limit, 3, "users/a", has_request_quota=False, is_enforced=False) for limit in limits
    ]
    kept = KeptRings(config)
    waiting, names = SampledBuckets(config, kept), [("demo", 1, quota_type)]
    manager, expected = msgspec.json.encode(names[0]).decode(), dict[tuple[Key, int], ShadowSecond]()
    for bucket in range(12):
        key: Key = manager, (f"user-{bucket}", "", None)
        at, alone = kept.add(key), ShadowReplay(quota_type, config)
        for second in range(15):
            second_ms, parts = T0 + 1_000 * second, []
            for shadow in chance.sample(shadows, chance.choice([1, 1, 2])):
                points = [
                    Point(
                        second_ms + chance.randrange(1_000),
                        0,
                        bucket,
                        number,
                        chance.choice([0, 900, 10**9]),
                        0,
                        1,
                    )
                    for number in range(chance.randrange(1, 4))
                ]
                parts.append(ShadowPart(points, shadow))
                waiting.add_points(at, [(second_ms, points, MovedTerms(shadow, None, has_gap=False))])
            expected[key, second_ms] = alone.judge(second_ms, parts)
    found = {(each.key, each.second.second_ms): each.second for each in waiting.judged({})}
    throttled = {place: second for place, second in expected.items() if second.throttled_requests}
    assert len(throttled) > 40
    assert {place: found.get(place) for place in throttled} == throttled
    assert {place: expected[place] for place in found} == found
