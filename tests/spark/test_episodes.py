"""EPISODES: seconds above the limit become episodes, open ones included, whatever comes in one batch."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.model.points import CONTROLLER_ID
from kquota_spark.schema.tables import VIOLATIONS
from tests.support.chance import drawn
from tests.support.spark.hops import forget_last_commit, only, rows_of, run_hop, settings_at
from tests.support.tables.table_rows import DAY, T0_MS, decision, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAP_S = 3


def over(offset_s: int, percent: float = 150.0, **changed: Any) -> dict[str, Any]:
    """A second above the limit of 1 MB/s."""
    row = decision(
        offset_s,
        rate_per_s=percent * 10_000,
        quota_used_percent=percent,
        throttled_requests=2,
        total_throttle_ms=70,
    )
    return {**row, **changed}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_over(tmp_path)


def settings_over(root: Path) -> Settings:
    made = settings_at(root, episode_gap=GAP_S * 1_000)
    write_table(Path(made.tables), "violations")
    return made


def episodes(spark: SparkSession, settings: Settings, *commits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write each list as one commit, which is one micro-batch; all episodes so far."""
    for rows in commits:
        write_table(Path(settings.tables), "decisions", *rows)
        run_hop(spark, settings, "episodes")
    return rows_of(settings, "violations")


def spans(rows: list[dict[str, Any]]) -> list[tuple[int, int | None, int]]:
    """Start, end and last second of each episode, in seconds after T0."""
    found = []
    for row in rows:
        end_ms = row["end_time"]
        end_s = None if end_ms is None else (end_ms - T0_MS) // 1_000
        found.append(((row["start_time"] - T0_MS) // 1_000, end_s, (row["last_second"] - T0_MS) // 1_000))
    return sorted(found, key=repr)


def test_an_episode_is_seen_at_once_and_closed_when_its_gap_has_passed(
    spark: SparkSession, settings: Settings
) -> None:
    [row] = episodes(
        spark,
        settings,
        [
            over(0, 120.0, users=["bob", "al"], client_ids=["x"], limit_per_s=900_000.0, level=2, rule="r"),
            over(1, 180.0, users=["al"], client_ids=["y"]),
        ],
    )
    first = {
        "cluster_id": "demo",
        "event_date": DAY,
        "episode_id": row["episode_id"],
        "broker_id": 1,
        "quota_type": "produce",
        "bucket_user": "alice",
        "bucket_client_id": "",
        "bucket_tags": None,
        "start_time": T0_MS,
        "end_time": None,
        "last_second": T0_MS + 1_000,
        "level": 2,
        "rule": "r",
        "limit_per_s": 900_000.0,
        "peak_rate_per_s": 1_800_000.0,
        "peak_quota_used_percent": 180.0,
        "violated_seconds": 2,
        "throttled_ms": 140,
        "throttled_requests": 4,
        "source": "log",
        "users": ["al", "bob"],
        "client_ids": ["x", "y"],
    }
    assert row == first
    assert list(row) == VIOLATIONS.names
    # 3 s without a violation do not end it (1 to 4), and here it goes on.
    [row] = episodes(spark, settings, [decision(3), over(4, 110.0, limit_per_s=800_000.0)])
    assert row == {
        **first,
        "last_second": T0_MS + 4_000,
        "limit_per_s": 800_000.0,
        "violated_seconds": 3,
        "throttled_ms": 210,
        "throttled_requests": 6,
        "users": ["al", "alice", "bob"],
        "client_ids": ["etl", "x", "y"],
    }
    # Another bucket of this broker shows that its time has moved on; another broker's would not.
    assert episodes(spark, settings, [decision(7, bucket_user="bob"), decision(60, broker_id=2)]) == [row]
    [closed] = episodes(spark, settings, [decision(8, bucket_user="bob")])
    assert closed == {**row, "end_time": T0_MS + 5_000}


def test_exactly_at_the_limit_is_no_violation(spark: SparkSession, settings: Settings) -> None:
    unlimited = decision(1, limit_per_s=None, quota_used_percent=None, rate_per_s=9e9, level=None, rule=None)
    found = episodes(spark, settings, [over(0, 100.0), unlimited, over(2, 100.00000000000001)])
    assert spans(found) == [(2, None, 2)]


def test_gaps_and_buckets_make_episodes(spark: SparkSession, settings: Settings) -> None:
    mine = [over(second) for second in (0, 1, 4, 8, 9)]  # 4 - 1 is within the gap, 8 - 4 is not
    others: list[dict[str, Any]] = [
        {"cluster_id": "other"},
        {"broker_id": 2},
        {"quota_type": "fetch"},
        {"bucket_user": "bob"},
        {"bucket_client_id": "etl"},
    ]
    found = episodes(spark, settings, [*mine, *(over(2, **other) for other in others)])
    keys = ("cluster_id", "broker_id", "quota_type", "bucket_user", "bucket_client_id")
    alice = [row for row in found if tuple(row[key] for key in keys) == ("demo", 1, "produce", "alice", "")]
    assert spans(alice) == [(0, 5, 4), (8, None, 9)]
    assert [row["violated_seconds"] for row in sorted(alice, key=lambda row: row["start_time"])] == [3, 2]
    assert len(found) == 7
    assert len({row["episode_id"] for row in found}) == 7


def test_at_most_20_names_whatever_comes_first(spark: SparkSession, settings: Settings) -> None:
    names = [f"u{index:02}" for index in range(36)]
    late_names_first = ([over(0, users=names[18:])], [over(1, users=names[:18])])
    assert only(episodes(spark, settings, *late_names_first), "users") == [(names[:20],)]


def test_the_cut_into_batches_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    chance = drawn()
    seconds = []
    for offset_s in range(60):
        places: list[dict[str, Any]] = [
            {"broker_id": 1},
            {"broker_id": 1, "bucket_user": "bob", "users": ["bob"]},
            {"broker_id": 2},
        ]
        here = [place for place in places if chance.random() < 0.8]
        percents = [chance.choice([50.0, 100.0, 100.5, 240.0]) for _ in here]
        seconds.append([over(offset_s, p, **place) for p, place in zip(percents, here, strict=True)])
    cuts = sorted(chance.sample(range(1, 60), 3))
    print(f"cut at {cuts}")
    parts = [seconds[start:end] for start, end in zip([0, *cuts], [*cuts, 60], strict=True)]
    commits = [[row for second in part for row in second] for part in parts]
    whole = episodes(spark, settings_over(tmp_path / "1"), [row for rows in commits for row in rows])
    assert len(whole) > 3
    assert episodes(spark, settings_over(tmp_path / "2"), *commits) == whole


def test_the_files_of_a_commit_are_read_together(spark: SparkSession, settings: Settings) -> None:
    users = ("alice", "bob")
    first = [over(0, bucket_user=user) for user in users]
    # The dates make two files. Second 10 of one user would end the episode of the other, which goes on to second 2.
    second = [
        over(offset_s, percent, bucket_user=user, event_date=DAY + timedelta(days=place))
        for place, user in enumerate(users)
        for offset_s, percent in ((1, 150.0), (2, 150.0), (10, 50.0))
    ]
    assert spans(episodes(spark, settings, first, second)) == [(0, 3, 2), (0, 3, 2)]


def test_a_batch_that_comes_again_adds_nothing(spark: SparkSession, settings: Settings) -> None:
    episodes(spark, settings, [over(0)])
    found = episodes(spark, settings, [over(1)])
    table = f"{settings.tables}/violations"
    version = DeltaTable(table).version()
    query_id = json.loads((Path(settings.checkpoints) / "episodes" / "metadata").read_text("utf-8"))["id"]
    assert DeltaTable(table).transaction_version(query_id) == 1
    assert forget_last_commit(settings, "episodes") == 1
    run_hop(spark, settings, "episodes")
    assert rows_of(settings, "violations") == found
    assert only(found, "violated_seconds", "throttled_ms") == [(2, 140)]
    assert DeltaTable(table).version() == version
    # And the batch after it is not taken for a copy.
    assert only(episodes(spark, settings, [over(2)]), "violated_seconds", "throttled_ms") == [(3, 210)]


def test_an_episode_of_the_controller_ends_by_the_clock_of_the_brokers(
    spark: SparkSession, settings: Settings
) -> None:
    controller = {"broker_id": CONTROLLER_ID, "quota_type": "controller_mutation"}
    # Nobody changes a topic afterwards; a broker's log goes on.
    found = episodes(spark, settings, [over(0, 120.0, **controller)], [decision(GAP_S + 1)])
    assert spans(found) == [(0, 1, 0)]
