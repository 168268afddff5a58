"""Claims about all buckets of a period: which there are, and that their peaks come from certain seconds."""

from __future__ import annotations

import re
from pathlib import Path

from kquota_spark.reports.pages.page_html import html_page
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.sections.buckets import PeriodBucket
from tests.support.reports.drawn_report import all_buckets_report
from tests.support.reports.gathered_report import gathered, throttled
from tests.support.tables.table_rows import decision


def test_a_bucket_is_one_row_over_its_brokers_and_its_peak_is_certain(tmp_path: Path) -> None:
    report = gathered(
        tmp_path,
        decisions=[
            decision(1, quota_used_percent=85.0, client_ids=["etl"]),
            decision(2, quota_used_percent=190.0, is_certain=False, client_ids=["adhoc", "etl"]),
            throttled(3, 400, broker_id=2, quota_used_percent=95.0, client_ids=["etl"]),
        ],
    )
    # Two brokers, 0 + 400 ms; 190 % is not certain, so the peak is 95 %.
    assert report.buckets == (
        PeriodBucket(
            BucketName("produce", "alice", ""), (1, 2), 1_000_000.0, 95.0, 400, 1, (), ("adhoc", "etl")
        ),
    )


def test_a_second_that_a_broker_throttled_is_a_peak_whatever_the_replay_is_certain_of(tmp_path: Path) -> None:
    report = gathered(
        tmp_path,
        decisions=[
            decision(1, quota_used_percent=85.0),
            throttled(2, 400, quota_used_percent=119.0, is_certain=False),
            # The replay alone throttles, and is not certain of it.
            throttled(
                3, 400, quota_used_percent=190.0, is_certain=False,
                observed_throttle_ms=0, observed_throttled_requests=0, observed_total_throttle_ms=0,
            ),
        ],
    )  # fmt: skip
    # All buckets, throttled buckets and the heat map have one peak.
    assert [one.peak_quota_used_percent for one in report.buckets] == [119.0]
    assert [one.peak_quota_used_percent for one in report.throttled] == [119.0]
    [heat] = report.heat
    certain = [percent for percent in heat.quota_used_percent[0] if percent is not None]
    assert max(certain) == 119.0


def test_use_is_of_the_limit_that_was_in_force(tmp_path: Path) -> None:
    report = gathered(
        tmp_path,
        decisions=[
            decision(1, rate_per_s=900_000.0, limit_per_s=1_000_000.0, quota_used_percent=90.0),
            decision(2, rate_per_s=900_000.0, limit_per_s=3_000_000.0, quota_used_percent=30.0),
        ],
    )
    (bucket,) = report.buckets
    # 0.9 of 1 MB/s at first; of the last limit it would be 30 %.
    assert (bucket.peak_quota_used_percent, bucket.limit_per_s) == (90.0, 3_000_000.0)


def test_the_list_of_lists_is_not_cut_by_top(tmp_path: Path) -> None:
    many = [decision(1, bucket_user=f"user-{number:02}", users=[f"user-{number:02}"]) for number in range(30)]
    report = gathered(tmp_path, decisions=many, top=5)
    assert [one.bucket.user for one in report.buckets] == [f"user-{number:02}" for number in range(30)]


def test_a_tenant_has_only_own_buckets(tmp_path: Path) -> None:
    mine, other = decision(1), decision(1, bucket_user="bob", users=["bob"])
    shared = decision(1, bucket_user="", bucket_client_id="etl", users=["alice", "bob"])
    report = gathered(tmp_path, decisions=[mine, other, shared], tenant="alice")
    assert [one.bucket for one in report.buckets] == [BucketName("produce", "alice", "")]


def test_the_index_is_packed_in_letters_that_end_no_block() -> None:
    (block,) = re.findall(
        r'<script type="text/plain" id="bucket-index">(.*?)</script>', html_page(all_buckets_report())
    )
    assert re.fullmatch(r"[A-Za-z0-9+/]+=*", block)
    # 8,401 buckets, about 40 bytes each in base64.
    assert len(block) < 500_000
