"""A tenant's page tells of the tenant alone: what is its own, and nothing of whom it shares a cluster with."""

from __future__ import annotations

from dataclasses import asdict

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
