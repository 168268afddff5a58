"""The section on error budgets: a sentence with its number, the burn-down, and one row per owner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.pages.opening import opening
from kquota_spark.reports.pages.page import page_of
from kquota_spark.reports.pages.page_data import csv_files, plain_report
from kquota_spark.reports.pages.page_markdown import markdown_page
from kquota_spark.reports.parts.page_parts import Section, Tone
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.sections import AuditReport, budgets
from kquota_spark.reports.sections.budgets import OwnerBudget
from tests.support.reports.drawn_budgets import owner_budget
from tests.support.reports.drawn_report import empty_report, full_report, tenant_report
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

HOUR_S = 3_600
FORECAST = "At the pace of the last six hours it is spent at 2026-11-22 00:00."


def section(report: AuditReport) -> Section:
    [found] = [one for one in page_of(report).sections if one.anchor == "budgets"]
    return found


def of(*found: OwnerBudget) -> AuditReport:
    return replace(full_report(), budgets=found)


@pytest.mark.parametrize(
    ("found", "lead", "tone", "short"),
    [
        ((owner_budget("pay", -40.0), owner_budget("search", -1.0), owner_budget("web", 90.0)),
         "2 owners have spent the error budget; pay most: 5.0 h throttled, 3.6 h allowed in 30 days.",
         Tone.OVER, "spent by 2 owners"),
        ((owner_budget("search", 20.0), owner_budget("web", 90.0)),
         "search spends its error budget too fast: 20.0 %, 43.2 min of 3.6 h in 30 days.", Tone.NEAR, "20.0 % left"),
        ((owner_budget("web", 90.0), owner_budget("idle", 100.0)),
         "Every owner has error budget left; web the least: 90.0 %, 3.2 h of 3.6 h in 30 days.", Tone.GOOD,
         "90.0 % left"),
    ],
)  # fmt: skip
def test_the_sentence_has_the_worst_owner_with_its_number(
    found: tuple[OwnerBudget, ...], lead: str, tone: Tone, short: str
) -> None:
    report = of(*found)
    assert (section(report).lead, section(report).tone) == (lead, tone)
    [answer] = [link for name, link in opening(report).others if name == "error budget"]
    assert (answer.text, answer.href, answer.tone) == (short, "#budgets", tone)


@pytest.mark.parametrize(
    ("left_percent", "lead"),
    [
        (75.0, "You have 75.0 % of your error budget left: 2.7 h of 3.6 h in 30 days."),
        (10.0, f"You have 10.0 % of your error budget left: 21.6 min of 3.6 h in 30 days. {FORECAST}"),
        (-40.0, "You have spent your error budget: 5.0 h throttled, 3.6 h allowed in 30 days."),
    ],
)  # fmt: skip
def test_a_tenant_has_one_sentence_with_the_number(left_percent: float, lead: str) -> None:
    report = replace(tenant_report(), budgets=(owner_budget("bob", left_percent),))
    assert section(report).lead == lead
    assert "bob" not in str(section(report))


def test_a_page_without_owners_has_no_section() -> None:
    assert [one.anchor for one in page_of(empty_report()).sections if one.anchor == "budgets"] == []
    assert [name for name, _ in opening(empty_report()).others if name == "error budget"] == []


def test_the_chart_is_the_burn_down_of_the_first_eight_owners() -> None:
    report = of(*(owner_budget(f"o{number}", 10.0 * number) for number in range(10)))
    [block] = section(report).blocks
    assert block.chart is not None and block.table is not None
    assert (block.chart.kind, block.chart.anchor) == ("burndown", "chart-budgets")
    assert block.chart.data["labels"] == [f"o{number}" for number in range(8)]
    assert block.chart.data["left"][1] == [100 - 9.0 * step for step in range(11)]
    assert len(block.table.rows) == 10


@pytest.mark.parametrize(("left_percent", "is_cut"), [(-100.0, False), (-100.1, True)])
def test_the_note_says_where_the_picture_ends(left_percent: float, is_cut: bool) -> None:
    [block] = section(of(owner_budget("pay", left_percent), owner_budget("shop", 75.0))).blocks
    assert block.note.endswith("The picture ends at twice the budget.") is is_cut


def test_the_file_for_programs_has_every_number() -> None:
    header, first, *_ = csv_files(of(owner_budget("pay", -40.0)))["budgets.csv"].splitlines()
    assert header == (
        "owner,objective_percent,objective_days,active_s,time_throttled_s,budget_s,left_s,left_percent,burn_5m,burn_30m,"
        "burn_1h,burn_6h,burn_3d,pace,spent_at_ms"
    )
    assert first == "pay,99.5,30,2592000,18144,12960.0,-5184.0,-40.0,,0.0,14.4,2.0,1.4,days,"
    [plain] = plain_report(of(owner_budget("pay", -40.0)))["budgets"]
    assert (plain["time_throttled_s"], plain["left_s"]) == (18_144, -5_184.0)


def throttle(offset_s: int, longest_ms: int, **changed: Any) -> dict[str, Any]:
    figures = {"observed_throttle_ms": longest_ms, "observed_throttled_requests": 1,
               "observed_total_throttle_ms": longest_ms}  # fmt: skip
    return decision(offset_s, **figures, **changed)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """alice and bob are payments. Ten days ago alice waited for 100 s; in the last hour bob did for 7 s."""
    begin_s = -10 * 86_400
    write_table(
        tmp_path, "usage", *(usage(begin_s + at_s) for at_s in range(HOUR_S)),
        *(usage(at_s, user="bob") for at_s in range(HOUR_S)), usage(HOUR_S - 1, user="carol"),
    )  # fmt: skip
    write_table(
        tmp_path, "decisions", throttle(begin_s, 100_000), throttle(0, 7_000, bucket_user="bob", users=["bob"]),
        decision(HOUR_S - 1, bucket_user="bob", users=["bob"]),
    )  # fmt: skip
    path = tmp_path / "owners.yaml"
    path.write_text(
        "owners: [{name: payments, users: [alice, bob], objective_percent: 99}]\n", encoding="utf-8"
    )
    return Settings(tables=str(tmp_path), cluster_id="demo", owners=str(path))


def report(settings: Settings, tenant: str | None = None) -> AuditReport:
    period = Period(T0_MS, T0_MS + HOUR_S * 1_000)
    return gather_report(settings, period, made_at_ms=period.to_ms, tenant=tenant)


def test_the_period_is_that_of_the_objective_however_short_the_report_is(settings: Settings) -> None:
    found = {one.owner: one for one in report(settings).budgets}
    # 1 % of 7,200 s are 72 s. 107 s were throttled, 100 of them long before the hour of the report.
    assert (found["payments"].active_s, found["payments"].time_throttled_s) == (7_200, 107)
    assert (found["payments"].left_s, found["payments"].covered_s) == (-35.0, 10 * 86_400 + HOUR_S)
    assert (found["unowned"].active_s, found["unowned"].time_throttled_s) == (1, 0)
    assert section(report(settings)).lead == (
        "1 owner has spent the error budget; payments most: 107 s throttled, 72.0 s allowed in 241 hours of data."
    )


def test_a_tenant_has_the_budget_of_its_own_clients_with_the_objective_of_its_owner(
    settings: Settings,
) -> None:
    own = report(settings, "bob")
    [budget] = own.budgets
    # bob alone: 1 % of 3,600 s are 36 s, of which 7 are spent. alice, of the same owner, is not in it.
    assert (budget.objective_percent, budget.active_s, budget.time_throttled_s) == (99.0, 3_600, 7)
    assert (
        section(own).lead == "You have 80.6 % of your error budget left: 29.0 s of 36.0 s in 1 hour of data."
    )
    assert "alice" not in markdown_page(own) and "payments" not in markdown_page(own)


def test_a_period_that_takes_too_long_to_read_costs_the_page_nothing_else(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "_MOST_TENANT_S", 0.0)
    own = report(settings, "bob")
    assert (own.budgets, own.are_budgets_slow) == ((), True)
    assert section(own).lead == (
        "It is left out: reading the whole period takes too long for this page. kquota budget shows it."
    )
    assert [name for name, _ in opening(own).others if name == "error budget"] == []
    # The page of the cluster has no limit of its own.
    assert not report(settings).are_budgets_slow


def test_without_a_file_of_owners_only_a_tenant_has_a_budget(settings: Settings) -> None:
    alone = settings.changed(owners="")
    assert report(alone).budgets == ()
    [budget] = report(alone, "bob").budgets
    assert (budget.objective_percent, budget.budget_s) == (99.5, 18.0)
