"""Right sizes of a few buckets: the same as of all, none without two weeks, and left out if that takes too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.rightsize.bounded import MOST_BUCKETS, Sized, sized
from kquota_spark.rightsize.buckets import BucketKey
from kquota_spark.rightsize.recommended import recommendations
from kquota_spark.store.reading import Tables
from tests.right_size.tables import FIRST, write_weeks

ALICE, BOB, CAROL = (BucketKey("produce", user, "") for user in ("alice", "bob", "carol"))
DAY_MS = 86_400_000
END_MS = int(FIRST.timestamp() * 1_000) + 15 * DAY_MS


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weeks(tmp_path_factory.mktemp("weeks"), 15).parent / "tables"


def of(weeks: Path, *buckets: BucketKey, to_ms: int = END_MS, most_s: float | None = None) -> Sized:
    with Tables(Settings(cluster_id="weeks", tables=str(weeks)), most_s) as tables:
        return sized(tables, "weeks", to_ms, buckets)


def test_a_bucket_has_the_size_that_it_has_among_all(weeks: Path) -> None:
    # 9,999 ms later is the same last window.
    found = of(weeks, ALICE, BOB, to_ms=END_MS + 9_999)
    with Tables(Settings(cluster_id="weeks", tables=str(weeks))) as tables:
        every = {one.place.key: one for one in recommendations(tables, "weeks", END_MS)}
    assert found == Sized({key: every[key] for key in (ALICE, BOB)})


def test_a_bucket_with_three_days_of_history_has_no_size(weeks: Path) -> None:
    assert set(of(weeks, ALICE, CAROL).found) == {ALICE}


def test_nothing_is_sized_before_two_weeks(weeks: Path) -> None:
    # The first request is at 00:00:01, and a day is whole without an hour of it: 13 days and 23 hours are enough.
    edge_ms = END_MS - DAY_MS - 3_600_000
    assert of(weeks, ALICE, to_ms=edge_ms).found == {}
    assert set(of(weeks, ALICE, to_ms=edge_ms + 10_000).found) == {ALICE}


def test_sizes_that_take_too_long_are_left_out(weeks: Path) -> None:
    assert of(weeks, ALICE, most_s=1e-9) == Sized(is_slow=True)


def test_only_the_first_buckets_are_sized(weeks: Path) -> None:
    others = [BucketKey("produce", f"user-{number}", "") for number in range(MOST_BUCKETS - 1)]
    assert set(of(weeks, *others, ALICE, BOB).found) == {ALICE}
    assert of(weeks) == Sized()
