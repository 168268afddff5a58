"""A tenant's page tells of the tenant alone: what is its own, and nothing of whom it shares a cluster with."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.sections import AuditReport
from tests.support.tables.report_tables import (
    FROM_MS,
    HOSTILE,
    LENGTH_S,
    MADE_AT_MS,
    SCRIPT,
    SHARED,
    TO_MS,
    write_report_tables,
)
from tests.support.tables.table_rows import T0_MS, decision, request, usage, write_table

EVERYBODY = ("alice", "bob", "carol", "jmx-reader", "dave", *HOSTILE)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return write_report_tables(tmp_path_factory.mktemp("tables"))


def _page(settings: Settings, tenant: str) -> AuditReport:
    return gather_report(settings, Period(FROM_MS, TO_MS), made_at_ms=MADE_AT_MS, tenant=tenant)


@pytest.mark.parametrize("tenant", ["alice", "bob", "carol", SCRIPT])
def test_no_name_of_another_user_is_anywhere_in_it(settings: Settings, tenant: str) -> None:
    told = _all_text(asdict(_page(settings, tenant)))
    own = {tenant, SHARED}
    for other in set(EVERYBODY) - {tenant}:
        spelt = {other, str(Entity(user=other)).removeprefix("users/")}
        assert not [text for text in told if any(name in text for name in spelt) and text not in own]


def test_no_number_of_another_user_is_in_it(settings: Settings) -> None:
    page = _page(settings, "bob")
    # 200 seconds of 40,000 bytes, 120 of 90,000; fetched in 200 seconds 2,000,000 each
    assert {of_type.quota_type: of_type.total for of_type in page.talkers} == {
        "produce": 200 * 40_000 + 120 * 90_000,
        "fetch": 200 * 2_000_000,
    }
    # the requests of these seconds, one each; the cluster has 602 lines
    assert page.confidence.lines == 200 + 120 + 200
    assert page.capacity == []
    assert {one.bucket.user for one in page.skew} == {"bob"}
    assert {bucket.user for heat in page.heat for bucket in heat.buckets} == {"bob"}


def test_a_bucket_shared_with_others_tells_only_of_own_throttles(settings: Settings) -> None:
    (bob,), (carol,) = (_page(settings, name).throttled or (None,) for name in ("bob", "carol"))
    # bob was told to wait 300 ms in each of 120 seconds of 600, carol in none
    assert bob is not None
    assert bob.bucket.client_id == SHARED
    assert (bob.time_throttled_s, bob.delay_ms, bob.shared_with) == (120, 36_000, 1)
    assert bob.time_throttled_percent == 100 * 120 / LENGTH_S
    assert (bob.limit_per_s, bob.throttled_requests, bob.peak_quota_used_percent) == (None, None, None)
    assert carol is None


def test_the_part_of_a_shared_bucket_counts_the_seconds_in_which_a_throttle_still_ran(tmp_path: Path) -> None:
    throttles_ms = {10: (3_200, 500), 12: (1_000,), 20: (200,), 27: (2_000,), 29: (5_000,)}
    write_table(
        tmp_path, "usage", usage(0), usage(15, user="carol", client_id=SHARED, observed_throttle_ms=9_000),
        *(usage(at_s, user="bob", client_id=SHARED, requests=len(each), observed_throttle_ms=sum(each))
          for at_s, each in throttles_ms.items()),
    )  # fmt: skip
    lines = [(at_s, throttle_ms) for at_s, each in throttles_ms.items() for throttle_ms in each]
    # The line of second 27 is not kept: its only request had all of the throttle.
    write_table(
        tmp_path, "requests", request(9, T0_MS + 15_000, user="carol", client_id=SHARED, observed_throttle_ms=9_000),
        *(request(offset, T0_MS + 1_000 * at_s + 7, user="bob", client_id=SHARED, observed_throttle_ms=throttle_ms,
                  quota_type="produce")
          for offset, (at_s, throttle_ms) in enumerate(lines) if at_s != 27),
    )  # fmt: skip
    both = {"bucket_user": "", "bucket_client_id": SHARED, "users": ["bob", "carol"], "client_ids": [SHARED]}
    write_table(tmp_path, "decisions", *(decision(at_s, **both) for at_s in (*throttles_ms, 15)))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    page = gather_report(settings, Period(T0_MS, T0_MS + 30_000), made_at_ms=T0_MS + 30_000, tenant="bob")
    (bob,) = page.throttled
    # Seconds 10 to 13 for the throttle of 3.2 s, in which that of second 12 ran and ended; second 20; 27, 28;
    # and 29, the last of the period.
    assert (bob.time_throttled_s, bob.delay_ms) == (4 + 1 + 2 + 1, 11_900)
    assert bob.time_throttled_percent == 100 * 8 / 30


def test_a_tenant_is_told_how_long_it_was_throttled(settings: Settings) -> None:
    assert _page(settings, "alice").notes == (
        "you were throttled 50.0 % of this time (produce, all your clients)",
    )
    assert _page(settings, SCRIPT).notes == ("you were not throttled",)


def test_who_was_not_seen_is_refused(settings: Settings) -> None:
    with pytest.raises(UserError, match=r"^user User:alice was not seen from 2026-11-21 05:40:00 UTC to "):
        _page(settings, "User:alice")


def _all_text(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _all_text(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in _all_text(part)]
    return []
