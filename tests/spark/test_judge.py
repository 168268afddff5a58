"""JUDGE: literal rows of `usage` in, `decisions` out; the state of a bucket over batches, restarts, idle times."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.io.rules_tables import RulesTables
from kquota_spark.model.decision import Stretch, judge_bucket
from kquota_spark.model.points import Point
from kquota_spark.model.quota_types import QuotaKey
from kquota_spark.model.replay import BucketReplay, Governing
from kquota_spark.model.sampled_rate import RateConfig, RingVariant
from kquota_spark.pipeline.judge import decoded, encoded
from kquota_spark.schema.tables import DECISIONS
from tests.spark.conftest import CLUSTER, change, only, rows_of, run_hop, settings_at, write_rules
from tests.unit.table_rows import DAY, T0_MS, usage, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CONFIG = RateConfig()
RULES = (
    change("alice", None, 1_000.0),
    change("carol", None, 1_000.0, key=QuotaKey.CONSUMER_BYTE_RATE),
    change("dave", None, 1_000.0),
    change("dave", None, 50.0, key=QuotaKey.REQUEST_PERCENTAGE),
    change("erin", None, 1_000.0),
)


def used(
    user: str, *points: tuple[int, int, int], client_id: str = "etl", kind: int = 0, **changed: Any
) -> dict[str, Any]:
    """A row of usage: requests as (ms after T0, bytes, logged throttle), all of one second."""
    rows = [
        {
            "record_time_ms": T0_MS + offset_ms,
            "log_time_ms": T0_MS + offset_ms + 1,
            "connection_hash": 1,
            "correlation_id": index,
            "amount": amount,
            "observed_throttle_ms": throttle_ms,
            "kind": kind,
        }
        for index, (offset_ms, amount, throttle_ms) in enumerate(points)
    ]
    row = usage(points[0][0] // 1_000, user=user, client_id=client_id, points=rows, requests=len(rows))
    return {**row, **changed}


def judged(spark: SparkSession, settings: Settings, *commits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write each list as one commit, which is one micro-batch; all decisions so far."""
    for rows in commits:
        write_table(Path(settings.tables), "usage", *rows)
    run_hop(spark, settings, "judge")
    return rows_of(settings, "decisions")


def settings_with_rules(root: Path, **stream: int) -> Settings:
    settings = settings_at(root, **stream)
    write_rules(settings, *RULES)
    write_table(Path(settings.tables), "decisions")
    return settings


@pytest.fixture(scope="module")
def literal(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Decisions of one micro-batch."""
    return judged(
        spark,
        settings_with_rules(tmp_path_factory.mktemp("literal")),
        [
            # The ring counts 10 of its 11 seconds as gone: 20,000 B / 10 s = 2,000 B/s against 1,000 B/s, and
            # (2,000 - 1,000) / 1,000 * 10,000 ms = 10,000 ms.
            used("alice", (100, 20_000, 10_000)),
            # A second later (a new sample, still 10 s): 21,000 B / 10 s; 1.1 * 10,000 ms. The broker said 10,990.
            used("alice", (1_100, 1_000, 10_990)),
            # A throttled fetch is empty: the broker's own 500 ms say 1,000 * (1 + 500 / 10,000) B/s.
            used("carol", (100, 0, 500), quota_type="fetch", kind=2),
            # Under a request quota the logged throttle is not bandwidth's alone.
            used("dave", (100, 20_000, 3)),
            # Exactly at the limit is allowed, and a millisecond would flip it.
            used("erin", (100, 10_000, 0)),
            used("frank", (100, 10_000, 0), (200, 5, 0)),
            # One bucket: 16,000 B / 10.1 s after the second one, because its sample opened 100 ms before.
            used("alice", (300, 8_000, 0), client_id="b", broker_id=2),
            used("alice", (200, 8_000, 0), client_id="a", broker_id=2),
            # And two of others.
            used("alice", (200, 9_000, 0), client_id="a", broker_id=3),
            used("alice", (200, 9_000, 0), client_id="a", broker_id=3, quota_type="fetch", kind=1),
        ],
    )


def test_a_row_of_decisions(literal: list[dict[str, Any]]) -> None:
    first, later = [row for row in literal if row["bucket_user"] == "alice" and row["broker_id"] == 1]
    assert first == {
        "cluster_id": CLUSTER,
        "event_date": DAY,
        "broker_id": 1,
        "quota_type": "produce",
        "bucket_user": "alice",
        "bucket_client_id": "",
        "bucket_tags": None,
        "second": T0_MS,
        "level": 3,
        "rule": "users/alice",
        "rule_version": 0,
        "limit_per_s": 1_000.0,
        "rate_per_s": 2_000.0,
        "quota_used_percent": 200.0,
        "amount": 20_000,
        "requests": 1,
        "throttle_ms": 10_000,
        "observed_throttle_ms": 10_000,
        "throttled_requests": 1,
        "observed_throttled_requests": 1,
        "total_throttle_ms": 10_000,
        "requests_judged": 1,
        "requests_agreeing": 1,
        "false_positive": 0,
        "false_negative": 0,
        "judged_throttled": 1,
        "judged_near_limit": 0,
        "uncertain": 0,
        "uncertain_wrong": 0,
        "inferred": 0,
        "excluded": 0,
        "late": 0,
        "throttle_errors_ms": [0],
        "is_certain": True,
        "is_rules_behind": False,
        "model_variant": "3.8+/11x1000ms",
        "users": ["alice"],
        "client_ids": ["etl"],
    }
    assert list(first) == DECISIONS.names
    assert later == {
        **first,
        "second": T0_MS + 1_000,
        "rate_per_s": 2_100.0,
        "quota_used_percent": 210.0,
        "amount": 1_000,
        "throttle_ms": 11_000,
        "observed_throttle_ms": 10_990,
        "total_throttle_ms": 11_000,
        "throttle_errors_ms": [10],
    }


def test_inferred_excluded_uncertain_and_unlimited(literal: list[dict[str, Any]]) -> None:
    shown = ("bucket_user", "bucket_client_id", "limit_per_s", "rate_per_s", "quota_used_percent",
             "throttle_ms", "requests_judged", "uncertain", "inferred", "excluded", "is_certain")  # fmt: skip
    others = [row for row in literal if row["broker_id"] == 1 and row["bucket_user"] != "alice"]
    assert only(others, *shown) == [
        ("", "etl", None, 1_000.0, None, 0, 2, 0, 0, 0, True),  # frank: unlimited, under his client id
        ("carol", "", 1_000.0, 1_050.0, 105.0, 500, 0, 0, 1, 0, True),
        ("dave", "", 1_000.0, 2_000.0, 200.0, 10_000, 0, 0, 0, 1, True),
        ("erin", "", 1_000.0, 1_000.0, 100.0, 0, 0, 1, 0, 0, False),
    ]


def test_a_bucket_is_shared_by_its_clients_and_by_nobody_else(literal: list[dict[str, Any]]) -> None:
    shown = ("broker_id", "quota_type", "bucket_user", "bucket_client_id", "amount", "rate_per_s",
             "throttle_ms", "client_ids")  # fmt: skip
    assert only((row for row in literal if row["broker_id"] > 1), *shown) == [
        (2, "produce", "alice", "", 16_000, 16_000 / 10.1, 5_900, ["a", "b"]),
        (3, "fetch", "", "a", 9_000, 900.0, 0, ["a"]),
        (3, "produce", "alice", "", 9_000, 900.0, 0, ["a"]),
    ]


def test_decisions_beyond_what_is_known_of_the_rules_say_so(spark: SparkSession, settings: Settings) -> None:
    rules = RulesTables(settings.tables, CLUSTER, source="zookeeper", apply_lag_ms=0)
    rules.append(list(RULES), [], 0)
    rules.write_rules(None)
    seconds = [used("alice", (offset_ms, 100, 0)) for offset_ms in (0, 1_000)]
    found = judged(spark, settings, seconds)
    assert only(found, "second", "is_rules_behind", "is_certain") == [
        (T0_MS, True, False),
        (T0_MS + 1_000, True, False),
    ]
    # Known through the end of second 2, not of second 3. Each micro-batch reads the rules anew.
    rules.write_known_through(T0_MS + 3_000)
    found = judged(spark, settings, [used("alice", (offset_ms, 100, 0)) for offset_ms in (2_000, 3_000)])
    assert only(found, "second", "is_rules_behind", "is_certain")[2:] == [
        (T0_MS + 2_000, False, True),
        (T0_MS + 3_000, True, False),
    ]


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
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    seconds = _busy_seconds(random.Random(seed))
    whole = judged(spark, settings_with_rules(tmp_path / "1"), [row for rows in seconds for row in rows])
    assert len(whole) == 20 * 3  # alice's two clients share a bucket
    # A commit of 7 seconds and one of a single one; a restart; the rest, in another order.
    in_parts = settings_with_rules(tmp_path / "2")
    judged(spark, in_parts, [row for rows in seconds[:7] for row in rows], seconds[7])
    assert judged(spark, in_parts, [row for rows in seconds[8:] for row in reversed(rows)]) == whole


def test_a_tile_that_comes_late_is_counted_and_not_folded(spark: SparkSession, tmp_path: Path) -> None:
    on_time = [used("alice", (offset_ms, 6_000, 0)) for offset_ms in (0, 2_000, 3_000)]
    late = [
        used("alice", (1_000, 50_000, 0), (1_001, 50_000, 0), client_id="x"),
        used("alice", (2_500, 50_000, 0), client_id="y"),
    ]
    found = judged(spark, settings_with_rules(tmp_path), on_time[:2], [*late, on_time[2]])
    shown = ("second", "requests", "late", "amount", "limit_per_s", "is_certain", "client_ids")
    assert only((row for row in found if row["late"]), *shown) == [
        (T0_MS + 1_000, 0, 2, 0, None, False, ["x"]),
        (T0_MS + 2_000, 0, 1, 0, None, False, ["y"]),
    ]
    # What came in time is judged as if the late ones were not there: 6, 12 and 18 kB in ten seconds.
    assert only((row for row in found if not row["late"]), "second", "rate_per_s", "requests_judged") == [
        (T0_MS, 600.0, 1),
        (T0_MS + 2_000, 1_200.0, 1),
        (T0_MS + 3_000, 1_800.0, 1),
    ]


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
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    config = RateConfig(num_samples=4, window_ms=500, variant=variant)
    kept, stored = BucketReplay(config), BucketReplay(config)
    assert encoded(decoded(encoded(stored), config)) == encoded(stored)
    second_ms = T0_MS
    for _ in range(300):
        second_ms += 1_000 * chance.choice([1, 1, 1, 2, 5])
        limit = chance.choice([None, 0.0, 700.0])
        moments = sorted(chance.randrange(1_000) for _ in range(chance.randrange(6)))
        points = [
            Point(second_ms + moment, 0, chance.randrange(2**32), index, chance.randrange(2**31), 0, 0)
            for index, moment in enumerate(moments)
        ]
        governing = [Governing(limit)] * len(points)
        stored = decoded(encoded(stored), config)
        assert stored.judge(points, governing) == kept.judge(points, governing)
    assert encoded(stored) == encoded(kept)


def test_a_state_of_another_release_is_refused() -> None:
    form, *rest = msgspec.msgpack.decode(encoded(BucketReplay(CONFIG)))
    foreign = msgspec.msgpack.encode([form + 1, *rest])
    with pytest.raises(ValueError, match=f"form {form + 1}, expected {form}: use a new checkpoint"):
        decoded(foreign, CONFIG)
