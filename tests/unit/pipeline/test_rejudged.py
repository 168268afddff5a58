"""One bucket judged again: spliced into what was judged before, it equals a run that had never been late."""

from __future__ import annotations

import pytest

from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.decision import Decision, judge_bucket
from kquota_spark.model.replay.replay import BucketReplay
from kquota_spark.pipeline.bucket_judge import Configs
from kquota_spark.pipeline.rejudge import Reach, rejudged
from kquota_spark.pipeline.sent import Sent, governed_second_of
from tests.support.chance import Chance
from tests.support.pipeline.packed import packed_bytes
from tests.support.tables.table_rows import T0_MS

MINUTE_MS = 60_000


def _second(chance: Chance, start_ms: int) -> Sent:
    times = sorted(chance.randrange(start_ms, start_ms + 1_000) for _ in range(chance.choice([1, 2, 5])))
    points = [
        [time_ms, time_ms + 1, 7, index, chance.randrange(900), 0, 0, 0]
        for index, time_ms in enumerate(times)
    ]
    return Sent(
        start_ms, "alice", "etl", 0, None, False, packed_bytes(points), "users/alice", 1, 3, 1000.0, 2**60
    )


def _traffic(chance: Chance, busy: float, seconds: int) -> list[Sent]:
    return [_second(chance, T0_MS + second * 1_000) for second in range(seconds) if chance.random() < busy]


def _judged(rows: list[Sent], config: RateConfig) -> list[Decision]:
    return judge_bucket(BucketReplay(config), map(governed_second_of, rows))


@pytest.mark.parametrize("variant", RingVariant)
@pytest.mark.parametrize("busy", [1.0, 0.7, 0.15])
def test_a_late_second_restated_is_as_if_in_time(variant: RingVariant, busy: float, chance: Chance) -> None:
    config = RateConfig(num_samples=5, window_ms=1_000, variant=variant)
    configs = Configs(config, config)
    differing = 0
    for _ in range(40):
        rows = _traffic(chance, busy, 120)
        from_ms, to_ms = T0_MS + 60_000, T0_MS + 63_000
        inside = [row for row in rows if from_ms <= row.second_ms < to_ms]
        late = [row for row in inside if chance.random() < 0.5] or inside[:1]
        on_time = [row for row in rows if row not in late]
        old = [row for row in inside if row not in late]
        kept = [row for row in rows if row not in inside]
        calm, before = _judged(rows, config), _judged(on_time, config)
        end_ms = T0_MS + 120_000
        reach = Reach(from_ms, to_ms, T0_MS, end_ms, is_from_beginning=True)
        chance.shuffle(kept)
        again = rejudged(QuotaType.PRODUCE, kept, old, inside, configs, reach)
        until_ms = end_ms if again.differs_until_ms is None else again.differs_until_ms
        spliced = [
            *(one for one in before if one.second_ms < from_ms),
            *(one.decision for one in again.decisions if one.decision.second_ms < until_ms),
            *(one for one in before if one.second_ms >= max(until_ms, to_ms)),
        ]
        assert spliced == calm
        assert again.is_warm
        differing += before != calm
    assert differing > 2  # late seconds do make a difference, seldom where the bucket is seldom used


def test_a_bucket_without_a_pause_within_the_reach_says_so() -> None:
    configs = Configs(RateConfig(), RateConfig())
    chance = Chance(1)
    rows = _traffic(chance, 1.0, 60)
    from_ms = T0_MS + 30_000
    reach = Reach(from_ms, from_ms + 1_000, T0_MS, T0_MS + 60_000, is_from_beginning=False)
    inside = [row for row in rows if row.second_ms == from_ms]
    kept = [row for row in rows if row.second_ms != from_ms]
    assert not rejudged(QuotaType.PRODUCE, kept, inside, inside, configs, reach).is_warm
    # A pause of 12 s, as long as the ring remembers, is enough; one of 11 is not.
    for pause_s, is_warm in ((12, True), (11, False)):
        paused = [row for row in kept if not 5_000 <= row.second_ms - T0_MS < 5_000 + pause_s * 1_000]
        assert rejudged(QuotaType.PRODUCE, paused, inside, inside, configs, reach).is_warm is is_warm


def test_nothing_new_makes_no_difference_behind_the_period() -> None:
    rows = _traffic(Chance(2), 1.0, 60)
    from_ms = T0_MS + 30_000
    reach = Reach(from_ms, from_ms + 1_000, T0_MS, T0_MS + 60_000, is_from_beginning=True)
    inside = [row for row in rows if row.second_ms == from_ms]
    kept = [row for row in rows if row.second_ms != from_ms]
    assert (
        rejudged(
            QuotaType.PRODUCE, kept, inside, inside, Configs(RateConfig(), RateConfig()), reach
        ).differs_until_ms
        == from_ms + 1_000
    )
