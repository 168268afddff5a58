"""Rates beside limits over time, drawn in the sections on limits and on throttled buckets.

A line shows a bucket on its worst broker: first the throttled buckets, then the hottest. Its limit is that of the last
second of each slot. In a slot without requests, it is the value of the last rule at the end of the slot, from the
history of the quotas: when a quota is lowered, its bucket is muted first, and therefore silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import broker_text, counted, iso_time, person_ms, person_percent
from kquota_spark.model.quotas.quota_types import BANDWIDTH, CONNECTION, IP_QUOTA_KEY, QuotaType
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, table_of
from kquota_spark.reports.parts.report_section import BUCKET_COLUMNS, CsvFile, names_of
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.sections.changes import change_text, quota_type_of

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_WORST = f"""
with worst as (
  select {BUCKET}, arg_max(broker_id, (delay_ms, throttled_rows, coalesce(quota_used_percent, 0), -broker_id))
           as broker_id,
         sum(delay_ms) as delay_ms, sum(throttled_rows) as throttled_rows, max(quota_used_percent) as hottest
  from places where least_limit_per_s is not null group by all
), shown as (
  select *, row_number() over (
    order by coalesce(list_position(?, {{'quota_type': quota_type, 'user': bucket_user,
                                         'client_id': bucket_client_id, 'tags': bucket_tags}}), 1000000),
             hottest desc nulls last, {BUCKET}) as place
  from worst qualify place <= ?
)
select {BUCKET}, broker_id, place,
       list({{'slot_ms': slot_ms, 'rate': peak_rate_per_s, 'is_certain': is_peak_certain,
             'limit': limit_per_s, 'rule': rule,
             'delay_ms': slots.delay_ms}}) as cells
from shown join slots using ({BUCKET}, broker_id) where seconds > 0 group by all order by place
"""  # noqa: S608 - names of ours
_KEYS = {each.value: each.key.value for each in QuotaType} | {CONNECTION: IP_QUOTA_KEY}
_HELD = f"""
select entity, epoch_ms(valid_from) as from_ms, {", ".join(_KEYS.values())} from rules
where cluster_id = ? and list_contains(?::varchar[], entity) order by entity, valid_from
"""  # noqa: S608 - names of ours
_MOST_LINES = 40
_MOST_PANELS = 9
_MOST_PERCENT = 300.0
"""Maximum percent of the limit on a panel's axis. Higher values leave the panel: one burst would flatten all others."""


@dataclass(frozen=True, slots=True)
class Line:
    """One bucket's rate beside its limit over time, on one broker: each broker applies the limit by itself."""

    bucket: BucketName
    broker_id: int
    slot_ms: int
    slots: tuple[int, ...]
    rate_per_s: tuple[float | None, ...]
    """Highest rate of each slot."""
    is_certain: tuple[bool, ...]
    """Whether the second of that rate is certain; True without traffic."""
    limit_per_s: tuple[float | None, ...]
    delay_ms: tuple[int, ...]
    rules: tuple[str, ...] = ()
    """Entities that set its limit in the period."""


def rate_lines(scope: Scope, first: Iterable[BucketName]) -> list[Line]:
    """Lines of at most `top` limited buckets, beginning with the given ones in their order."""
    rows = scope.rows(_WORST, [asdict(bucket) for bucket in first], scope.top)
    rules = {cell["rule"] for row in rows for cell in row["cells"] if cell["rule"] is not None}
    held: dict[str, list[dict[str, Any]]] = {}
    for period in scope.tables.query(_HELD, [scope.cluster_id, sorted(rules)]).dicts():
        held.setdefault(period["entity"], []).append(period)
    return [_line(scope, row, held) for row in rows]


def _line(scope: Scope, row: dict[str, Any], held: Mapping[str, Sequence[Mapping[str, Any]]]) -> Line:
    slots = scope.slots
    cells = {cell["slot_ms"]: cell for cell in row["cells"]}
    limits: list[float | None] = []
    periods: Sequence[Mapping[str, Any]] = ()
    for slot in slots:
        if slot in cells:
            limits.append(cells[slot]["limit"])
            periods = held.get(cells[slot]["rule"], ())
        else:
            begun = [each for each in periods if (each["from_ms"] or 0) < slot + scope.slot_ms]
            of_rule = begun[-1][_KEYS[row["quota_type"]]] if begun else None
            silent = limits[-1] if limits else None
            # Without a value the rule no longer holds. The next request shows which other rule does.
            limits.append(silent if of_rule is None else of_rule)
    return Line(
        bucket=bucket_of(row),
        broker_id=row["broker_id"],
        slot_ms=scope.slot_ms,
        slots=slots,
        rate_per_s=tuple(cells[slot]["rate"] if slot in cells else None for slot in slots),
        is_certain=tuple(slot not in cells or cells[slot]["is_certain"] for slot in slots),
        limit_per_s=tuple(limits),
        delay_ms=tuple(cells[slot]["delay_ms"] if slot in cells else 0 for slot in slots),
        rules=tuple(sorted({cell["rule"] for cell in row["cells"] if cell["rule"] is not None})),
    )


def rate_blocks(report: AuditReport) -> Iterator[Block]:
    """The rate of a chosen bucket beside its limit; nothing without lines."""
    lines = report.lines[:_MOST_LINES]
    if not lines:
        return
    data = {"lines": [_points(report, line) for line in lines]}
    columns = (
        *words.BUCKET_COLUMNS,
        *Column.numbers("broker", "highest rate", "limit at the end", "changes of the limit", "total delay"),
    )
    rows = (_line_row(report, line) for line in lines)
    yield Block(
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
        "throttled": [person_ms(value) if value else "" for value in line.delay_ms],
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
        words.throttles_cell(sum(line.delay_ms)),
    )


def side_by_side(report: AuditReport) -> Iterator[Block]:
    """The buckets with the most total delay side by side; nothing for one bucket, which has a chart of its rate."""
    throttled = (one for one in report.lines if sum(one.delay_ms))
    lines = sorted(throttled, key=lambda one: -sum(one.delay_ms))[:_MOST_PANELS]
    if len(lines) < 2:
        return
    percent = [
        [_percent(*pair) for pair in zip(one.rate_per_s, one.limit_per_s, strict=True)] for one in lines
    ]
    panels = [
        {
            "label": f"{words.bucket_of(one.bucket, report.head)}, {words.type_word(one.bucket.quota_type)}",
            "percent": of_line,
            "throttled": [person_ms(value) if value else "" for value in one.delay_ms],
            "edits": [
                change.at_ms
                for change in report.changes
                if change.entity in one.rules and quota_type_of(change.key) == one.bucket.quota_type
            ],
        }
        for one, of_line in zip(lines, percent, strict=True)
    ]
    peaks = [[value for value in of_line if value is not None] for of_line in percent]
    most = min(_MOST_PERCENT, 1.1 * max((max(values) for values in peaks if values), default=100.0))
    data = {"slots": lines[0].slots, "slot_ms": lines[0].slot_ms, "most": max(most, 110.0), "panels": panels}
    label = f"Rate as percent of the limit over time, {counted(len(lines), 'bucket')}, most total delay first"
    columns = (*words.BUCKET_COLUMNS, *Column.numbers("total delay", "peak of limit"))
    rows = (
        (
            *words.bucket_cells(one.bucket, report.head),
            words.throttles_cell(sum(one.delay_ms)),
            words.used_cell(max(values, default=None)),
        )
        for one, values in zip(lines, peaks, strict=True)
    )
    yield Block(
        "The worst side by side",
        "Percent of the own limit on the worst broker, on the same axes. Dotted lines are edits of the limit.",
        Chart("chart-worst", "multiples", label, data),
        table_of("The worst buckets", columns, rows, len(lines), "buckets"),
    )


def _percent(rate: float | None, limit: float | None) -> float | None:
    known = words.finite(rate), words.finite(limit)
    return None if known[0] is None or not known[1] else round(100.0 * known[0] / known[1], 2)


def rates_file(report: AuditReport) -> CsvFile:
    """One row for each slot of a line."""
    columns = (*BUCKET_COLUMNS, "broker_id", "slot", "slot_ms", "rate_per_s", "limit_per_s", "delay_ms")
    return CsvFile(columns, _file_rows(report))


def _file_rows(report: AuditReport) -> Iterator[tuple[Any, ...]]:
    for line in report.lines:
        of_slots = zip(line.slots, line.rate_per_s, line.limit_per_s, line.delay_ms, strict=True)
        for slot, *figures in of_slots:
            yield (*names_of(line.bucket), line.broker_id, iso_time(slot), line.slot_ms, *figures)
