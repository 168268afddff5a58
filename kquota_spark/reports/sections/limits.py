"""Which buckets are near the limit: heat maps of the percent of the quota, and rates beside their limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import broker_text, iso_time, person_ms, person_percent
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.reports.gathered.limits import heat_maps, rate_lines
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, Section, Tone, table_of
from kquota_spark.reports.parts.report_section import BUCKET_COLUMNS, CsvFile, ReportSection, names_of
from kquota_spark.reports.scope.audit_report import HeatMap, Line
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.sections.changes import change_text, quota_type_of
from kquota_spark.reports.sections.throttled import throttled_buckets
from kquota_spark.reports.timeline.top_buckets import LIMIT_PERCENT, NEAR_PERCENT

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

BANDS = (50.0, NEAR_PERCENT, LIMIT_PERCENT, 150.0)
"""Percent where the colours of the heat map change; each value belongs to the band below, 50 and 80 to that above."""
_UNCERTAIN_BAND = 5
_MOST_NEAR = 20
"""Maximum rows of those near a limit: the table of all buckets has them all."""
_MOST_LINES = _MOST_HEAT_ROWS = 40


def gather(scope: Scope) -> dict[str, Any]:
    """The heat maps, and rates beside limits, those of the throttled buckets first."""
    throttled = scope.once(throttled_buckets).shown
    return {
        "heat": heat_maps(scope),
        "lines": rate_lines(scope, [one.bucket for one in throttled]),
    }


def band(percent: float) -> int:
    """Index of a heat map's colour: 0 and 1 calm, 2 near (80 to 100), 3 and 4 over."""
    if percent <= LIMIT_PERCENT:
        return sum(percent >= limit for limit in BANDS[:2])
    return 3 if percent <= BANDS[3] else 4


def limits_section(report: AuditReport) -> Section:
    """One heat map per quota type, then the rate of each bucket beside its limit."""
    is_own = report.head.tenant is not None
    near, over = near_and_over(report)
    heats = [heat for heat in report.heat if heat.buckets]
    heats.sort(key=lambda heat: words.in_order(heat.buckets[0].quota_type))
    blocks = [_heat(report, heat) for heat in heats]
    lines = report.lines[:_MOST_LINES]
    return Section(
        anchor="limits",
        short="Near the limit",
        title="How near are you to your limits?" if is_own else "Who is near the limit?",
        lead=_lead(near, over, is_empty=not blocks, is_own=is_own) + _of_shared(report),
        tone=near_tone(near),
        blocks=(*blocks, *_near(report), *([_lines(report, lines)] if lines else [])),
    )


def near_and_over(report: AuditReport) -> tuple[int, int]:
    """How many buckets had their highest second at 80 to 100 % of the quota, and above; also those in no heat map."""
    return sum(heat.near for heat in report.heat), sum(heat.over for heat in report.heat)


def near_tone(near: int) -> Tone:
    """The tone of the section and of its tile. Buckets over the limit are marked as throttled, in their own section."""
    return Tone.NEAR if near else Tone.GOOD


def _lead(near: int, over: int, *, is_empty: bool, is_own: bool) -> str:
    if is_empty:
        return "There is nothing to compare: no traffic met a limit in this period."
    if not near and not over:
        whose = "You never" if is_own else "Nobody"
        return f"{whose} came to 80 % of a limit."
    parts = [
        *([f"{words.counted(over, 'bucket')} went over the limit"] if over else []),
        *([f"{words.counted(near, 'bucket')} came to 80 % or more of it"] if near else []),
    ]
    return f"{' and '.join(parts)}."


def _of_shared(report: AuditReport) -> str:
    """A sentence about shared buckets on a tenant's page: they contain others' numbers, so they are in no heat map."""
    shared = sum(one.shared_with > 0 for one in report.throttled)
    return (
        f" {words.counted(shared, 'bucket that you share was', 'buckets that you share were')} over the limit."
        if shared
        else ""
    )


def _heat(report: AuditReport, heat: HeatMap) -> Block:
    kind = heat.buckets[0].quota_type
    word = words.type_word(kind)
    cells = [
        list(zip(*rows, strict=True))
        for rows in zip(heat.quota_used_percent, heat.uncertain_percent, strict=True)
    ][:_MOST_HEAT_ROWS]
    data = {
        "slots": heat.slots,
        "slot_ms": heat.slot_ms,
        "cell": words.length(heat.slot_ms),
        "labels": [words.bucket_of(bucket, report.head) for bucket in heat.buckets[:_MOST_HEAT_ROWS]],
        "hrefs": [words.bucket_href(bucket) for bucket in heat.buckets[:_MOST_HEAT_ROWS]],
        "percent": [[_shown(*cell) for cell in row] for row in cells],
        "bands": [[_band(*cell) for cell in row] for row in cells],
    }
    columns = (
        Column("bucket"),
        Column("highest", is_number=True),
        Column("when (UTC)", is_short=True),
        *Column.numbers("slots at 80 to 100 %", "slots over 100 %", "slots with traffic"),
    )
    count = len(heat.buckets) + heat.left_out
    label = f"Heat map: highest percent of the {word} quota by bucket and time, broken at 80 and 100 percent"
    return Block(
        f"Percent of the {word} quota",
        f"Highest certain second of each {words.length(heat.slot_ms)}; brokers throttle above 100 %.",
        Chart(f"chart-heat-{kind}", "heat", label, data),
        table_of(f"Highest percent of the {word} quota", columns, _heat_rows(report, heat), count, "buckets"),
    )


def _shown(certain: float | None, uncertain: float | None) -> float | None:
    number = words.finite(uncertain if certain is None else certain)
    return None if number is None else round(number, 2)


def _band(certain: float | None, uncertain: float | None) -> int | None:
    number = words.finite(certain)
    if number is not None:
        return band(number)
    return None if words.finite(uncertain) is None else _UNCERTAIN_BAND


def _heat_rows(report: AuditReport, heat: HeatMap) -> Iterator[tuple[Cell, ...]]:
    for bucket, row in zip(heat.buckets, heat.quota_used_percent, strict=True):
        peak = words.highest(row)
        bands = [band(value) for value in row if value is not None and words.finite(value) is not None]
        yield (
            Cell(words.bucket_of(bucket, report.head), href=words.bucket_href(bucket)),
            words.used_cell(peak),
            Cell("-" if peak is None else words.short_moment(heat.slots[row.index(peak)])),
            words.count_cell(bands.count(2)),
            words.count_cell(sum(number > 2 for number in bands)),
            words.count_cell(len(bands)),
        )


def _near(report: AuditReport) -> Iterator[Block]:
    """Buckets with their highest certain second at 80 to 100 % of the limit, the fullest first."""
    near = [
        (percent, one)
        for one in report.buckets
        if (percent := words.finite(one.peak_quota_used_percent)) is not None
        and NEAR_PERCENT <= percent <= LIMIT_PERCENT
    ]
    if not near:
        return
    columns = (
        *words.BUCKET_COLUMNS,
        *Column.numbers("highest", "headroom", "of a limit on a broker of", "total delay"),
    )
    rows = (
        (
            *words.bucket_cells(one.bucket, report.head),
            words.used_cell(percent),
            Cell(f"{LIMIT_PERCENT - percent:.1f} %"),
            words.rate_cell(one.bucket.quota_type, one.limit_per_s),
            words.throttles_cell(one.throttled_ms),
        )
        for percent, one in sorted(near, key=lambda pair: (-pair[0], pair[1].bucket))[:_MOST_NEAR]
    )
    yield Block(
        "Near the limit",
        "Headroom is what the highest certain second left of the limit of its time.",
        table=table_of("Buckets at 80 to 100 % of their limit", columns, rows, len(near), "buckets"),
        is_table_open=True,
    )


def _lines(report: AuditReport, lines: Sequence[Line]) -> Block:
    data = {"lines": [_points(report, line) for line in lines]}
    columns = (
        *words.BUCKET_COLUMNS,
        *Column.numbers("broker", "highest rate", "limit at the end", "changes of the limit", "total delay"),
    )
    rows = (_line_row(report, line) for line in lines)
    return Block(
        "Rate beside limit",
        "On one broker: limits are each broker's own. Diamonds are edits of the limit, hollow points not certain.",
        Chart("chart-lines", "lines", "Rate of the chosen bucket over time beside its limit", data),
        table_of("Rates beside limits", columns, rows, len(report.lines), "buckets"),
    )


def _points(report: AuditReport, line: Line) -> dict[str, Any]:
    kind, name = line.bucket.quota_type, words.bucket_of(line.bucket, report.head)
    rates, limits = (
        [words.finite(value) for value in values] for values in (line.rate_per_s, line.limit_per_s)
    )
    return {
        "label": f"{name}, {words.type_word(kind)}, broker {broker_text(line.broker_id)}",
        "suffix": "B/s" if kind in BANDWIDTH else " %" if kind == QuotaType.REQUEST else "/s",
        "is_bytes": kind in BANDWIDTH,
        "slot_ms": line.slot_ms,
        "slots": line.slots,
        "rate": rates,
        "limit": limits,
        "throttled": [person_ms(value) if value else "" for value in line.throttled_ms],
        "certain": line.is_certain,
        "edits": [
            {
                "at_ms": change.at_ms,
                "y": words.finite(change.after or change.before),
                "text": change_text(change),
            }
            for change in report.changes
            if change.entity in line.rules and quota_type_of(change.key) == kind
        ],
        "used": [
            person_percent(100 * rate / limit) if rate is not None and limit else ""
            for rate, limit in zip(rates, limits, strict=True)
        ],
    }


def _line_row(report: AuditReport, line: Line) -> tuple[Cell, ...]:
    limits = [value for value in line.limit_per_s if words.finite(value) is not None]
    changes = sum(before != after for before, after in pairwise(limits))
    return (
        *words.bucket_cells(line.bucket, report.head),
        Cell(broker_text(line.broker_id)),
        words.rate_cell(line.bucket.quota_type, words.highest(line.rate_per_s), "-"),
        words.rate_cell(line.bucket.quota_type, limits[-1] if limits else None),
        words.count_cell(changes),
        words.throttles_cell(sum(line.throttled_ms)),
    )


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each bucket and slot of a heat map, and one for each slot of a line."""
    return {
        "quota_used.csv": CsvFile(
            (*BUCKET_COLUMNS, "slot", "slot_ms", "quota_used_percent", "is_certain"), _used_rows(report.heat)
        ),
        "rates.csv": CsvFile(
            (*BUCKET_COLUMNS, "broker_id", "slot", "slot_ms", "rate_per_s", "limit_per_s", "throttled_ms"),
            _rate_rows(report.lines),
        ),
    }


def _used_rows(heats: Iterable[HeatMap]) -> Iterator[tuple[Any, ...]]:
    for heat in heats:
        for bucket, *rows in zip(heat.buckets, heat.quota_used_percent, heat.uncertain_percent, strict=True):
            for slot, certain, uncertain in zip(heat.slots, *rows, strict=True):
                percent = uncertain if certain is None else certain
                if percent is not None:
                    yield (*names_of(bucket), iso_time(slot), heat.slot_ms, percent, certain is not None)


def _rate_rows(lines: Iterable[Line]) -> Iterator[tuple[Any, ...]]:
    for line in lines:
        of_slots = zip(line.slots, line.rate_per_s, line.limit_per_s, line.throttled_ms, strict=True)
        for slot, *figures in of_slots:
            yield (*names_of(line.bucket), line.broker_id, iso_time(slot), line.slot_ms, *figures)


SECTION = ReportSection(gather, limits_section, files)
