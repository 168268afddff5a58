"""The state of a bucket over batches, restarts, idle times and releases."""

from __future__ import annotations

import random
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.formats.quota_file import read_quota_file
from kquota_spark.io.offline import replay_files
from kquota_spark.model.bucket_replays import replay_of
from kquota_spark.model.decision import Decision, Stretch, judge_bucket
from kquota_spark.model.govern import RuleGovernor
from kquota_spark.model.points import Point
from kquota_spark.model.quota_types import QuotaType
from kquota_spark.model.replay import BucketReplay, Governing
from kquota_spark.model.rules import RuleBook, stretches
from kquota_spark.model.sampled_rate import RateConfig, RingVariant
from kquota_spark.pipeline.bucket_judge import BucketJudge, Configs
from kquota_spark.pipeline.sent import Sent
from tests.support.chance import drawn
from tests.support.places import DATA
from tests.support.spark.hops import only
from tests.support.spark.judged_usage import judged, settings_with_rules, used
from tests.support.tables.table_rows import T0_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = RateConfig()
CONFIGS = Configs(CONFIG, CONFIG)


def _busy_seconds(chance: random.Random) -> list[list[dict[str, Any]]]:
    """20 seconds of requests around the limits of alice and erin, each a list of usage rows."""
    seconds = []
    for start_ms in range(0, 40_000, 2_000):
        rows = []
        for user, client_id in (("alice", "a"), ("alice", "b"), ("erin", "a"), ("frank", "a")):
            moments = sorted(
                chance.randrange(start_ms, start_ms + 1_000) for _ in range(chance.randrange(1, 9))
            )
            points = [(moment, chance.randrange(1_200), chance.choice([0, 0, 80])) for moment in moments]
            rows.append(used(user, *points, client_id=client_id))
        seconds.append(rows)
    return seconds


def test_the_cut_into_batches_and_restarts_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    seconds = _busy_seconds(drawn())
    whole = judged(spark, settings_with_rules(tmp_path / "1"), [row for rows in seconds for row in rows])
    assert len(whole) == 20 * 3  # alice's two clients share a bucket
    # A commit of 7 seconds and one of a single one; a restart; the rest, in another order.
    in_parts = settings_with_rules(tmp_path / "2")
    judged(spark, in_parts, [row for rows in seconds[:7] for row in rows], seconds[7])
    assert judged(spark, in_parts, [row for rows in seconds[8:] for row in reversed(rows)]) == whole


def test_an_idle_bucket_is_forgotten_and_nothing_changes(spark: SparkSession, tmp_path: Path) -> None:
    # Forgotten when the clock of all brokers, less a second of lateness, is 12 s past the end of its last
    # second: its ring equals a new one then. The first timer fires for erin too, who has been back since.
    settings = settings_with_rules(tmp_path, judge_lateness=1_000)
    judged(spark, settings, [used("alice", (900, 20_000, 0)), used("erin", (0, 1_000, 0))])
    assert _remembered(spark, settings) == ["alice", "erin"]
    clock = [used("erin", (10_000, 5_000, 0)), used("bob", (20_000, 1, 0), broker_id=2)]
    # Timers go off in the micro-batch after the one that moved the watermark.
    judged(spark, settings, clock, [used("bob", (21_000, 1, 0), broker_id=2)])
    assert _remembered(spark, settings) == ["", "erin"]  # bob is without a rule, under his client id
    found = judged(spark, settings, [used("alice", (20_100, 12_000, 0)), used("erin", (20_100, 6_000, 0))])
    assert _remembered(spark, settings) == ["", "alice", "erin"]
    # The same as with a state that is never forgotten.
    for user, requests in (
        ("alice", ((900, 20_000), (20_100, 12_000))),
        ("erin", ((0, 1_000), (10_000, 5_000), (20_100, 6_000))),
    ):
        expected = judge_bucket(BucketReplay(CONFIG), [_stretch(*request) for request in requests])
        assert only((row for row in found if row["bucket_user"] == user), "second", "rate_per_s") == [
            (decision.second_ms, decision.rate_per_s) for decision in expected
        ]


def _stretch(offset_ms: int, amount: int) -> Stretch:
    time_ms = T0_MS + offset_ms
    point = Point(time_ms, time_ms + 1, 1, 0, amount, 0, 0)
    second_ms = time_ms // 1_000 * 1_000
    return Stretch(second_ms, "alice", "etl", Governing(1_000.0), 3, "users/alice", 0, [point])


def _remembered(spark: SparkSession, settings: Settings) -> list[str]:
    """Users of the buckets that have a state, from the checkpoint itself."""
    state = spark.read.format("statestore").option("stateVarName", "replay")
    keys = [row.key[0] for row in state.load(f"{settings.checkpoints}/judge").select("key").collect()]
    return sorted(msgspec.json.decode(key)[3] for key in keys)


@pytest.mark.parametrize("variant", RingVariant)
def test_the_state_comes_back_as_it_was(variant: RingVariant) -> None:
    chance = drawn()
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


def _sent(chance: random.Random, second_ms: int, rate_config: str | None = None) -> Sent:
    moments = sorted(chance.randrange(1_000) for _ in range(chance.randrange(1, 6)))
    points = [
        (second_ms + moment, 0, chance.randrange(2**32), index, chance.randrange(2**31), 0, 0)
        for index, moment in enumerate(moments)
    ]
    limit = chance.choice([None, "0.0", "700.0"])
    columns = [list(column) for column in zip(*points, strict=True)]
    return Sent(
        second_ms, "alice", "etl", 0, 2**62, False, columns, limit_per_s=limit, rate_config=rate_config
    )


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
    form, *rest = msgspec.msgpack.decode(BucketJudge(QuotaType.PRODUCE, CONFIGS).state)
    foreign = msgspec.msgpack.encode([form + 1, *rest])
    with pytest.raises(
        ValueError, match=f"form {form + 1}, expected {form}: move the checkpoint of judge away"
    ):
        BucketJudge(QuotaType.PRODUCE, CONFIGS, foreign)


def test_a_state_names_its_own_windows() -> None:
    name = "<=3.7/5x2000ms"
    judge = BucketJudge(QuotaType.PRODUCE, CONFIGS)
    [judged] = judge.judge([_sent(random.Random(1), T0_MS, name)])
    assert judged.model_variant == name
    again = BucketJudge(QuotaType.PRODUCE, CONFIGS, judge.state)
    assert again.config == RateConfig(5, 2_000, RingVariant.UP_TO_3_7)
    assert again.forget_at_ms == T0_MS + 1_000 + again.config.horizon_ms
    # Another ring is a restart of the broker: what it had measured is gone.
    [restarted] = again.judge([_sent(random.Random(1), T0_MS + 1_000)])
    [fresh] = BucketJudge(QuotaType.PRODUCE, CONFIGS).judge([_sent(random.Random(1), T0_MS + 1_000)])
    assert restarted == fresh
