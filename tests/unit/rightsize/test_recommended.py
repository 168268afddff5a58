"""The right size of a bucket is that of its broker with the highest target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.rightsize.buckets import BucketFilter, BucketKey
from kquota_spark.rightsize.recommended import Recommendation, recommendations
from kquota_spark.store.reading import Tables
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

DAY_S = 86_400


def found(root: Path) -> list[Recommendation]:
    with Tables(Settings(cluster_id="demo", tables=str(root))) as tables:
        return recommendations(tables, "demo", T0_MS)


def test_a_quota_is_per_broker_so_the_worst_one_counts(tmp_path: Path) -> None:
    sent = ((1, 10_000), (2, 50_000), (3, 20_000))
    rows = [
        decision(-day * DAY_S + 10, broker_id=broker, amount=amount) for day in range(1, 16) for broker, amount in sent
    ]  # fmt: skip
    write_table(tmp_path, "decisions", *rows)
    write_table(tmp_path, "usage", usage(-DAY_S))
    [one] = found(tmp_path)
    assert (one.place.broker_id, one.size is not None) == (2, True)
    # 50,000 bytes in a window of 10 s are 5,000 per second.
    assert one.size is not None and 5_000 < one.size.target < 5_000 * 1.05 * 1.1


def test_a_broker_with_too_short_a_history_hides_no_other(tmp_path: Path) -> None:
    rows = [decision(-day * DAY_S + 10, amount=10_000) for day in range(1, 16)]
    write_table(tmp_path, "decisions", *rows, decision(-DAY_S + 10, broker_id=0, amount=90_000))
    write_table(tmp_path, "usage", usage(-DAY_S))
    [one] = found(tmp_path)
    assert (one.place.broker_id, int(one.history_days)) == (1, 14)


def test_no_windows_are_counted_while_no_bucket_has_two_weeks(tmp_path: Path) -> None:
    # A day is whole without an hour of it: 13 days and 23 hours are 14 days.
    for hours, has_size in ((13 * 24 + 22, False), (13 * 24 + 23, True)):
        root = tmp_path / str(hours)
        rows = [decision(-day * DAY_S, amount=10_000) for day in range(1, 14)]
        idle = decision(-hours * 3_600, amount=0, bucket_user="bob", users=["bob"])
        write_table(root, "decisions", *rows, decision(-hours * 3_600, amount=10_000), idle)
        write_table(root, "usage", usage(-DAY_S))
        with Tables(Settings(cluster_id="demo", tables=str(root))) as tables:
            [one] = recommendations(tables, "demo", T0_MS)
            counted = tables.query(
                "select count(*) from duckdb_tables() where table_name = 'rightsize_cells'"
            ).rows
        assert (one.place.user, one.limit_per_s, one.rule) == ("alice", 1_000_000, "users/alice")
        assert (one.history_days, one.size is not None, counted) == (hours / 24, has_size, [(int(has_size),)])


def test_only_the_wanted_buckets_are_read_and_have_the_same_sizes(tmp_path: Path) -> None:
    of_bob = {"bucket_user": "bob", "users": ["bob"], "rule": "users/bob"}
    rows = [decision(-day * DAY_S + 10, amount=10_000) for day in range(1, 16)]
    rows += [decision(-day * DAY_S + 10, amount=30_000, **of_bob) for day in range(1, 16)]
    write_table(tmp_path, "decisions", *rows)
    write_table(tmp_path, "usage", usage(-DAY_S))
    alice, bob = found(tmp_path)
    assert (alice.place.user, bob.place.user) == ("alice", "bob")
    with Tables(Settings(cluster_id="demo", tables=str(tmp_path))) as tables:
        assert recommendations(tables, "demo", T0_MS, buckets=[bob.place.key]) == [bob]
        assert recommendations(tables, "demo", T0_MS, buckets=[BucketKey("fetch", "bob", "")]) == []


def test_a_filter_of_names_reads_only_its_buckets(tmp_path: Path) -> None:
    of_app = {"bucket_user": "", "bucket_client_id": "app", "client_ids": ["app"], "rule": "clients/app"}
    changes: list[dict[str, Any]] = [
        {},
        {"quota_type": "fetch"},
        {"bucket_user": "bob", "users": ["bob"]},
        of_app,
    ]
    rows = [
        decision(-day * DAY_S + 10, amount=(place + 1) * 10_000, **change)
        for day in range(1, 16) for place, change in enumerate(changes)
    ]  # fmt: skip
    write_table(tmp_path, "decisions", *rows)
    write_table(tmp_path, "usage", usage(-DAY_S))
    fetch, of_client, alice, bob = found(tmp_path)
    assert [one.place[1:] for one in (fetch, of_client, alice, bob)] == [
        ("fetch", "alice", ""), ("produce", "", "app"), ("produce", "alice", ""), ("produce", "bob", "")
    ]  # fmt: skip
    expected = {
        BucketFilter("fetch"): [fetch],
        BucketFilter(user="alice"): [fetch, alice],
        BucketFilter(client_id="app"): [of_client],
        BucketFilter("produce", "alice"): [alice],
        BucketFilter(user="nobody"): [],
    }
    with Tables(Settings(cluster_id="demo", tables=str(tmp_path))) as tables:
        for names, sizes in expected.items():
            assert recommendations(tables, "demo", T0_MS, buckets=names) == sizes
            [rows_read] = tables.query("select count(*) from rightsize_rows").rows
            assert rows_read == (15 * len(sizes),)
