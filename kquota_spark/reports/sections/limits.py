"""Which buckets are near their limits: heat maps of the percent of the quota, and rates beside their limits.

Seconds with uncertain verdicts are no peaks, unless a broker throttled in them: then they were above the limit. The
others are shown as uncertain where a slot has no other seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import counted, iso_time
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, Section, Tone, table_of
from kquota_spark.reports.parts.report_section import BUCKET_COLUMNS, CsvFile, ReportSection, names_of
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.sections.rates import rate_blocks, rate_lines, rates_file
from kquota_spark.reports.sections.throttled import throttled_buckets
from kquota_spark.reports.timeline.top_buckets import LIMIT_PERCENT, NEAR_PERCENT

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_HOTTEST = f"""
with of_buckets as (
  select {BUCKET}, max(certain_used_percent) filter (not isnan(certain_used_percent)) as hottest,
         max(quota_used_percent) filter (not isnan(quota_used_percent)) as hottest_of_all,
         sum(quota_used_percent) as warmth, sum(throttled_rows) as throttled_rows
  from slots group by all having hottest_of_all is not null
), ranked as (
  select *, row_number() over (partition by quota_type
                               order by hottest desc nulls last, hottest_of_all desc, warmth desc, {BUCKET}) as place,
         count(*) over of_type as found,
         count(*) filter (hottest between {NEAR_PERCENT} and {LIMIT_PERCENT}) over of_type as near,
         count(*) filter (hottest > {LIMIT_PERCENT}) over of_type as over_limit,
         count(*) filter (hottest >= {NEAR_PERCENT} and throttled_rows = 0) over of_type as near_unthrottled
  from of_buckets window of_type as (partition by quota_type)
)
select {BUCKET}, place, found, near, over_limit, near_unthrottled,
       list({{'slot_ms': slot_ms, 'percent': percent, 'of_all': of_all}}) as percents
from (
  select {BUCKET}, slot_ms, max(certain_used_percent) as percent, max(quota_used_percent) as of_all
  from slots where quota_used_percent is not null group by all
) join ranked using ({BUCKET})
where place <= ? group by all order by quota_type, place
"""  # noqa: S608 - names of ours
BANDS = (50.0, NEAR_PERCENT, LIMIT_PERCENT, 150.0)
"""Percent where the colours of the heat map change; each value belongs to the band below, 50 and 80 to that above."""
_UNCERTAIN_BAND = 5
_MOST_NEAR = 20
"""Maximum rows of those near a limit: the table of all buckets has them all."""
_MOST_HEAT_ROWS = 40

_Percents = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Highest percent of the quota, by bucket and slot of time; colours change at 80 and 100."""

    slot_ms: int
    slots: tuple[int, ...]
    buckets: tuple[BucketName, ...]
    quota_used_percent: tuple[tuple[float | None, ...], ...]
    """One row per bucket, one value per slot: from seconds that are certain or that a broker throttled, else None."""
    uncertain_percent: tuple[tuple[float | None, ...], ...]
    """The same for slots without a certain second."""
    left_out: int
    near: int
    """Buckets with their highest certain second at 80 to 100 % of the quota, including those left out."""
    over: int
    """Buckets with their highest certain second above 100 %, including those left out."""
    near_unthrottled: int
    """Buckets at 80 % and more that were never throttled."""


def gather(scope: Scope) -> dict[str, Any]:
    """The heat maps, and rates beside limits, those of the throttled buckets first."""
    throttled = scope.once(throttled_buckets).shown
    return {"heat": _heat_maps(scope), "lines": rate_lines(scope, [one.bucket for one in throttled])}


def _heat_maps(scope: Scope) -> tuple[HeatMap, ...]:
    """One heat map per quota type that limits anybody, the hottest buckets first."""
    slots = scope.slots
    rows_of: dict[str, list[tuple[BucketName, _Percents, _Percents]]] = {}
    counts_of: dict[str, dict[str, Any]] = {}
    for row in scope.rows(_HOTTEST, scope.heat_rows):
        bucket = bucket_of(row)
        certain = {cell["slot_ms"]: cell["percent"] for cell in row["percents"]}
        uncertain = {cell["slot_ms"]: cell["of_all"] for cell in row["percents"] if cell["percent"] is None}
        found = bucket, tuple(map(certain.get, slots)), tuple(map(uncertain.get, slots))
        rows_of.setdefault(bucket.quota_type, []).append(found)
        counts_of[bucket.quota_type] = row
    return tuple(
        HeatMap(
            slot_ms=scope.slot_ms,
            slots=slots,
            buckets=tuple(bucket for bucket, _, _ in rows),
            quota_used_percent=tuple(certain for _, certain, _ in rows),
            uncertain_percent=tuple(uncertain for _, _, uncertain in rows),
            left_out=counts_of[quota_type]["found"] - len(rows),
            near=counts_of[quota_type]["near"],
            over=counts_of[quota_type]["over_limit"],
            near_unthrottled=counts_of[quota_type]["near_unthrottled"],
        )
        for quota_type, rows in rows_of.items()
    )


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
    return Section(
        anchor="limits",
        short="Near the limit",
        title="How near are you to your limits?" if is_own else "Who is near the limit?",
        lead=_lead(near, over, is_empty=not blocks, is_own=is_own) + _of_shared(report),
        tone=near_tone(near),
        blocks=(*blocks, *_near(report), *rate_blocks(report)),
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
        who = "You never" if is_own else "Nobody"
        return f"{who} came to 80 % of a limit."
    parts = [
        *([f"{counted(over, 'bucket')} went over the limit"] if over else []),
        *([f"{counted(near, 'bucket')} came to 80 % or more of it"] if near else []),
    ]
    return f"{' and '.join(parts)}."


def _of_shared(report: AuditReport) -> str:
    """A sentence about shared buckets on a tenant's page: they contain others' numbers, so they are in no heat map."""
    shared = sum(one.shared_with > 0 for one in report.throttled)
    return (
        f" {counted(shared, 'bucket that you share was', 'buckets that you share were')} over the limit."
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
            words.throttles_cell(one.delay_ms),
        )
        for percent, one in sorted(near, key=lambda pair: (-pair[0], pair[1].bucket))[:_MOST_NEAR]
    )
    yield Block(
        "Near the limit",
        "Headroom is what the highest certain second left of the limit of its time.",
        table=table_of("Buckets at 80 to 100 % of their limit", columns, rows, len(near), "buckets"),
        is_table_open=True,
    )


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each bucket and slot of a heat map, and one for each slot of a line."""
    columns = (*BUCKET_COLUMNS, "slot", "slot_ms", "quota_used_percent", "is_certain")
    return {"quota_used.csv": CsvFile(columns, _used_rows(report)), "rates.csv": rates_file(report)}


def _used_rows(report: AuditReport) -> Iterator[tuple[Any, ...]]:
    for heat in report.heat:
        for bucket, *rows in zip(heat.buckets, heat.quota_used_percent, heat.uncertain_percent, strict=True):
            for slot, certain, uncertain in zip(heat.slots, *rows, strict=True):
                percent = uncertain if certain is None else certain
                if percent is not None:
                    yield (*names_of(bucket), iso_time(slot), heat.slot_ms, percent, certain is not None)


SECTION = ReportSection(gather, limits_section, files)
