"""The number of series is bounded, they do not flap, and no counter goes backwards whichever bucket comes or goes."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, write_deltalake

from kquota_spark.reports.exported.bucket_refresh import BucketKey, Counts, Refresh, SeenBucket
from kquota_spark.reports.exported.shown_buckets import ShownBuckets
from tests.support.chance import Chance
from tests.support.reports.exported import Exporter
from tests.support.tables.table_rows import DAY, decision

REFRESH_MS = 15_000
OTHER = ("produce", "other")


def _key(name: str) -> BucketKey:
    return BucketKey(1, "produce", name, "")


def _refresh(**uses: float) -> Refresh:
    """Buckets that were used so much, each with 10 requests."""
    seen = [
        SeenBucket(_key(name), 1e6, 3, None, 0, 0, None, None, 0, use, Counts(requests=10))
        for name, use in sorted(uses.items(), key=lambda item: -item[1])
    ]
    count = len(seen)
    return Refresh(tuple(seen), {"produce": Counts(requests=10 * count)}, {"produce": count})


def _names(shown: ShownBuckets) -> set[str]:
    return {key.user for key in shown.series}


def test_those_of_most_use_are_shown_and_the_others_summed() -> None:
    shown = ShownBuckets(2)
    shown.fold(_refresh(a=0.9, b=0.5, c=0.4, d=0.1), 0)
    assert _names(shown) == {"a", "b"}
    assert shown.others == {"produce": Counts(requests=20)}
    assert shown.dropped == {"produce": 2}


def test_a_bucket_gives_way_to_one_that_is_used_a_quarter_more_and_not_before() -> None:
    shown = ShownBuckets(1)
    shown.fold(_refresh(a=0.4, b=0.3), 0)
    shown.fold(_refresh(a=0.4, b=0.49), REFRESH_MS)  # 0.49 < 1.25 x 0.4
    assert _names(shown) == {"a"}
    shown.fold(_refresh(a=0.4, b=0.51), 2 * REFRESH_MS)
    assert _names(shown) == {"b"}
    shown.fold(_refresh(a=0.6, b=0.51), 3 * REFRESH_MS)  # back takes as much again: 0.6375
    assert _names(shown) == {"b"}


def test_a_quiet_look_takes_no_series_away() -> None:
    shown = ShownBuckets(1)
    shown.fold(_refresh(a=0.8, b=0.3), 0)
    shown.fold(_refresh(b=0.3), REFRESH_MS)
    assert _names(shown) == {"a"}
    # After ten minutes the 0.8 counts a quarter: 1.25 x 0.2 < 0.3.
    shown.fold(_refresh(b=0.3), 600_000)
    assert _names(shown) == {"b"}


def test_uses_that_shake_by_a_twentieth_change_no_series_in_an_hour(chance: Chance) -> None:
    uses = {f"b{n}": n / 100 for n in range(1, 101)}
    shown = ShownBuckets(10)
    changes = 0
    for look in range(240):
        before = _names(shown)
        shown.fold(
            _refresh(**{name: use * chance.uniform(0.95, 1.05) for name, use in uses.items()}),
            look * REFRESH_MS,
        )
        changes += look >= 8 and _names(shown) != before  # two minutes to find the highest
    assert changes == 0


def test_no_counter_goes_backwards_and_together_they_are_everything(chance: Chance) -> None:
    shown = ShownBuckets(5)
    last: dict[BucketKey, int] = defaultdict(int)
    other = total = comings = 0
    for look in range(400):
        active = chance.sample(range(30), chance.randrange(0, 30))
        now_ms = look * REFRESH_MS * chance.choice([1, 1, 1, 5])
        before = set(shown.series)
        shown.fold(_refresh(**{f"b{n}": chance.random() for n in active}), now_ms)
        shown.forget_idle(now_ms)
        total += 10 * len(active)
        comings += len({key for key in set(shown.series) - before if key in last})
        for key, one in shown.series.items():
            assert one.counts.requests >= last[key]
            last[key] = one.counts.requests
        now_other = shown.others.get("produce", Counts()).requests
        assert now_other >= other
        other = now_other
        assert len(shown.series) <= 5
    assert comings > 50  # buckets did come back
    left = sum(counts.requests for counts in shown._left.values())
    assert sum(one.counts.requests for one in shown.series.values()) + left + other == total


def _many(second: int, count: int, **changed: Any) -> list[dict[str, Any]]:
    return [decision(second, bucket_user=f"u{n:03}", amount=1_000 + n, **changed) for n in range(count)]


def test_a_thousand_names_are_as_many_series_as_allowed(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path, max_series=20)
    exporter.judged(0, *_many(0, 1_000))
    found = exporter.judged(15, *_many(10, 1_000))
    assert len(found["bucket_bytes_total"]) == 21
    assert sum(found["bucket_bytes_total"].values()) == sum(1_000 + n for n in range(1_000))
    assert found["exporter_shown_buckets"] == {(): 20}
    assert found["exporter_dropped_buckets"] == {("produce",): 980}


def test_a_small_bucket_near_its_limit_is_shown_before_a_large_one_far_below(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path, max_series=1)
    small = decision(0, bucket_user="small", amount=10, quota_used_percent=97.0)
    large = decision(0, bucket_user="large", amount=90, quota_used_percent=5.0)
    # 0.97 of its limit against nine tenths of all bytes.
    assert list(exporter.judged(0, small, large)["bucket_quota_used_ratio"]) == [("produce", "small")]


def test_the_others_say_how_near_to_its_limit_the_nearest_is(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path, max_series=1)
    near = {"quota_used_percent": 97.0}
    rows = (
        decision(0, bucket_user="a", **near),
        decision(0, bucket_user="b", **near),
        decision(0, bucket_user="c"),
    )
    exporter.judged(0, *rows)
    found = exporter.judged(10, *rows)
    assert found["bucket_quota_used_ratio"] == {("produce", "a"): 0.97, OTHER: 0.97}
    assert found["bucket_bytes_total"] == {("produce", "a"): 1_000, OTHER: 2_000}


def test_a_client_that_is_called_other_is_not_the_others(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path, max_series=1)
    other = decision(0, bucket_user="other", quota_used_percent=99.0)
    exporter.judged(0, other, decision(0))
    assert 'user="other"} 1000\n' in (exporter.judged(9, other, decision(0)) and exporter.text(9))
    assert (
        'kquota_bucket_bytes_total{cluster_id="demo",quota_type="produce",bucket="other"} 1000'
        in exporter.text(9)
    )


def test_rows_that_only_moved_to_other_files_are_not_counted_again(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.judged(0, decision(0))
    exporter.judged(9, decision(1), decision(2))
    DeltaTable(str(tmp_path / "decisions")).optimize.compact()
    assert exporter.judged(12)["bucket_bytes_total"] == {("produce", "alice"): 2_000}


def test_a_period_that_was_restated_is_not_counted_again(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.judged(0, decision(0))
    exporter.judged(9, decision(1))
    path = tmp_path / "decisions"
    rows = DeltaTable(str(path)).to_pyarrow_table()
    write_deltalake(str(path), rows, mode="overwrite", predicate=f"event_date = '{DAY}'")
    assert exporter.judged(12)["bucket_bytes_total"] == {("produce", "alice"): 1_000}
    assert exporter.judged(15, decision(5))["bucket_bytes_total"] == {("produce", "alice"): 2_000}


def test_a_look_opens_no_file_that_it_has_read_before(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.judged(0, decision(0))
    for file in (tmp_path / "decisions").rglob("*.parquet"):
        file.write_bytes(b"not a parquet file any more")
    assert exporter.judged(9, decision(1))["bucket_bytes_total"] == {("produce", "alice"): 1_000}


def test_a_table_that_was_made_anew_is_followed_from_its_beginning(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.judged(0, decision(0))
    exporter.judged(9, decision(1))
    (tmp_path / "decisions").rename(tmp_path / "old")
    assert exporter.judged(12)["bucket_bytes_total"] == {("produce", "alice"): 1_000}
    exporter.judged(15, decision(5))
    assert exporter.judged(18, decision(6))["bucket_bytes_total"] == {("produce", "alice"): 2_000}
