"""The section of the shadow quotas: on the page of the cluster, not on that of a tenant, with hostile names escaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.pages.page_data import csv_files
from kquota_spark.reports.pages.page_html import policed_page
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.sections import AuditReport
from kquota_spark.reports.sections.shadow import is_shown, shadow_section
from tests.support.tables.report_tables import FROM_MS, MADE_AT_MS, SCRIPT, TO_MS, write_report_tables
from tests.support.tables.table_rows import second, write_table


def _row(user: str, after_ms: int, before_ms: int) -> dict[str, Any]:
    return {
        "cluster_id": "demo", "event_date": second(0).date(), "broker_id": 1, "quota_type": "produce",
        "bucket_user": user, "bucket_client_id": "", "second": second(30), "shadow": "lower", "shadow_version": "v1",
        "limit_per_s": 500.0, "requests": 3, "throttle_ms": after_ms, "throttled_requests": int(after_ms > 0),
        "total_throttle_ms": after_ms, "unknown_requests": 0, "is_near": False, "is_warm": True,
        "enforced_limit_per_s": 900.0, "enforced_throttled_requests": int(before_ms > 0),
        "enforced_total_throttle_ms": before_ms,
    }  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = write_report_tables(tmp_path)
    write_table(tmp_path, "shadow_decisions", _row(SCRIPT, 5_000, 0), _row("nobody yet", 3_000, 0))
    return found


def _report(settings: Settings, tenant: str | None = None) -> AuditReport:
    return gather_report(
        settings, Period(FROM_MS, TO_MS), made_at_ms=MADE_AT_MS, tenant=tenant, top=20, most_s=None
    )


def test_the_page_has_each_bucket_with_its_effect(settings: Settings) -> None:
    report = _report(settings)
    [block] = shadow_section(report).blocks
    assert block.table is not None
    rows = [[cell.text for cell in row] for row in block.table.rows]
    # The bucket of "nobody yet" has no row in decisions: it exists under the shadow only.
    assert [row[2:] for row in rows if "nobody yet" in row[0]] == [
        ["newly throttled", "none", "500 B/s", "0 ms", "at most 3.00 s", "0", "1"]
    ]
    text = policed_page(report)[1]
    assert "What would the shadow quotas change?" in text
    assert SCRIPT not in text
    assert csv_files(report)["shadow.csv"].count("\n") == 3


def test_a_tenant_and_a_report_without_shadow_have_no_section(settings: Settings, tmp_path: Path) -> None:
    assert not is_shown(_report(settings, "alice"))
    assert "shadow quotas" not in policed_page(_report(settings, "alice"))[1]
    assert not is_shown(_report(write_report_tables(tmp_path / "others")))
