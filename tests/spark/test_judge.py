"""JUDGE: literal rows of `usage` in, `decisions` out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.rules_tables import RulesTables
from tests.support.spark.judged_usage import RULES, judged, settings_with_rules, used
from tests.support.spark.queries import CLUSTER, only
from tests.support.tables.table_rows import DAY, T0_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        "rate_at_most_per_s": None,
        "quota_used_percent": 200.0,
        "amount": 20_000,
        "requests": 1,
        "throttle_ms": 10_000,
        "observed_throttle_ms": 10_000,
        "throttled_requests": 1,
        "observed_throttled_requests": 1,
        "total_throttle_ms": 10_000,
        "observed_total_throttle_ms": 10_000,
        "unsized_requests": 0,
        "window_off": 0,
        "window_off_false_positive": 0,
        "window_off_false_negative": 0,
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
        "source": "log",
        "users": ["alice"],
        "client_ids": ["etl"],
    }
    assert list(first) == DECISIONS.names
    assert later == {
        **first,
        "second": T0_MS + 1_000,
        "rate_per_s": 2_100.0,
        "rate_at_most_per_s": None,
        "quota_used_percent": 210.0,
        "amount": 1_000,
        "throttle_ms": 11_000,
        "observed_throttle_ms": 10_990,
        "total_throttle_ms": 11_000,
        "observed_total_throttle_ms": 10_990,
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
