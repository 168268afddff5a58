"""The requests of buckets in their periods: each as if it were asked alone."""

from __future__ import annotations

from pathlib import Path

from kquota_spark.config.settings import Settings
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.recorded import Wanted
from kquota_spark.reports.why.request_counts import RequestCount, request_counts
from kquota_spark.store.reading import Tables
from tests.support.tables.table_rows import T0_MS, usage, write_table

END_MS = T0_MS + 3_000


def wanted(user: str, client_id: str, from_ms: int = T0_MS, to_ms: int = END_MS) -> Wanted:
    return Wanted(BucketName("produce", user, client_id), from_ms, to_ms)


def counted(root: Path, most: int, *asked: Wanted) -> list[RequestCount]:
    """Counts where alice and bob each send 10 requests of etl in each of three seconds, and alice 1 of web."""
    rows = [usage(second, user=user, requests=10) for user in ("alice", "bob") for second in range(3)]
    others = [
        usage(1, client_id="web", requests=1),
        usage(1, cluster_id="other", requests=100),
        usage(1, source="jmx", requests=100),
        usage(1, quota_type="fetch", requests=100),
        usage(3, requests=100),
    ]
    write_table(root, "usage", *rows, *others)
    settings = Settings(tables=str(root), cluster_id=str(rows[0]["cluster_id"]))
    with Tables(settings) as tables:
        tables.open("usage")
        return request_counts(tables, settings.cluster_id, asked, most)


def test_each_bucket_has_the_requests_of_its_names_in_its_own_period(tmp_path: Path) -> None:
    found = counted(
        tmp_path, 1_000,
        wanted("alice", ""), wanted("", "etl"), wanted("bob", "etl", T0_MS + 1_000),
        wanted("bob", "", T0_MS, T0_MS + 1_000), wanted("", ""), wanted("x", ""),
    )  # fmt: skip
    # 3 x 10 + 1; 2 users x 3 x 10; 2 x 10; 10; all 61; none.
    assert found == [RequestCount(None, number) for number in (31, 60, 20, 10, 61, 0)]


def test_the_second_that_passes_the_maximum_is_the_end(tmp_path: Path) -> None:
    found = counted(tmp_path, 15, wanted("bob", ""), wanted("alice", ""), wanted("", "etl"))
    # bob: 10, 20: the second one passes. etl: 20 in the first second, which is the least that is replayed.
    assert found == [
        RequestCount(T0_MS + 1_000, 10), RequestCount(T0_MS + 1_000, 10), RequestCount(T0_MS, 20),
    ]  # fmt: skip
