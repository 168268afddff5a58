"""The seconds of an owner: every client is mapped first, a second counts once, and a throttle counts to its end."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.model.budgets.objectives import Spent
from kquota_spark.model.owners import Owner, Owners
from kquota_spark.name_patterns import is_match
from kquota_spark.reports.budgets.bucket_seconds import bucket_seconds
from kquota_spark.reports.budgets.grouping import Grouping, by_owner, by_user, of_tenant
from kquota_spark.reports.budgets.owned_budgets import Budgets, budgets_at
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.report_scope import open_scope
from kquota_spark.reports.sections.throttled import throttled_buckets
from kquota_spark.store.reading import Tables
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

T0_S = T0_MS // 1_000
OWNERS = Owners(
    [
        Owner(name="payments", users=("alice|pay-.*",)),
        Owner(name="search", users=("bob",), client_ids=("indexer",)),
    ],
    is_match,
)


def throttle(offset_s: int, longest_ms: int, **changed: Any) -> dict[str, Any]:
    """A second of a bucket with one throttle, which the broker logged."""
    figures = {"observed_throttle_ms": longest_ms, "observed_throttled_requests": 1,
               "observed_total_throttle_ms": longest_ms}  # fmt: skip
    return decision(offset_s, **figures, **changed)


def budgets(root: Path, grouping: Grouping, to_s: int = 100) -> Budgets:
    with Tables(Settings(tables=str(root), cluster_id="demo")) as tables:
        return budgets_at(tables, "demo", T0_MS + to_s * 1_000, grouping)


def spent(root: Path, grouping: Grouping | None = None) -> dict[str, Spent]:
    """Active and throttled seconds by group, of the 100 s from T0 on."""
    found = budgets(root, grouping or by_owner(OWNERS)).found
    return {one.name: one.seconds.spent(T0_S, T0_S + 100) for one in found}


def test_clients_of_an_owner_share_their_seconds(tmp_path: Path) -> None:
    write_table(
        tmp_path, "usage", usage(0), usage(0, client_id="web"), usage(1, user="pay-eu"), usage(1, broker_id=2),
        usage(2, user="carol"), usage(3, user="bob"), usage(4, user="bob", client_id="indexer"),
    )  # fmt: skip
    write_table(tmp_path, "decisions", decision(0))
    # bob is of search only with its indexer; carol is nobody's.
    assert spent(tmp_path) == {"payments": (2, 0), "search": (1, 0), "unowned": (2, 0)}
    assert spent(tmp_path, by_user()) == {"alice": (2, 0), "bob": (2, 0), "carol": (1, 0), "pay-eu": (1, 0)}
    assert spent(tmp_path, of_tenant("bob", OWNERS, T0_MS)) == {"bob": (2, 0)}


def test_a_throttle_counts_to_its_end_and_its_seconds_are_active(tmp_path: Path) -> None:
    write_table(tmp_path, "usage", usage(0), usage(9))
    # 2,001 ms are three seconds: 0, 1, 2. The one at 1 s ends with them, and that on another broker goes to 3.
    write_table(
        tmp_path,
        "decisions",
        throttle(0, 2_001),
        throttle(1, 10),
        throttle(2, 1_500, broker_id=2),
        decision(9),
    )
    assert spent(tmp_path) == {"payments": (5, 4)}


def test_a_throttle_that_outlasts_the_period_counts_up_to_its_end(tmp_path: Path) -> None:
    write_table(tmp_path, "usage", usage(0))
    write_table(tmp_path, "decisions", throttle(98, 60_000))
    [one] = budgets(tmp_path, by_owner(OWNERS)).found
    assert one.budget.period == Spent(3, 2)


def test_an_owner_has_its_clients_only_in_its_time(tmp_path: Path) -> None:
    moved = Owners(
        [Owner(name="old", users=("alice",), to_ms=T0_MS + 5_000), Owner(name="new", users=("alice",))],
        is_match,
    )
    write_table(tmp_path, "usage", *(usage(offset) for offset in range(10)))
    # The throttle of second 4 is the old owner's, also after the edge.
    write_table(tmp_path, "decisions", throttle(4, 3_000), throttle(8, 1_000))
    assert spent(tmp_path, by_owner(moved)) == {"old": (7, 3), "new": (5, 1)}


def test_of_a_shared_bucket_only_the_throttled_clients_count(tmp_path: Path) -> None:
    shared = {"bucket_user": "", "bucket_client_id": "indexer", "client_ids": ["indexer"]}
    write_table(
        tmp_path, "usage",
        usage(0, client_id="indexer", observed_throttle_ms=4_000),
        usage(0, user="bob", client_id="indexer", observed_throttle_ms=0),
        usage(1, user="bob", client_id="indexer", observed_throttle_ms=1_500),
        usage(1, user="carol", client_id="indexer", observed_throttle_ms=9_000),
    )  # fmt: skip
    write_table(
        tmp_path, "decisions",
        throttle(0, 4_000, users=["alice", "bob"], **shared),
        throttle(1, 3_000, users=["bob", "carol"], **shared),
    )  # fmt: skip
    # alice waits 0 to 3, bob 1 and 2. carol waits at most as long as the longest throttle of the bucket: 1 to 3.
    assert spent(tmp_path) == {"payments": (4, 4), "search": (3, 2), "unowned": (3, 3)}


def test_in_a_shared_bucket_each_bucket_has_its_own_throttles(tmp_path: Path) -> None:
    # The same second has a throttle of another bucket: it is not alice's.
    write_table(
        tmp_path,
        "usage",
        usage(0, client_id="indexer", observed_throttle_ms=900),
        usage(0, user="bob", client_id="x"),
    )
    write_table(
        tmp_path, "decisions",
        throttle(0, 900, bucket_user="", bucket_client_id="indexer", users=["alice", "bob"], client_ids=["indexer"]),
        throttle(0, 8_000, bucket_user="", bucket_client_id="x", users=["bob", "pay-1"], client_ids=["x"]),
    )  # fmt: skip
    assert spent(tmp_path) == {"payments": (1, 1), "unowned": (1, 0)}


def test_a_bucket_of_more_names_than_a_decision_holds_is_shared(tmp_path: Path) -> None:
    names = [f"pay-{number}" for number in range(20)]
    bucket = {"bucket_user": "", "bucket_client_id": "app", "users": names, "client_ids": ["app"]}
    write_table(tmp_path, "usage", usage(0, user="bob", client_id="app", observed_throttle_ms=1_000))
    write_table(tmp_path, "decisions", throttle(0, 1_000, **bucket))
    assert spent(tmp_path) == {"unowned": (1, 1)}


def test_samples_of_jmx_count_where_no_log_does(tmp_path: Path) -> None:
    sampled = {"source": "jmx", "requests": None, "amount": None}
    of_jmx = {"source": "jmx", "users": None, "client_ids": None, "observed_throttle_ms": 700, "requests": None,
              "observed_throttled_requests": None, "throttled_requests": None}  # fmt: skip
    write_table(
        tmp_path, "usage", usage(0), usage(10, user="carol", **sampled),
        usage(20, broker_id=2, client_id="", **sampled),
    )  # fmt: skip
    write_table(
        tmp_path, "decisions", decision(0), decision(10, bucket_user="carol", **of_jmx),
        decision(20, broker_id=2, **of_jmx),
    )  # fmt: skip
    # Broker 1 has a log. On broker 2 the sample is one second, and its throttle too.
    assert spent(tmp_path) == {"payments": (2, 1)}


def test_rows_of_other_clusters_and_of_other_times_do_not_count(tmp_path: Path) -> None:
    write_table(tmp_path, "usage", usage(0), usage(1, cluster_id="other"), usage(100), usage(-40 * 86_400))
    write_table(
        tmp_path, "decisions", throttle(1, 10, cluster_id="other"), throttle(-40 * 86_400, 10), decision(0)
    )
    [one] = budgets(tmp_path, by_owner(OWNERS)).found
    assert one.budget.period == Spent(1, 0)


def test_time_throttled_is_that_of_the_report(tmp_path: Path) -> None:
    lengths = [50, 1_000, 4_200, 900, 12_000, 300, 2_500]
    rows = [
        throttle(offset * 3 + number, lengths[(offset * 7 + number * 3) % 7], bucket_user=user, users=[user],
                 broker_id=offset % 3 + 1)
        for offset in range(25) for number, user in enumerate(("alice", "bob", "carol"))
    ]  # fmt: skip
    write_table(tmp_path, "usage", usage(0), usage(99))
    write_table(tmp_path, "decisions", *rows)
    settings, period = Settings(tables=str(tmp_path), cluster_id="demo"), Period(T0_MS, T0_MS + 100_000)
    with Tables(settings) as tables:
        shown = throttled_buckets(open_scope(tables, settings, period, tenant=None, top=9)).shown
    assert len(shown) == 3
    # The tables end with the second 74, and throttles that still run then count no further.
    found = budgets(tmp_path, by_user(), to_s=75).found
    assert {one.bucket.user: one.time_throttled_s for one in shown} == {
        one.name: one.budget.period.throttled_s for one in found
    }


def test_a_tenant_has_the_throttles_of_a_callback_bucket_with_another_tag(tmp_path: Path) -> None:
    """The tag `user` of a callback can be the name of a team. Then the users inside the bucket count."""
    tags = {"bucket_user": "team-x", "bucket_tags": '{"client-id": "", "user": "team-x"}', "users": ["alice"]}
    write_table(tmp_path, "usage", usage(0), usage(1))
    write_table(tmp_path, "decisions", throttle(0, 2_000, **tags), decision(1, **tags))
    assert spent(tmp_path, by_user()) == spent(tmp_path, of_tenant("alice", None, T0_MS)) == {"alice": (2, 2)}
    assert spent(tmp_path, of_tenant("team-x", None, T0_MS)) == {}


def test_the_buckets_of_an_owner_have_their_own_time_throttled_most_first(tmp_path: Path) -> None:
    write_table(tmp_path, "usage", *(usage(offset) for offset in range(50)))
    write_table(
        tmp_path, "decisions", throttle(0, 5_000), throttle(2, 2_000, quota_type="fetch"),
        throttle(30, 1_000, bucket_user="bob", users=["bob"]),
    )  # fmt: skip
    with Tables(Settings(tables=str(tmp_path), cluster_id="demo")) as tables:
        owned = budgets_at(tables, "demo", T0_MS + 100_000, by_owner(OWNERS), has_buckets=True).owned
        assert owned is not None
        found = bucket_seconds(owned, ("payments", "unowned"), 10)
        [most] = bucket_seconds(owned, ("payments", "unowned"), 1)
        [of_unowned] = bucket_seconds(owned, ("unowned",), 1)
    assert [
        (one.group, *astuple(one.bucket)[:2], one.throttled.count(T0_S, T0_S + 100)) for one in found
    ] == [
        ("payments", "produce", "alice", 5),
        ("payments", "fetch", "alice", 2),
        ("unowned", "produce", "bob", 1),
    ]
    assert most.bucket == found[0].bucket
    # Worse buckets of others take no place from those of the chosen owner.
    assert (of_unowned.group, of_unowned.bucket) == ("unowned", found[2].bucket)
    # Seconds 2 and 3 are throttled in two buckets, and count once for the owner.
    assert owned.seconds["payments"].spent(T0_S, T0_S + 100) == Spent(50, 5)


@pytest.mark.parametrize("days", [3, 90])
def test_the_longest_objective_decides_how_much_is_read(days: int) -> None:
    from kquota_spark.model.budgets.objectives import Objective

    owners = Owners(
        [Owner(name="a", users=("a",), objective=Objective(99.0, days))], is_match, Objective(99.5, 30)
    )
    assert by_owner(owners).period_s == max(days, 30) * 86_400
