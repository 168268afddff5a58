"""Which limits are furthest from the right size of their buckets? The limit, the demand and the target of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import counted, rate_text
from kquota_spark.model.rightsize.demand import WINDOW_MS
from kquota_spark.model.rightsize.target import TARGET_PERCENT
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, Section, Tone, table_of
from kquota_spark.reports.parts.report_section import CsvFile, ReportSection, file_of
from kquota_spark.reports.right_sizes.period_sizes import MOST_THROTTLED, MOST_UNUSED, period_sizes
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import BucketName, Head
from kquota_spark.rightsize.rows import SizeRow, row_of
from kquota_spark.rightsize.sentences import NEAR_TITLE, TOO_HIGH, TOO_LOW, days_text, demand_text

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

MOST_BARS = 20
_LEAST_PERCENT = 0.1
"""The begin of the picture, percent of the limit: below it a demand is too small to compare."""
_COLUMNS = (
    *words.BUCKET_COLUMNS,
    *Column.numbers("limit on a broker", "demand", "target", NEAR_TITLE, "history"),
    Column("reason"),
)
_TOO_SLOW = "They are left out: reading four weeks takes too long for this page. kquota rightsize shows them."


def gather(scope: Scope) -> dict[str, Any]:
    """The right sizes of the chosen buckets with a limit, the furthest from its target first; none for a tenant."""
    if scope.tenant is not None:
        return {}
    found = scope.once(period_sizes)
    rows = [row_of(one, found.to_ms) for one in found.sized.found.values()]
    limited = [row for row in rows if row.limit_per_s and row.target_per_s]
    return {
        "right_sizes": sorted(limited, key=lambda row: (-_distance(row), _bucket(row))),
        "right_sizes_chosen": found.of_buckets,
        "are_right_sizes_slow": found.sized.is_slow,
    }


def _distance(row: SizeRow) -> float:
    """How far the limit is from the target, up or down: the logarithm of their ratio."""
    assert row.limit_per_s is not None and row.target_per_s is not None
    return abs(math.log(row.limit_per_s / row.target_per_s))


def _bucket(row: SizeRow) -> BucketName:
    return BucketName(row.quota_type, row.bucket_user, row.bucket_client_id)


def is_shown(report: AuditReport) -> bool:
    """Whether there are right sizes: the tables hold two weeks or more."""
    return bool(report.right_sizes) or report.are_right_sizes_slow


def sizes_section(report: AuditReport) -> Section:
    """The limits that are furthest from their targets, as picture and table."""
    title = "Which limits do not fit?"
    if report.are_right_sizes_slow:
        return Section(anchor="sizes", short="Right sizes", title=title, lead=_TOO_SLOW)
    return Section(
        anchor="sizes",
        short="Right sizes",
        title=title,
        lead=_lead(report.right_sizes, report.head),
        tone=Tone.NEAR if _count(report.right_sizes, TOO_LOW) else Tone.GOOD,
        blocks=(_block(report),),
    )


def _count(rows: Sequence[SizeRow], reason: str) -> int:
    return sum(row.reason.startswith(reason) for row in rows)


def _lead(rows: Sequence[SizeRow], head: Head) -> str:
    low, high = _count(rows, TOO_LOW), _count(rows, TOO_HIGH)
    counts = (
        f"{counted(low, 'limit is', 'limits are')} too low and {high:,} too high, of {len(rows):,} sized."
    )
    worst = rows[0]
    limit, target = (rate_text(worst.quota_type, rate) for rate in (worst.limit_per_s, worst.target_per_s))
    name = words.bucket_of(_bucket(worst), head)
    return f"{counts} The furthest from its target is {name}: {limit}, and its target is {target}."


def _block(report: AuditReport) -> Block:
    rows, head = report.right_sizes, report.head
    shown = rows[:MOST_BARS]
    data = {
        "labels": [words.bucket_of(_bucket(row), head) for row in shown],
        "lower": [_percent(row, row.demand_per_s if row.is_at_least else row.lower_per_s) for row in shown],
        "upper": [_percent(row, row.upper_per_s) for row in shown],
        "target": [_percent(row, row.target_per_s) for row in shown],
        "texts": [_change(row) for row in shown],
        "hover": [f"{words.type_word(row.quota_type)}: demand {demand_text(row)}, {row.reason}" for row in shown],
        "hrefs": [words.bucket_href(_bucket(row)) for row in shown],
    }  # fmt: skip
    label = f"Demand and target in percent of the limit, {counted(len(shown), 'bucket')}"
    note = (
        f"Demand is the rate that {TARGET_PERCENT:g} % of windows of {WINDOW_MS // 1_000} seconds do not exceed, with "
        "bounds, in up to four weeks before the end of this page. The bar has these bounds, and the diamond is the "
        f"target. The line is the limit. Up to {MOST_THROTTLED} buckets that were throttled most in this period and "
        f"{MOST_UNUSED} that used least of their limit are sized. kquota rightsize sizes all."
    )
    cells = (_cells(row, head) for row in rows)
    table = table_of("Right sizes, the furthest from its target first", _COLUMNS, cells, len(rows), "buckets")
    return Block(
        "Demand, limit and target",
        note,
        Chart("chart-sizes", "sizes", label, data),
        table,
        is_table_open=True,
    )


def _percent(row: SizeRow, rate: float | None) -> float | None:
    """A rate in percent of the limit."""
    assert row.limit_per_s is not None
    return None if rate is None else round(max(100 * rate / row.limit_per_s, _LEAST_PERCENT), 3)


def _change(row: SizeRow) -> str:
    limit, target = (rate_text(row.quota_type, rate) for rate in (row.limit_per_s, row.target_per_s))
    return f"{limit} → {target}"


def _cells(row: SizeRow, head: Head) -> tuple[Cell, ...]:
    tone = Tone.NEAR if row.reason.startswith(TOO_LOW) else Tone.PLAIN
    assert row.limit_per_s is not None and row.target_per_s is not None
    return (
        *words.bucket_cells(_bucket(row), head),
        words.rate_cell(row.quota_type, row.limit_per_s),
        Cell(demand_text(row)),
        words.rate_cell(row.quota_type, row.target_per_s),
        Cell(days_text(row.forecast)),
        Cell(f"{row.history_days:.0f} days"),
        Cell(row.reason, tone=tone),
    )


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each sized bucket, with the columns of `kquota rightsize`."""
    return {"right_sizes.csv": file_of(tuple(each.name for each in fields(SizeRow)), report.right_sizes)}


SECTION = ReportSection(gather, sizes_section, files, is_shown)
