"""What no rule meters as its owner may think, the most severe first, and how much of it a tenant is told."""

from __future__ import annotations

from pathlib import Path

from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.shared_rows import Unprotected
from tests.support.reports.gathered_report import gathered, rule
from tests.support.tables.report_tables import FROM_MS, MADE_AT_MS, SHARED, TO_MS, write_report_tables
from tests.support.tables.table_rows import usage


def test_the_most_severe_come_first_and_the_rest_is_counted(tmp_path: Path) -> None:
    rules = [
        rule(Entity(client_id=DEFAULT), producer_byte_rate=1e6),
        rule(Entity(user="eve"), consumer_byte_rate=1.0),
    ]
    used = [usage(0), usage(0, user="bob"), usage(1, client_id=""), usage(2, quota_type="fetch")]
    page = gathered(tmp_path, usages=used, quota_rules=rules)
    assert [(one.severity, one.kind, one.subject) for one in page.unprotected] == [
        ("high", "EMPTY_CLIENT_ID", "user alice, client id (empty)"),
        ("warning", "UNMETERED", "user alice, client id etl"),
        ("info", "SHARED_BUCKET", "client id etl"),
    ]
    again = gathered(tmp_path / "again", usages=used, quota_rules=rules, top=1)
    assert ([one.kind for one in again.unprotected], again.unprotected_left_out) == (["EMPTY_CLIENT_ID"], 2)


def test_a_tenant_is_told_what_is_its_own_and_how_many_share_its_bucket(tmp_path: Path) -> None:
    settings = write_report_tables(tmp_path)
    page = gather_report(settings, Period(FROM_MS, TO_MS), made_at_ms=MADE_AT_MS, tenant="bob")
    assert page.unprotected == [
        Unprotected(
            "UNMETERED",
            "warning",
            "user bob, client id reader",
            "no quota of fetch holds for it: 400,000,000 bytes",
            "give it a quota, or a default to all",
        ),
        Unprotected(
            "SHARED_BUCKET",
            "info",
            f"client id {SHARED}",
            "its produce bucket is shared with 1 other user: each of them can throttle the others",
            "ask for a quota of your own, or use a client id that nobody else has",
        ),
    ]
