"""The state of a bucket: it comes back as it was, second by second, and another release refuses it."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

import msgspec
import pytest

from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import RuleBook, stretches
from kquota_spark.model.replay.decision import Decision, judge_bucket, replay_of
from kquota_spark.pipeline.bucket_judge import BucketJudge, Configs, Judged, ManagerJudge
from kquota_spark.pipeline.sent import Sent
from kquota_spark.replay.files import replay_files
from tests.support.chance import Chance
from tests.support.pipeline.packed import packed_bytes
from tests.support.places import DATA
from tests.support.tables.table_rows import T0_MS

CONFIG = RateConfig()
CONFIGS = Configs(CONFIG, CONFIG)


@pytest.mark.parametrize("variant", RingVariant)
def test_the_state_comes_back_as_it_was(variant: RingVariant, chance: Chance) -> None:
    config = RateConfig(num_samples=4, window_ms=500, variant=variant)
    configs = Configs(config, config)
    kept, stored = BucketJudge(QuotaType.PRODUCE, configs), BucketJudge(QuotaType.PRODUCE, configs)
    assert BucketJudge(QuotaType.PRODUCE, configs, stored.state).state == stored.state
    second_ms = T0_MS
    for _ in range(300):
        second_ms += 1_000 * chance.choice([1, 1, 1, 2, 5])
        row = _sent(chance, second_ms)
        stored = BucketJudge(QuotaType.PRODUCE, configs, stored.state)
        assert stored.judge([row]) == kept.judge([row])
    assert stored.state == kept.state


def _sent(chance: Chance, second_ms: int, rate_config: str | None = None) -> Sent:
    moments = sorted(chance.randrange(1_000) for _ in range(chance.randrange(1, 6)))
    points = [
        (second_ms + moment, 0, chance.randrange(2**32), index, chance.randrange(2**31), 0, 0, 0)
        for index, moment in enumerate(moments)
    ]
    limit = chance.choice([None, 0.0, 700.0])
    data = packed_bytes(points)
    return Sent(second_ms, "alice", "etl", 0, None, False, data, limit_per_s=limit, rate_config=rate_config)


def test_the_state_of_every_quota_type_goes_on_second_by_second() -> None:
    capture = DATA / "kraft39"
    book = RuleBook(stretches(read_quota_file(capture / "quotas.yaml")))
    found = replay_files([(1, capture / "broker-1.kafka-request.log.gz")], RuleGovernor(book), RateConfig())
    assert {key.quota_type for key in found.stretches} == set(QuotaType)
    for key, of_bucket in found.stretches.items():
        replay, decisions = replay_of(key.quota_type, RateConfig()), list[Decision]()
        by_second = sorted(of_bucket, key=attrgetter("second_ms"))
        for _, second in groupby(by_second, key=attrgetter("second_ms")):
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(replay.state))
            replay = replay_of(key.quota_type, RateConfig(), state)
            decisions += judge_bucket(replay, second)
        assert decisions == found.decisions[key]


def test_a_state_of_another_release_is_refused() -> None:
    form, *rest = msgspec.msgpack.decode(ManagerJudge(QuotaType.PRODUCE, CONFIGS).state)
    foreign = msgspec.msgpack.encode([form + 1, *rest])
    with pytest.raises(ValueError, match=f"form {form + 1}, expected {form}: move the checkpoint log away"):
        ManagerJudge(QuotaType.PRODUCE, CONFIGS, foreign)


def test_a_manager_keeps_its_buckets_apart_and_goes_on_with_each() -> None:
    chance = Chance(3)
    rows = [
        (f'["","c{number}"]', _sent(chance, T0_MS + second * 1_000))
        for second in range(30)
        for number in range(4)
    ]
    at_once = ManagerJudge(QuotaType.PRODUCE, CONFIGS).judge(rows)
    expected = {each.bucket: each.judged for each in at_once}
    assert len(expected) == 4
    state, found = None, dict[str, list[Judged]]()
    for row in rows:  # a row a micro-batch: three of four buckets are only carried along
        judge = ManagerJudge(QuotaType.PRODUCE, CONFIGS, state)
        for each in judge.judge([row]):
            found.setdefault(each.bucket, []).extend(each.judged)
        state = judge.state
    assert found == expected


def test_a_manager_forgets_what_no_ring_remembers() -> None:
    judge = ManagerJudge(QuotaType.PRODUCE, CONFIGS)
    chance = Chance(4)
    judge.judge([("early", _sent(chance, T0_MS)), ("late", _sent(chance, T0_MS + 1_000))])
    # 12 s after the end of its last second: T0 + 1 s + 12 s. Of the seconds that come next the oldest counts.
    judge.judge([("next", _sent(chance, T0_MS + 90_000)), ("next", _sent(chance, T0_MS + 12_000))])
    assert ManagerJudge(QuotaType.PRODUCE, CONFIGS, judge.state).buckets == ["early", "late", "next"]
    judge.judge([("next", _sent(chance, T0_MS + 13_000))])
    assert ManagerJudge(QuotaType.PRODUCE, CONFIGS, judge.state).buckets == ["late", "next"]


def test_what_is_known_of_the_rules_is_the_least_of_all_rows() -> None:
    def known(*through_ms: int | None) -> int | None:
        chance = Chance(5)
        rows = [_sent(chance, T0_MS) for _ in through_ms]
        for row, time_ms in zip(rows, through_ms, strict=True):
            row.known_through_ms = time_ms
        [judged] = ManagerJudge(QuotaType.PRODUCE, CONFIGS).judge([("bucket", row) for row in rows])
        return judged.known_through_ms

    assert known(T0_MS + 5, T0_MS + 3) == T0_MS + 3
    assert known(T0_MS + 5, None) is None


def test_a_state_names_its_own_windows() -> None:
    name = "<=3.7/5x2000ms"
    judge = BucketJudge(QuotaType.PRODUCE, CONFIGS)
    [judged] = judge.judge([_sent(Chance(1), T0_MS, name)])
    assert judged.model_variant == name
    again = BucketJudge(QuotaType.PRODUCE, CONFIGS, judge.state)
    assert again.config == RateConfig(5, 2_000, RingVariant.UP_TO_3_7)
    assert again.forget_at_ms == T0_MS + 1_000 + again.config.horizon_ms
    # Another ring is a restart of the broker: what it had measured is gone.
    [restarted] = again.judge([_sent(Chance(1), T0_MS + 1_000)])
    [fresh] = BucketJudge(QuotaType.PRODUCE, CONFIGS).judge([_sent(Chance(1), T0_MS + 1_000)])
    assert restarted == fresh
