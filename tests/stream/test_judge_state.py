"""The state of a bucket over batches, restarts, idle times and releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import GovernedSecond, judge_bucket
from kquota_spark.model.replay.replay import BucketReplay
from kquota_spark.pipeline.bucket_judge import Configs
from tests.support.chance import Chance
from tests.support.spark.judged_usage import judged, settings_with_rules, used
from tests.support.spark.queries import only
from tests.support.spark.remembered import remembered
from tests.support.tables.table_rows import T0_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = RateConfig()
CONFIGS = Configs(CONFIG, CONFIG)


def _busy_seconds(chance: Chance) -> list[list[dict[str, Any]]]:
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


def test_the_cut_into_batches_and_restarts_change_nothing(
    spark: SparkSession, tmp_path: Path, chance: Chance
) -> None:
    seconds = _busy_seconds(chance)
    whole = judged(spark, settings_with_rules(tmp_path / "1"), [row for rows in seconds for row in rows])
    assert len(whole) == 20 * 3  # alice's two clients share a bucket
    # A commit of 7 seconds and one of a single one; a restart; the rest, in another order.
    in_parts = settings_with_rules(tmp_path / "2")
    judged(spark, in_parts, [row for rows in seconds[:7] for row in rows], seconds[7])
    assert judged(spark, in_parts, [row for rows in seconds[8:] for row in reversed(rows)]) == whole


def test_an_idle_bucket_is_forgotten_and_nothing_changes(spark: SparkSession, tmp_path: Path) -> None:
    # Forgotten when its shard's next seconds are 12 s past the end of its last one: its ring equals a new one then.
    settings = settings_with_rules(tmp_path, state_shards=1)
    judged(spark, settings, [used("alice", (900, 20_000, 0)), used("erin", (0, 1_000, 0))])
    assert _users(spark, settings) == ["alice", "erin"]
    judged(spark, settings, [used("erin", (10_000, 5_000, 0))])
    assert _users(spark, settings) == ["alice", "erin"]
    judged(spark, settings, [used("bob", (20_000, 1, 0))])
    assert _users(spark, settings) == ["", "erin"]  # bob is without a rule, under his client id
    found = judged(spark, settings, [used("alice", (20_100, 12_000, 0)), used("erin", (20_100, 6_000, 0))])
    assert _users(spark, settings) == ["", "alice", "erin"]
    # The same as with a state that is never forgotten.
    for user, requests in (
        ("alice", ((900, 20_000), (20_100, 12_000))),
        ("erin", ((0, 1_000), (10_000, 5_000), (20_100, 6_000))),
    ):
        expected = judge_bucket(BucketReplay(CONFIG), [_governed_second(*request) for request in requests])
        assert only((row for row in found if row["bucket_user"] == user), "second", "rate_per_s") == [
            (decision.second_ms, decision.rate_per_s) for decision in expected
        ]


def _governed_second(offset_ms: int, amount: int) -> GovernedSecond:
    time_ms = T0_MS + offset_ms
    point = Point(time_ms, time_ms + 1, 1, 0, amount, 0, 0)
    second_ms = time_ms // 1_000 * 1_000
    return GovernedSecond(second_ms, "alice", "etl", Governing(1_000.0), 3, "users/alice", 0, [point])


def _users(spark: SparkSession, settings: Settings) -> list[str]:
    return [user for user, _ in remembered(spark, settings)]
