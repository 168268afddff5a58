"""The page of the shadow quotas: for operators, with the rows of `kquota shadow`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kquota_spark.config.settings import Settings
from tests.support.reports.served import by_proxy, served, write_canary_tables
from tests.support.tables.table_rows import decision, second, write_table

USER = "<b>alice"


def _row(**changed: Any) -> dict[str, Any]:
    return {
        "cluster_id": "demo", "event_date": second(0).date(), "broker_id": 1, "quota_type": "produce",
        "bucket_user": USER, "bucket_client_id": "", "second": second(5), "shadow": "lower", "shadow_version": "v1",
        "limit_per_s": 500.0, "requests": 3, "throttle_ms": 70, "throttled_requests": 1, "total_throttle_ms": 70,
        "unknown_requests": 0, "is_near": False, "is_warm": True, "enforced_throttled_requests": 0,
        "enforced_total_throttle_ms": 0, **changed,
    }  # fmt: skip


def _tables(root: Path, *rows: dict[str, Any]) -> Settings:
    settings = write_canary_tables(root)
    write_table(root, "decisions", decision(5, bucket_user=USER))
    if rows:
        write_table(root, "shadow_decisions", *rows)
    return settings


def _page(settings: Settings, user: str) -> tuple[int, str]:
    answer = by_proxy(served(settings)).get("/shadow", headers={"X-Forwarded-User": user})
    return answer.status_code, answer.text


def test_an_operator_sees_each_bucket_and_a_tenant_nothing(tmp_path: Path) -> None:
    settings = _tables(tmp_path, _row())
    code, text = _page(settings, "operator")
    assert code == 200
    assert "user &lt;b&gt;alice" in text and USER not in text
    assert "newly throttled" in text and "shadow lower, version v1" in text
    assert _page(settings, "alice")[0] == 404


def test_without_a_shadow_the_page_has_the_setting(tmp_path: Path) -> None:
    code, text = _page(_tables(tmp_path), "operator")
    assert code == 404
    assert "set quotas.shadow to a file of quotas" in text
