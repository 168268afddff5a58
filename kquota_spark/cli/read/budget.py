"""`kquota budget`: the error budget of each owner: what is left of it, and how fast it burns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kquota_spark.cli.answers import bucket_values, newest_decision_ms, of_one_cluster, require_owner
from kquota_spark.cli.exit_codes import DONE, ERROR, FOUND
from kquota_spark.cli.options import TIME_FORMS, Since, bucket_text, lines, time_argument
from kquota_spark.cli.own_options import option, switch
from kquota_spark.cli.question import Asked, Found, Question
from kquota_spark.cli.text.render import Colour, Row, Shown
from kquota_spark.config.owners_file import load_owners, owners_of
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import (
    clock_time,
    counted,
    or_dash,
    person_ms,
    person_percent,
    person_span,
    type_text,
)
from kquota_spark.model.budgets.budgets import Budget, OwnSeconds, budget_of
from kquota_spark.model.budgets.objectives import PAGING, WINDOWS_S
from kquota_spark.model.owners import Owners
from kquota_spark.reports.budgets.bucket_seconds import bucket_seconds
from kquota_spark.reports.budgets.grouping import Grouping, by_owner, by_user
from kquota_spark.reports.budgets.owned_budgets import Budgets, OwnedBudget, budgets_at, newest_ms
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.store.reading import utc_text

COMMANDS = {
    "budget": (
        "answers",
        "the error budget of each owner: what is left of it, and how fast throttles burn it",
        "kquota budget",
        "kquota budget --by bucket --owner payments",
    ),
}
CODES = {
    "budget": {
        ERROR: "an error, or a usage error",
        FOUND: "with --check: a budget is spent, or burns at a pace that pages",
    },
}

_MOST_BUCKETS = 200
"""Maximum buckets of --by bucket: those with the most time throttled."""
_BURNS = tuple(f"burn_{name}" for name in WINDOWS_S)
_FIGURES = (
    "objective_percent", "objective_days", "active_s", "time_throttled_s", "budget_s", "budget_left_s",
    "budget_left_percent", *_BURNS, "pace", "spent_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Own:
    """The options that no other command has."""

    owner: str | None = option("--owner", "only this owner of the file `owners`; or unowned", metavar="NAME")
    owners: Path | None = option(
        "--owners", "file of owners, instead of that of the settings", type=Path, metavar="FILE"
    )
    by: str = option(
        "--by", "bucket: below each owner its throttled buckets, which spend the budget (default owner)",
        default="owner", choices=("owner", "bucket"),
    )  # fmt: skip
    until: Since | None = option(
        "--until", f"the budget at that time: {TIME_FORMS} (default the newest second)", type=time_argument,
        metavar="T",
    )  # fmt: skip
    is_check: bool = switch(
        "--check", f"end with code {FOUND} if a budget is spent, or burns at a pace that pages"
    )


def _find(asked: Asked) -> Found:
    """One row per owner, the least budget left first.

    Raises:
        UserError: the tables are empty, or the file of owners has problems.
    """
    own: _Own = asked.own
    owners = _owners(asked)
    grouping = by_user() if owners is None else by_owner(owners)
    budgets, cluster_id = _budgets(asked, grouping, has_buckets=own.by == "bucket")
    chosen = [one for one in budgets.found if own.owner in (None, one.name)]
    rows = [{"cluster_id": cluster_id, **row} for row in _rows(budgets, chosen, own)]
    names = ("cluster_id", "owner", *(bucket_values(None) if own.by == "bucket" else ()), *_FIGURES)
    is_bad = any(one.budget.left_s < 0 or _pages(one.budget) for one in chosen)
    return Found(
        names,
        rows,
        _shown(rows, "user" if owners is None else "owner"),
        _footer(chosen, budgets, has_owners=owners is not None),
        when_empty=f"no client {'' if own.owner is None else f'of {own.owner} '}was active in the "
        f"{grouping.period_s // 86_400} days before {utc_text(budgets.to_ms)}",
        times=frozenset({"spent_at"}),
        code=FOUND if own.is_check and is_bad else DONE,
    )


def _owners(asked: Asked) -> Owners | None:
    """The owners of --owners or of the settings; None if there is no file.

    Raises:
        UserError: the file has problems, or --owner names no owner of it.
    """
    own: _Own = asked.own
    owners = owners_of(asked.settings) if own.owners is None else load_owners(own.owners)
    require_owner(own.owner, owners, own.owners or asked.settings.owners)
    return owners


def _budgets(asked: Asked, grouping: Grouping, *, has_buckets: bool) -> tuple[Budgets, str]:
    """The budgets, and the cluster that they are of."""
    tables = asked.tables
    tables.open("decisions")
    from_ms = newest_decision_ms(tables) - grouping.period_s * 1_000
    cluster_id = of_one_cluster(asked, from_ms).cluster_id
    to_ms = newest_ms(tables, cluster_id)
    if to_ms is None:
        raise UserError(f"the tables have no decisions of cluster {cluster_id}: set cluster_id (--config)")
    if asked.wanted.until is not None:
        to_ms = min(to_ms, asked.wanted.until.time_ms // 1_000 * 1_000)
    return budgets_at(tables, cluster_id, to_ms, grouping, has_buckets=has_buckets), cluster_id


def _rows(budgets: Budgets, chosen: Sequence[OwnedBudget], own: _Own) -> Iterator[dict[str, Any]]:
    names = {one.name for one in chosen}
    buckets = [] if budgets.owned is None else bucket_seconds(budgets.owned, names, _MOST_BUCKETS)
    for one in chosen:
        yield _row(one.name, None, one.budget)
        for each in buckets:
            if each.group == one.name:
                # Its part of the owner's spending: the budget if only this bucket had been throttled.
                part = OwnSeconds(one.seconds.active, each.throttled)
                yield _row(one.name, each.bucket, budget_of(part, one.budget.objective, one.budget.to_s))


def _row(name: str, bucket: BucketName | None, budget: Budget) -> dict[str, Any]:
    burning, spent_at_s = budget.burning, budget.spent_at_s
    return {
        "owner": name,
        **bucket_values(bucket),
        "objective_percent": budget.objective.percent,
        "objective_days": budget.objective.days,
        "active_s": budget.period.active_s,
        "time_throttled_s": budget.period.throttled_s,
        "budget_s": round(budget.budget_s, 3),
        "budget_left_s": round(budget.left_s, 3),
        "budget_left_percent": budget.left_percent,
        **dict(zip(_BURNS, budget.burns.values(), strict=True)),
        "pace": None if burning is None else burning.name,
        "spent_at": None if spent_at_s is None else spent_at_s * 1_000,
    }


def _pages(budget: Budget) -> bool:
    return budget.burning is not None and budget.burning.name in PAGING


def _name(row: Row) -> str:
    return (
        row["owner"] if row["quota_type"] is None else f"  {bucket_text(row)}, {type_text(row['quota_type'])}"
    )


def _seconds(value_s: float) -> str:
    """Seconds as `12.3 s`; what is overspent has its sign."""
    return "0 s" if not value_s else f"{'-' if value_s < 0 else ''}{person_ms(abs(value_s) * 1_000)}"


def _percent(percent: float | None) -> str:
    return f"{percent:,.0f} %" if percent is not None and percent < -200 else person_percent(percent)


def _rate(rate: float) -> str:
    return f"{rate:.1f}" if rate < 100 else f"{rate:,.0f}"


def _spent_at(row: Row) -> str:
    if row["spent_at"] is None:
        return "spent" if row["budget_left_s"] <= 0 else "lasts"
    return clock_time(row["spent_at"], with_day=True)


def _burn_column(name: str, rank: int) -> Shown:
    return Shown(name, lambda row: or_dash(row[f"burn_{name}"], _rate), rank=rank)


def _shown(rows: Sequence[Mapping[str, Any]], title: str) -> tuple[Shown, ...]:
    burns = (_burn_column(name, rank) for name, rank in zip(WINDOWS_S, (5, 6, 2, 4, 3), strict=True))
    return (
        Shown(title, _name, is_text=True, keep=28 if any(row["quota_type"] for row in rows) else 12),
        Shown("objective", lambda row: f"{row['objective_percent']:g} %", rank=8),
        Shown("active", lambda row: _seconds(row["active_s"]), rank=7),
        Shown("throttled", lambda row: _seconds(row["time_throttled_s"]), note="throttled: time throttled"),
        Shown("left", lambda row: _seconds(row["budget_left_s"])),
        Shown("left %", lambda row: _percent(row["budget_left_percent"])),
        *burns,
        Shown("pace", lambda row: row["pace"] or "-", is_text=True, rank=1),
        Shown(
            "spent at", _spent_at, is_text=True, keep=14, rank=9,
            note="spent at: at the pace of the last six hours",
        ),
    )  # fmt: skip


def _footer(chosen: Sequence[OwnedBudget], budgets: Budgets, *, has_owners: bool) -> str:
    if not chosen:
        return ""
    days = sorted({one.budget.objective.days for one in chosen})
    period = " or ".join(f"{number}" for number in days)
    covered = person_span(budgets.to_ms - budgets.covered_from_ms)
    noun = "owner" if has_owners else "user"
    return lines(
        f"{counted(len(chosen), noun)}, the least left first; {period} days to {utc_text(budgets.to_ms)}, "
        f"with {covered} of data",
        "5m to 3d: burn rate of that window; 1 spends the budget in its period",
        "" if has_owners else "no file of owners is set, so each user has a budget",
    )


def _colour(row: Row) -> Colour | None:
    if row["pace"] in PAGING or row["budget_left_s"] < 0:
        return Colour.RED
    return Colour.YELLOW if row["pace"] is not None else None


QUESTION = Question(
    command="budget",
    table=None,
    find=_find,
    options=None,
    declared=_Own,
    period=None,
    colour=_colour,
    has_agreement=False,
)
add_commands = QUESTION.add_to
