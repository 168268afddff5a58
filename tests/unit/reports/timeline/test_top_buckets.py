"""What the last minute of `decisions` says of a bucket, and what is read again when the table grows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kquota_spark.cli.main import main
from kquota_spark.cli.options import SettingsPlace
from kquota_spark.cli.top.feed import Feed, Question
from kquota_spark.config.settings import Settings
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.timeline.top_buckets import SortBy
from kquota_spark.store.reading import Tables
from tests.support.tables.table_rows import DAY, T0_MS, decision, second, usage, write_table


def feed_of(root: Path) -> Feed:
    return Feed(Settings(tables=str(root)), SettingsPlace(None, str(root)))


def top(root: Path, **asked: Any) -> list[dict[str, Any]]:
    feed = feed_of(root)
    try:
        return feed.read(Question(**asked)).top.rows
    finally:
        feed.close()


def users(root: Path, **asked: Any) -> list[str]:
    return [row["bucket_user"] for row in top(root, **asked)]


def test_rate_and_use_are_those_of_the_newest_second_means_and_sums_those_of_ten(tmp_path: Path) -> None:
    throttled = {"total_throttle_ms": 40, "throttled_requests": 2}
    write_table(
        tmp_path,
        "decisions",
        decision(49, amount=9_000, requests=9, **throttled),  # eleven seconds before the newest: in no mean
        decision(50, amount=4_000, requests=4, **throttled, rate_per_s=7e5, quota_used_percent=70.0),
        decision(59, amount=1_000, requests=1, **throttled, rate_per_s=9e5, quota_used_percent=90.0),
    )
    (row,) = top(tmp_path)
    assert (row["rate_per_s"], row["quota_used_percent"], row["last_second"]) == (9e5, 90.0, T0_MS + 59_000)
    assert (row["mean_rate_per_s"], row["requests"]) == (500.0, 5)  # 5,000 bytes in 10 s
    assert (row["delay_ms"], row["throttled_requests"]) == (80, 4)
    assert row["used_percents"] == [None] * 49 + [25.0, 70.0] + [None] * 8 + [90.0]


def test_ten_seconds_without_a_request_are_no_rate_any_more(tmp_path: Path) -> None:
    write_table(
        tmp_path,
        "decisions",
        decision(0, bucket_user="gone"),  # 60 s before the newest second: not in the minute
        decision(50, bucket_user="idle", rate_per_s=5e5, quota_used_percent=50.0),
        decision(51, bucket_user="calm", rate_per_s=4e5, quota_used_percent=40.0),
        decision(60, bucket_user="here", late=0),
    )
    rates = {row["bucket_user"]: (row["rate_per_s"], row["quota_used_percent"]) for row in top(tmp_path)}
    assert rates == {"calm": (4e5, 40.0), "here": (2.5e5, 25.0), "idle": (0.0, 0.0)}


def test_a_limit_that_was_lifted_is_none_and_comes_last(tmp_path: Path) -> None:
    none = {"limit_per_s": None, "quota_used_percent": None, "rule": None, "level": None}
    write_table(tmp_path, "decisions", decision(58), decision(59, **none), decision(59, bucket_user="bob"))
    bob, alice = top(tmp_path)
    assert (bob["bucket_user"], bob["limit_per_s"]) == ("bob", 1e6)
    assert (alice["limit_per_s"], alice["quota_used_percent"], alice["rule"]) == (None, None, None)


def test_late_requests_are_no_second_of_a_bucket(tmp_path: Path) -> None:
    late = {"requests": 0, "amount": 0, "rate_per_s": None, "limit_per_s": None, "late": 3}
    write_table(tmp_path, "decisions", decision(59, amount=2_000), decision(59, **late))
    (row,) = top(tmp_path)
    assert (row["limit_per_s"], row["mean_rate_per_s"]) == (1e6, 200.0)


def test_of_jmx_the_last_sample_of_the_minute_counts(tmp_path: Path) -> None:
    counts = ("amount", "requests", "throttle_ms", "total_throttle_ms", "throttled_requests")
    sample = dict.fromkeys(counts)
    jmx = {**sample, "source": "jmx", "observed_throttle_ms": 120, "is_certain": False}
    write_table(
        tmp_path, "decisions", decision(20, **jmx, rate_per_s=3e5), decision(40, **jmx, rate_per_s=5e5)
    )
    write_table(tmp_path, "decisions", decision(59, bucket_user="bob"))
    row = next(row for row in top(tmp_path) if row["source"] == "jmx")
    assert (row["rate_per_s"], row["mean_rate_per_s"], row["delay_ms"], row["requests"]) == (
        5e5,
        4e5,
        120,
        None,
    )


def test_every_order_and_its_reverse(tmp_path: Path) -> None:
    write_table(
        tmp_path,
        "decisions",
        decision(
            59, bucket_user="a", quota_used_percent=10.0, rate_per_s=3.0, total_throttle_ms=2, broker_id=3
        ),
        decision(
            59, bucket_user="B", quota_used_percent=30.0, rate_per_s=1.0, total_throttle_ms=3, broker_id=1
        ),
        decision(
            59, bucket_user="c", quota_used_percent=20.0, rate_per_s=2.0, total_throttle_ms=1, broker_id=2
        ),
    )
    orders = {
        SortBy.USED: "Bca",
        SortBy.RATE: "acB",
        SortBy.DELAY: "Bac",
        SortBy.NAME: "aBc",
        SortBy.BROKER: "Bca",
    }
    for sort, order in orders.items():
        assert users(tmp_path, sort=sort) == list(order)
        assert users(tmp_path, sort=sort, is_reversed=True) == list(reversed(order))


def test_a_bucket_has_the_row_of_its_worst_broker_by_the_order_asked_for(tmp_path: Path) -> None:
    def on(broker_id: int, used: float, rate: float, delay_ms: int, **changed: Any) -> dict[str, Any]:
        return decision(59, broker_id=broker_id, quota_used_percent=used, rate_per_s=rate,
                        observed_total_throttle_ms=delay_ms, **changed)  # fmt: skip

    write_table(
        tmp_path,
        "decisions",
        on(1, used=120.0, rate=1.0, delay_ms=5),
        on(2, used=30.0, rate=9.0, delay_ms=7),
        on(3, used=20.0, rate=2.0, delay_ms=90),
        on(3, used=50.0, rate=3.0, delay_ms=8, bucket_user="bob"),
    )

    def rows(**asked: Any) -> list[tuple[str, int, int]]:
        return [(row["bucket_user"], row["broker_id"], row["brokers"]) for row in top(tmp_path, **asked)]

    assert rows() == [("alice", 1, 3), ("bob", 3, 1)]
    assert rows(sort=SortBy.RATE) == [("alice", 2, 3), ("bob", 3, 1)]
    assert rows(sort=SortBy.DELAY) == [("alice", 3, 3), ("bob", 3, 1)]
    assert rows(sort=SortBy.DELAY, is_reversed=True) == [("bob", 3, 1), ("alice", 3, 3)]
    assert rows(sort=SortBy.NAME) == [("alice", 1, 3), ("bob", 3, 1)], "the largest part of its limit"
    assert rows(broker=2) == [("alice", 2, 1)]
    assert rows(is_per_broker=True) == [("alice", 1, 1), ("bob", 3, 1), ("alice", 2, 1), ("alice", 3, 1)]
    found = feed_of(tmp_path)
    by_rate = found.read(Question(sort=SortBy.RATE)).top
    found.close()
    # Broker 2 has the highest rate of alice; on broker 1 it is over the limit, and that counts.
    assert (by_rate.total, by_rate.near, by_rate.over_limit) == (2, 1, 1)


def test_the_time_throttled_is_of_the_last_ten_seconds_and_not_known_from_jmx(tmp_path: Path) -> None:
    held = {
        "observed_throttled_requests": 1,
        "observed_total_throttle_ms": 4_000,
        "observed_throttle_ms": 4_000,
    }
    write_table(tmp_path, "decisions", decision(47, **held), decision(55, **held), decision(59))
    (row,) = top(tmp_path)
    # From second 47 to 50, of which 50 is among the last ten, and from 55 to 58.
    assert row["time_throttled_s"] == 5
    jmx = {**dict.fromkeys(("amount", "requests", "throttle_ms", "total_throttle_ms")), "source": "jmx"}
    write_table(tmp_path, "decisions", decision(59, bucket_user="bob", **jmx, observed_throttle_ms=70))
    assert [row["time_throttled_s"] for row in top(tmp_path, sort=SortBy.NAME)] == [5, None]


def test_a_filter_takes_whole_buckets_by_any_name_of_the_minute(tmp_path: Path) -> None:
    shared = {"bucket_user": "", "bucket_client_id": "etl", "level": 7, "rule": "clients/etl"}
    write_table(
        tmp_path,
        "decisions",
        decision(58, **shared, users=["Ärger%"], amount=3_000),
        decision(59, **shared, users=["bob"], amount=1_000),
        decision(59, bucket_user="dave", users=["dave"]),
    )
    for asked in ({"user": "bob"}, {"text": "ärger%"}, {"client": "etl", "text": "ET"}):
        rows = top(tmp_path, **asked)
        # dave has a client called etl inside.
        assert rows[0]["mean_rate_per_s"] == 400.0, asked
        assert [row["bucket_client_id"] for row in rows] == (["etl", ""] if "client" in asked else ["etl"]), (
            asked
        )
    assert users(tmp_path, text="_") == []
    assert users(tmp_path, broker=2) == []


def test_of_many_buckets_the_first_are_shown_and_all_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [decision(59, bucket_user=f"u{n:03}", quota_used_percent=float(n)) for n in range(121)]
    write_table(tmp_path, "decisions", *rows)
    feed = feed_of(tmp_path)
    found = feed.read(Question(limit=2)).top
    feed.close()
    # 80 to 120 are 41 buckets, 101 to 120 are 20.
    assert ([row["bucket_user"] for row in found.rows], found.total, found.near, found.over_limit) == (
        ["u120", "u119"], 121, 41, 20
    )  # fmt: skip
    assert main(["top", "--once", "--tables", str(tmp_path), "--limit", "2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("STALE: newest second ")
    assert printed[4] == "2 buckets of 121; --limit 0 shows all, by used"
    assert main(["top", "--tables", str(tmp_path), "--output", "json", "--limit", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["bucket_user"] == "u120"


def test_following_reads_new_versions_and_no_file_behind_the_period(tmp_path: Path) -> None:
    write_table(tmp_path, "decisions", decision(0))
    (old,) = DeltaTable(str(tmp_path / "decisions")).file_uris()
    write_table(tmp_path, "decisions", decision(100))
    Path(old).unlink()  # reading it would be an error
    count = "select epoch_ms(second) from decisions order by 1"
    with Tables(Settings(tables=str(tmp_path))) as tables:
        assert tables.follow("decisions", 60_000) is True
        assert tables.query(count).rows == [(T0_MS + 100_000,)]
        assert tables.follow("decisions", 60_000) is False
        write_table(tmp_path, "decisions", decision(170))
        assert tables.follow("decisions", 60_000) is True
        assert tables.query(count).rows == [(T0_MS + 170_000,)]
        assert tables.newest_ms("decisions") == T0_MS + 170_000


def test_a_table_that_was_made_anew_is_seen_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"s": 0.0}
    monkeypatch.setattr("kquota_spark.cli.top.feed.time.monotonic", lambda: clock["s"])
    write_table(tmp_path, "decisions", decision(0))
    write_table(tmp_path, "decisions", decision(1))
    feed = feed_of(tmp_path)
    assert feed.read(Question()).newest_ms == T0_MS + 1_000
    shutil.rmtree(tmp_path / "decisions")
    write_table(tmp_path, "decisions", decision(7))  # version 1 again, where version 2 was seen
    clock["s"] = 31.0
    assert feed.read(Question()).newest_ms == T0_MS + 7_000
    feed.close()


def test_an_empty_table_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(tmp_path, "decisions")
    assert main(["top", "--once", "--tables", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no buckets in the last minute: the table decisions is empty\n"


def test_the_mean_of_request_time_is_in_percent_of_a_thread_as_its_rate_and_limit_are(tmp_path: Path) -> None:
    of_request = {"quota_type": "request", "amount": 250_000}  # 250 ms of a thread in one second
    rated = {"limit_per_s": 50.0, "rate_per_s": 25.0, "quota_used_percent": 50.0}
    write_table(tmp_path, "decisions", *(decision(s, **of_request, **rated, users=["alice"],
                                                  client_ids=["etl"]) for s in (58, 59)))  # fmt: skip
    write_table(tmp_path, "usage", *(usage(s, **of_request) for s in (58, 59)))
    (row,) = top(tmp_path)
    assert row["mean_rate_per_s"] == 5.0  # 500 ms in ten seconds
    feed = feed_of(tmp_path)
    near = feed.read(Question(selected=BucketKey.of(row))).details
    feed.close()
    assert near is not None
    assert [client["mean_rate_per_s"] for client in near.clients] == [5.0]


def test_buckets_of_several_clusters_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path, "decisions", decision(59), decision(59, cluster_id="payments"))
    assert main(["top", "--tables", str(tmp_path), "--once"]) == 0
    _, title, *rows = capsys.readouterr().out.splitlines()  # the first line: stale
    assert title.split()[:3] == ["cluster", "broker", "type"]
    assert {row.split()[0] for row in rows[:2]} == {"demo", "payments"}


def test_our_own_clients_are_shown_when_they_are_asked_for_near_a_limit_or_large(tmp_path: Path) -> None:
    free = {"rule": None, "limit_per_s": None, "quota_used_percent": None, "bucket_user": ""}
    write_table(
        tmp_path,
        "decisions",
        decision(59, **free, bucket_client_id="kquota-enforcer", client_ids=["kquota-enforcer"]),
        decision(59, **free, bucket_client_id="kquotas", client_ids=["kquotas"]),
        decision(59, bucket_user="ANONYMOUS", client_ids=["kquota-audit", "etl"]),
        decision(
            59, bucket_user="kquota", client_ids=["kquota-ship", "kquota-audit-1"], quota_used_percent=79.9
        ),
        decision(59, bucket_user="pressed", client_ids=["kquota-ship"], quota_used_percent=80.0),
        decision(
            59, **free, bucket_client_id="kquota-evil", client_ids=["kquota-evil"], rate_per_s=1_000_001.0
        ),
        decision(
            59, **free, bucket_client_id="kquota-calm", client_ids=["kquota-calm"], rate_per_s=1_000_000.0
        ),
    )
    found = [row["bucket_user"] or row["bucket_client_id"] for row in top(tmp_path)]
    assert found == ["pressed", "ANONYMOUS", "kquota-evil", "kquotas"]
    assert [row["bucket_client_id"] for row in top(tmp_path, client="kquota-enforcer")] == ["kquota-enforcer"]
    assert users(tmp_path, user="kquota") == ["kquota"]


def test_a_bucket_with_another_verdict_under_the_shadow_is_marked(tmp_path: Path) -> None:
    names = ("alice", "bob", "carol", "dave")
    write_table(tmp_path, "decisions", *(decision(59, bucket_user=name) for name in names))
    assert "shadow" not in top(tmp_path)[0]
    place = {
        "cluster_id": "demo",
        "event_date": DAY,
        "broker_id": 1,
        "quota_type": "produce",
        "bucket_client_id": "",
    }

    def row(user: str, offset_s: int, after: int, before: int) -> dict[str, Any]:
        counts = {"throttled_requests": after, "enforced_throttled_requests": before}
        return {**place, "bucket_user": user, "second": second(offset_s), **counts}

    # dave's row is 60 s before the newest second. carol is throttled either way.
    rows = row("alice", 58, 2, 0), row("bob", 59, 0, 1), row("carol", 59, 3, 1), row("dave", -1, 1, 0)
    write_table(tmp_path, "shadow_decisions", *rows)
    found = {each["bucket_user"]: each["shadow"] for each in top(tmp_path)}
    assert found == {"alice": "throttled", "bob": "freed", "carol": None, "dave": None}
