"""Windows of demand from tables: throttles that reach into later windows, paces of connections, who is inside."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.model.rightsize.demand import Interval, bin_of
from kquota_spark.rightsize.windows import Asked, BucketWindows, bucket_windows
from kquota_spark.store.reading import Tables
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

END_MS = T0_MS + 100_000


def point(offset_s: float, amount: int, throttle_ms: int = 0, connection: int = 1) -> dict[str, Any]:
    at_ms = T0_MS + int(offset_s * 1_000)
    return {"record_time_ms": at_ms, "log_time_ms": at_ms, "connection_hash": connection, "correlation_id": 0,
            "amount": amount, "observed_throttle_ms": throttle_ms, "kind": 0, "network_time_us": 0}  # fmt: skip


def throttled(offset_s: int, amount: int, throttle_ms: int) -> dict[str, Any]:
    return decision(
        offset_s, amount=amount, observed_throttled_requests=1, observed_throttle_ms=throttle_ms,
        observed_total_throttle_ms=throttle_ms,
    )  # fmt: skip


def found(root: Path) -> list[BucketWindows]:
    with Tables(Settings(cluster_id="demo", tables=str(root))) as tables:
        for name in ("decisions", "usage"):
            tables.open(name)
        return list(bucket_windows(tables, Asked("demo", T0_MS, END_MS)))


def intervals(root: Path) -> dict[Interval, int]:
    [one] = found(root)
    assert {each.age for each in one.windows} == {0}
    counts: Counter[Interval] = Counter()
    for each in one.windows:
        counts[each.interval] += each.windows
    return dict(counts)


def exactly(per_s: float) -> Interval:
    return Interval(bin_of(per_s), bin_of(per_s))


def test_without_throttles_a_window_is_what_was_served(tmp_path: Path) -> None:
    write_table(
        tmp_path,
        "decisions",
        decision(1, amount=20_000),
        decision(9, amount=10_000),
        decision(15, amount=5_000),
    )
    write_table(tmp_path, "usage", usage(1))
    # 30,000 and 5,000 bytes in 10 s; other windows have no traffic.
    assert intervals(tmp_path) == {exactly(3_000): 1, exactly(500): 1}
    [one] = found(tmp_path)
    assert (one.place, one.limit_per_s, one.rule) == ((1, "produce", "alice", ""), 1_000_000, "users/alice")
    assert one.first_ms == T0_MS + 1_000


def test_the_pace_of_a_first_window_is_the_demand(tmp_path: Path) -> None:
    write_table(tmp_path, "decisions", throttled(4, 20_000, 6_000))
    write_table(tmp_path, "usage", usage(4, amount=20_000, points=[point(4, 20_000, 6_000)]))
    # Muted from 4 to 10 s: 20,000 bytes in 4 s are 5,000 per second.
    assert intervals(tmp_path) == {exactly(5_000): 1}


def test_a_quota_that_was_removed_leaves_no_limit(tmp_path: Path) -> None:
    write_table(tmp_path, "decisions", decision(1), decision(15, limit_per_s=None, rule=None))
    write_table(tmp_path, "usage", usage(1))
    [one] = found(tmp_path)
    assert (one.limit_per_s, one.rule) == (None, None)
    # A second that only counts late requests has no limit of its own.
    write_table(tmp_path, "decisions", decision(25), decision(35, requests=0, limit_per_s=None, rule=None))
    [one] = found(tmp_path)
    assert (one.limit_per_s, one.rule) == (1_000_000, "users/alice")


def test_a_limit_of_0_is_none(tmp_path: Path) -> None:
    """Brokers in ZooKeeper mode accept a byte rate of 0, which throttles nobody."""
    write_table(tmp_path, "decisions", decision(1, limit_per_s=0.0))
    write_table(tmp_path, "usage", usage(1))
    [one] = found(tmp_path)
    assert (one.limit_per_s, one.rule) == (None, "users/alice")


def test_a_throttle_reaches_into_later_windows(tmp_path: Path) -> None:
    write_table(tmp_path, "decisions", throttled(4, 20_000, 21_000), decision(26, amount=8_000))
    write_table(
        tmp_path, "usage", usage(4, amount=20_000, points=[point(4, 20_000, 21_000)]),
        usage(26, amount=8_000, points=[point(26, 8_000)]),
    )  # fmt: skip
    # Muted from 4 to 25 s. The second window has no free second and no end. In the third 8,000 bytes in 5 s are a bound
    # of what it wanted: it may catch up.
    assert intervals(tmp_path) == {
        exactly(5_000): 1, Interval(0, None): 1, Interval(bin_of(800), bin_of(1_600)): 1
    }  # fmt: skip


@pytest.mark.parametrize(("second_pace", "is_natural"), [(5_000, True), (20_000, False)])
def test_a_client_that_does_not_catch_up_has_its_pace_in_all_windows(
    second_pace: int, is_natural: bool, tmp_path: Path
) -> None:
    # Twice 4 s free and 6 s muted; the second window has what its pace makes of 4 s.
    amounts = (20_000, 4 * second_pace)
    write_table(
        tmp_path, "decisions", *(throttled(10 * n + 4, amount, 6_000) for n, amount in enumerate(amounts))
    )
    rows = [usage(10 * n + 4, points=[point(10 * n + 4, amount, 6_000)]) for n, amount in enumerate(amounts)]
    write_table(tmp_path, "usage", *rows)
    second = exactly(5_000) if is_natural else Interval(bin_of(8_000), bin_of(20_000))
    assert intervals(tmp_path) == ({exactly(5_000): 2} if is_natural else {exactly(5_000): 1, second: 1})


def test_the_paces_of_connections_add_up_and_one_without_free_seconds_hides_the_demand(
    tmp_path: Path,
) -> None:
    write_table(tmp_path, "decisions", throttled(4, 30_000, 5_000))
    points = [point(4, 20_000, 5_000), point(4.5, 10_000, 0, connection=2)]
    write_table(tmp_path, "usage", usage(4, amount=30_000, points=points))
    # 20,000 bytes in 5 s and 10,000 in 10 s.
    assert intervals(tmp_path) == {exactly(5_000): 1}
    write_table(tmp_path, "usage", usage(1, amount=0, points=[point(1, 0, 9_000, connection=3)]))
    assert intervals(tmp_path) == {Interval(bin_of(3_000), None): 1}


def test_only_clients_inside_the_bucket_count_for_its_pace(tmp_path: Path) -> None:
    write_table(tmp_path, "decisions", throttled(4, 20_000, 5_000))
    write_table(
        tmp_path, "usage", usage(4, amount=20_000, points=[point(4, 20_000, 5_000)]),
        usage(5, user="bob", points=[point(5, 90_000)]), usage(5, client_id="own", points=[point(5, 90_000)]),
    )  # fmt: skip
    # bob is another user, and alice's client `own` has a bucket of its own: the lists of the decision lack it.
    assert intervals(tmp_path) == {exactly(4_000): 1}


def test_other_sources_types_and_times_are_left_out(tmp_path: Path) -> None:
    write_table(
        tmp_path, "decisions", decision(1), decision(2, source="jmx", amount=None), decision(3, quota_type="request"),
        decision(-5), decision(105), decision(4, bucket_tags='{"group": "x"}'),
    )  # fmt: skip
    write_table(tmp_path, "usage", usage(1))
    assert intervals(tmp_path) == {exactly(100): 1}


def test_without_lists_of_names_the_tags_of_the_bucket_decide(tmp_path: Path) -> None:
    row = throttled(4, 20_000, 5_000) | {"users": None, "client_ids": None}
    write_table(tmp_path, "decisions", row)
    write_table(
        tmp_path, "usage", usage(4, amount=20_000, points=[point(4, 20_000, 5_000)]),
        usage(5, user="bob", points=[point(5, 90_000)]),
    )  # fmt: skip
    assert intervals(tmp_path) == {exactly(4_000): 1}


def test_without_usage_the_demand_of_a_throttled_window_has_no_bound(tmp_path: Path) -> None:
    write_table(tmp_path, "decisions", throttled(4, 20_000, 5_000))
    write_table(tmp_path, "usage")
    assert intervals(tmp_path) == {Interval(bin_of(2_000), None): 1}
