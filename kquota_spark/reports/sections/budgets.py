"""How much of each owner's error budget is left: the share of active seconds that throttles may take, over a month.

The period is that of the objective, and ends with the report. So it is mostly longer than the report's own period. A
tenant's page has the budget of the tenant's clients alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kquota_spark.config.owners_file import owners_of
from kquota_spark.formats.text.person_units import counted, person_ms
from kquota_spark.model.budgets.budgets import LeftAt, burn_down
from kquota_spark.model.budgets.objectives import PAGING
from kquota_spark.process.time_limit import SlowError
from kquota_spark.reports.budgets.grouping import Grouping, by_owner, of_tenant
from kquota_spark.reports.budgets.owned_budgets import OwnedBudget, budgets_at
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, Section, Tone, table_of
from kquota_spark.reports.parts.report_section import CsvFile, ReportSection, file_of
from kquota_spark.reports.scope.report_scope import Scope

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_STEPS = 120
"""Points of a burn-down after the first one."""
_MOST_LINES = 8
_LEAST_DRAWN_PERCENT = -100.0
"""The end of the picture: an owner far beyond its budget would flatten the lines of all others."""
_MOST_TENANT_S = 10.0
"""Time limit of the budget on a tenant's page, s."""
_TOO_SLOW = "It is left out: reading the whole period takes too long for this page. kquota budget shows it."
_COLUMNS = (
    Column("owner"),
    *Column.numbers("objective", "active", "time throttled", "allowed", "left", "share left"),
    *Column.numbers("burn 1 h", "burn 6 h", "burn 3 d"),
    Column("spent at"),
)
_OF_FILE = (
    "owner", "objective_percent", "objective_days", "active_s", "time_throttled_s", "budget_s", "left_s",
    "left_percent", "burn_5m", "burn_30m", "burn_1h", "burn_6h", "burn_3d", "pace", "spent_at_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OwnerBudget:
    """The error budget of an owner at the end of the report."""

    owner: str
    objective_percent: float
    objective_days: int
    covered_s: int
    """From the first active second of the period to its end."""
    active_s: int
    time_throttled_s: int
    budget_s: float
    """Seconds that may be throttled."""
    left_s: float
    """Negative if more was throttled."""
    left_percent: float
    burn_5m: float | None
    burn_30m: float | None
    burn_1h: float | None
    burn_6h: float | None
    burn_3d: float | None
    pace: str
    """The most urgent pace that holds: fast, hours or days; empty if it is not spent too fast."""
    spent_at_ms: int | None
    burn_down: Sequence[LeftAt]
    """What was left, over the period."""


def gather(scope: Scope) -> dict[str, Any]:
    """The budgets of all owners; on a tenant's page that of the tenant. Reads the days of the objective's period."""
    to_ms = scope.covered.to_ms // 1_000 * 1_000
    grouping = _grouping(scope, to_ms)
    if grouping is None:
        return {"budgets": (), "are_budgets_slow": False}
    # Pages of a thousand tenants are made one after the other, and an overview has 10 s: the rest does not wait.
    try:
        with scope.tables.another(None if scope.tenant is None else _MOST_TENANT_S) as tables:
            found = budgets_at(tables, scope.cluster_id, to_ms, grouping).found
    except SlowError:
        return {"budgets": (), "are_budgets_slow": True}
    budgets = [_row(one) for one in found if one.budget.left_percent is not None]
    return {"budgets": budgets, "are_budgets_slow": False}


def _grouping(scope: Scope, to_ms: int) -> Grouping | None:
    owners = owners_of(scope.settings)
    if scope.tenant is not None:
        return of_tenant(scope.tenant, owners, to_ms)
    return None if owners is None else by_owner(owners)


def _row(one: OwnedBudget) -> OwnerBudget:
    budget = one.budget
    first_s, left_percent = budget.first_active_s, budget.left_percent
    assert first_s is not None and left_percent is not None
    return OwnerBudget(
        owner=one.name,
        objective_percent=budget.objective.percent,
        objective_days=budget.objective.days,
        covered_s=budget.to_s - first_s,
        active_s=budget.period.active_s,
        time_throttled_s=budget.period.throttled_s,
        budget_s=budget.budget_s,
        left_s=budget.left_s,
        left_percent=left_percent,
        **{f"burn_{name}": rate for name, rate in budget.burns.items()},
        pace="" if budget.burning is None else budget.burning.name,
        spent_at_ms=None if budget.spent_at_s is None else budget.spent_at_s * 1_000,
        burn_down=burn_down(one.seconds, budget, _STEPS),
    )


def is_shown(report: AuditReport) -> bool:
    """Whether there are budgets: the settings name a file of owners, or the page is a tenant's."""
    return bool(report.budgets) or report.are_budgets_slow


def budget_tone(report: AuditReport) -> Tone:
    """Over if a budget is spent or burns at a pace that pages, so that red means to act."""
    if any(one.left_s < 0 or one.pace in PAGING for one in report.budgets):
        return Tone.OVER
    return Tone.NEAR if any(one.pace for one in report.budgets) else Tone.GOOD


def short_answer(report: AuditReport) -> str:
    """The least that is left, as `75 % left` or `spent by 2 owners`."""
    spent = sum(one.left_s < 0 for one in report.budgets)
    if report.head.tenant is not None:
        return "spent" if spent else f"{_share(report.budgets[0].left_percent)} left"
    return (
        f"spent by {counted(spent, 'owner')}" if spent else f"{_share(report.budgets[0].left_percent)} left"
    )


def budgets_section(report: AuditReport) -> Section:
    """The burn-down of each owner, and its table."""
    is_own = report.head.tenant is not None
    title = "How much of your error budget is left?" if is_own else "How much error budget is left?"
    if report.are_budgets_slow:
        return Section(anchor="budgets", short="Error budget", title=title, lead=_TOO_SLOW)
    return Section(
        anchor="budgets",
        short="Error budget",
        title=title,
        lead=_own_lead(report.budgets[0]) if is_own else _lead(report.budgets),
        tone=budget_tone(report),
        blocks=(_block(report),),
    )


def _lead(budgets: Sequence[OwnerBudget]) -> str:
    worst = budgets[0]
    spent = sum(one.left_s < 0 for one in budgets)
    if spent:
        return (
            f"{counted(spent, 'owner has', 'owners have')} spent the error budget; {worst.owner} most: "
            f"{_throttled(worst)}."
        )
    burning = [one for one in budgets if one.pace]
    if burning:
        return f"{burning[0].owner} spends its error budget too fast: {_left(burning[0])}."
    return f"Every owner has error budget left; {worst.owner} the least: {_left(worst)}."


def _own_lead(own: OwnerBudget) -> str:
    if own.left_s < 0:
        return f"You have spent your error budget: {_throttled(own)}."
    ends = "" if own.spent_at_ms is None else (
        f" At the pace of the last six hours it is spent at {words.short_moment(own.spent_at_ms // 60_000 * 60_000)}."
    )  # fmt: skip
    return f"You have {_share(own.left_percent)} of your error budget left: {_left(own, with_share=False)}.{ends}"


def _throttled(one: OwnerBudget) -> str:
    return f"{_length(one.time_throttled_s)} throttled, {_length(one.budget_s)} allowed in {_during(one)}"


def _left(one: OwnerBudget, *, with_share: bool = True) -> str:
    share = f"{_share(one.left_percent)}, " if with_share else ""
    return f"{share}{_length(one.left_s)} of {_length(one.budget_s)} in {_during(one)}"


def _during(one: OwnerBudget) -> str:
    """The period, or what the tables have of it."""
    if one.covered_s < one.objective_days * 86_400 * 0.99:
        return f"{words.length(one.covered_s * 1_000)} of data"
    return f"{one.objective_days} days"


def _length(value_s: float) -> str:
    return f"{'-' if value_s < 0 else ''}{person_ms(abs(value_s) * 1_000)}"


def _share(percent: float) -> str:
    return f"{percent:,.0f} %" if percent < 0 else words.share_text(percent)


def _block(report: AuditReport) -> Block:
    shown = report.budgets[:_MOST_LINES]
    names = ["you" if report.head.tenant is not None else one.owner for one in report.budgets]
    data = {
        "labels": names[:_MOST_LINES],
        "least": _LEAST_DRAWN_PERCENT,
        "times_ms": [[point.at_s * 1_000 for point in one.burn_down] for one in shown],
        "left": [[round(point.left_percent, 3) for point in one.burn_down] for one in shown],
    }
    whose = "your clients" if report.head.tenant is not None else counted(len(shown), "owner")
    label = f"Error budget left over its period, percent, of {whose}"
    is_cut = any(one.left_percent < _LEAST_DRAWN_PERCENT for one in shown)
    end = " The picture ends at twice the budget." if is_cut else ""
    rows = (_cells(name, one) for name, one in zip(names, report.budgets, strict=True))
    return Block(
        "Burn-down",
        "The budget is the part of the active seconds that may be throttled, by the objective. A burn rate of 1 spends "
        f"it in its period. The dashed line is even spending.{end}",
        Chart("chart-budgets", "burndown", label, data),
        table_of("Error budgets", _COLUMNS, rows, len(report.budgets), "owners"),
        is_table_open=True,
    )


def _cells(name: str, one: OwnerBudget) -> tuple[Cell, ...]:
    tone = Tone.OVER if one.left_s < 0 or one.pace in PAGING else Tone.NEAR if one.pace else Tone.PLAIN
    spent_at = "spent" if one.left_s < 0 else "-"
    return (
        Cell(name),
        Cell(f"{one.objective_percent:g} %", f"of the active seconds in {one.objective_days} days"),
        *(Cell(_length(value), f"{value:,.3f} s") for value in (one.active_s, one.time_throttled_s)),
        *(Cell(_length(value), f"{value:,.3f} s") for value in (one.budget_s, one.left_s)),
        Cell(_share(one.left_percent), f"{one.left_percent:.4f} %", tone=tone),
        *(_burn(rate) for rate in (one.burn_1h, one.burn_6h, one.burn_3d)),
        Cell(spent_at if one.spent_at_ms is None else words.short_moment(one.spent_at_ms // 60_000 * 60_000)),
    )


def _burn(rate: float | None) -> Cell:
    return Cell("-") if rate is None else Cell(f"{rate:.1f}", f"{rate:.4f}")


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each owner."""
    return {"budgets.csv": file_of(_OF_FILE, report.budgets)}


SECTION = ReportSection(gather, budgets_section, files, is_shown)
