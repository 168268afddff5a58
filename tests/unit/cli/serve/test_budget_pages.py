"""`kquota serve` shows the error budgets: an operator those of all owners, a tenant only the own one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.cli.serve import app as app_module
from kquota_spark.cli.serve import contents
from kquota_spark.config.settings import Settings
from tests.support.reports.served import NOW_MS, VICTIM, by_proxy, readable, served, write_canary_tables


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for module in (contents, app_module):
        monkeypatch.setattr(module, "now_ms", lambda: NOW_MS)
    owners = tmp_path / "owners.yaml"
    owners.write_text(
        f"owners: [{{name: canary-owner, users: [{VICTIM}]}}, {{name: team-lookup, users: [alice]}}]\n",
        "utf-8",
    )
    return write_canary_tables(tmp_path).changed(owners=str(owners))


def page(settings: Settings, address: str, user: str) -> str:
    answer = by_proxy(served(settings)).get(address, headers={"X-Forwarded-User": user})
    assert answer.status_code == 200
    return readable(answer.text).replace("\N{NO-BREAK SPACE}", " ")


def test_an_operator_sees_the_budgets_of_all_owners(settings: Settings) -> None:
    assert "spent by 1 owner" in page(settings, "/", "operator")
    report = page(settings, "/report?period=last:24h", "operator")
    # All of the ten seconds are throttled: 0.05 s were allowed.
    assert (
        "1 owner has spent the error budget; canary-owner most: 10.0 s throttled, 50 ms allowed in 10 s of data."
        in report
    )
    assert 'id="chart-budgets"' in report and "team-lookup" in report


def test_a_tenant_sees_the_own_budget_and_no_owner(settings: Settings) -> None:
    first, report = (page(settings, address, "alice") for address in ("/", "/report?period=last:24h"))
    assert "100 % left" in first
    assert "You have 100 % of your error budget left: 50 ms of 50 ms in 10 s of data." in report
    for text in (first, report):
        assert "canary-owner" not in text and VICTIM not in text and "team-lookup" not in text
