"""Time in throttle: which seconds count, of whom, and as share of what."""

from __future__ import annotations

from pathlib import Path

from tests.support.reports.gathered_report import Row, gathered, jmx, throttled
from tests.support.tables.table_rows import decision, usage, violation


def test_a_second_counts_when_a_throttle_began_in_it_or_still_ran(tmp_path: Path) -> None:
    # At 0: 100 ms, within the second. At 2: 2,500 ms, so 2, 3 and 4. At 3: 1,001 ms, so 3 and 4, which count already.
    rows = [throttled(0, 100), throttled(2, 2_500), throttled(3, 1_001), decision(6)]
    (alice,) = gathered(tmp_path, decisions=rows).throttled
    assert (alice.time_throttled_s, alice.time_throttled_percent) == (4, 40.0)
    assert (alice.delay_ms, alice.throttled_requests) == (100 + 2_500 + 1_001, 3)


def test_a_throttle_counts_to_the_end_of_the_period_only(tmp_path: Path) -> None:
    (alice,) = gathered(tmp_path, decisions=[throttled(8, 60_000)]).throttled
    assert (alice.time_throttled_s, alice.time_throttled_percent) == (2, 20.0)


def test_brokers_that_throttle_in_the_same_second_count_it_once(tmp_path: Path) -> None:
    rows = [throttled(0), throttled(0, broker_id=2), throttled(1, 300, broker_id=2, limit_per_s=500_000.0)]
    (alice,) = gathered(tmp_path, decisions=rows).throttled
    assert alice.time_throttled_s == 2
    # broker 1: 100 ms; broker 2: 100 + 300 ms
    assert (alice.delay_ms, alice.worst_broker_id) == (500, 2)
    assert alice.limit_per_s == 500_000.0


def test_from_jmx_the_share_is_that_of_the_samples_with_a_throttle(tmp_path: Path) -> None:
    rows = [jmx(0, observed_throttle_ms=80), *(jmx(at_s) for at_s in (2, 4, 6))]
    (alice,) = gathered(tmp_path, decisions=[row | {"broker_id": 9} for row in rows]).throttled
    assert (alice.time_throttled_percent, alice.time_throttled_s) == (100 * 1 / 4, 1)
    assert (alice.delay_ms, alice.throttled_requests) == (0, None)


def test_what_the_log_tells_of_a_broker_and_type_is_not_told_by_jmx_again(tmp_path: Path) -> None:
    rows = [decision(0), *(jmx(at_s, observed_throttle_ms=80) for at_s in range(4))]
    page = gathered(tmp_path, decisions=rows)
    assert page.throttled == []
    assert page.confidence.sources == ("log",)


def test_the_worst_come_first_and_the_rest_is_counted(tmp_path: Path) -> None:
    names = {"a": 1, "b": 3, "c": 2}
    rows = [throttled(at_s, bucket_user=name) for name, seconds in names.items() for at_s in range(seconds)]
    page = gathered(tmp_path, decisions=rows, top=2)
    assert [one.bucket.user for one in page.throttled] == ["b", "c"]
    assert page.throttled_left_out == 1


def test_clients_inside_are_pairs_where_these_are_told(tmp_path: Path) -> None:
    seven = [f"c{number}" for number in range(7)]
    rows = [
        throttled(0, client_ids=seven),
        throttled(0, bucket_user="", bucket_client_id="etl", users=["bob", "alice"]),
        throttled(
            0, bucket_user="", bucket_tags='{"group": "g"}', users=["bob", "alice"], client_ids=["x", "y"]
        ),
    ]
    inside = {one.bucket: one.clients for one in gathered(tmp_path, decisions=rows).throttled}
    assert {(bucket.user, bucket.client_id, bucket.tags): clients for bucket, clients in inside.items()} == {
        ("alice", "", ""): tuple(f"alice / c{number}" for number in range(5)),
        ("", "etl", ""): ("alice / etl", "bob / etl"),
        ("", "", '{"group": "g"}'): ("alice", "bob"),
    }


def test_episodes_are_those_that_touch_the_period(tmp_path: Path) -> None:
    episodes = [violation(-60, 30), violation(-3, 5), violation(8, None), violation(30, 5)]
    (alice,) = gathered(tmp_path, decisions=[throttled(0)], violations=episodes).throttled
    assert alice.episodes == 2


def test_a_tenant_sees_its_own_bucket_first_and_a_shared_one_as_far_as_it_is_its_own(tmp_path: Path) -> None:
    of_shared: Row = {
        "bucket_user": "",
        "bucket_client_id": "etl",
        "users": ["alice", "bob"],
        "limit_per_s": 5.0,
    }
    rows = [
        *(throttled(at_s, 1_000) for at_s in range(3)),
        *(throttled(at_s, 100, **of_shared) for at_s in range(9)),
    ]
    used = [usage(at_s, observed_throttle_ms=50) for at_s in (0, 4)] + [
        usage(5, user="bob", observed_throttle_ms=9)
    ]
    own, shared = gathered(tmp_path, decisions=rows, usages=used, tenant="alice").throttled
    assert (own.bucket.user, own.time_throttled_s, own.shared_with) == ("alice", 3, 0)
    assert (shared.bucket.client_id, shared.time_throttled_s, shared.delay_ms) == ("etl", 2, 100)
    assert (shared.shared_with, shared.limit_per_s) == (1, None)
