"""Which clients were throttled, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import broker_text, person_ms
from kquota_spark.reports.gathered.throttled import throttle_spreads, throttled_buckets
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, Section, table_of
from kquota_spark.reports.parts.report_section import (
    BUCKET_COLUMNS,
    CsvFile,
    ReportSection,
    names_of,
    values_of,
)
from kquota_spark.reports.scope.audit_report import OBJECTIVE_PERCENT, ThrottledBucket
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.sections.changes import quota_type_of

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_MOST_BARS = 20
_MOST_PANELS = 9
_MOST_PERCENT = 300.0
"""Maximum percent of the limit on a panel's axis. Higher values leave the panel: one burst would flatten all others."""
_COLUMNS = (
    *words.BUCKET_COLUMNS,
    *Column.numbers("time throttled", "throttled requests", "total delay", "episodes"),
    *Column.numbers("peak of quota", "limit on a broker", "worst broker"),
    Column("clients inside"),
)
_OF_FILE = (
    "limit_per_s", "throttled_ms", "throttled_requests", "throttled_seconds", "time_in_throttle_percent",
    "worst_broker_id", "episodes", "peak_quota_used_percent",
)  # fmt: skip
_PERCENTS = (50, 95, 100)


def gather(scope: Scope) -> dict[str, Any]:
    """The first throttled buckets, how many more there are, and the throttle times of single requests."""
    shown, left_out, left_out_ms = scope.once(throttled_buckets)
    return {
        "throttled": shown,
        "throttled_left_out": left_out,
        "throttled_left_out_ms": left_out_ms,
        "throttle_spreads": throttle_spreads(scope),
    }


def throttled_section(report: AuditReport) -> Section:
    """Bars of total delay, the most first, and their table."""
    is_own = report.head.tenant is not None
    ordered = words.most_delayed(report.throttled)
    return Section(
        anchor="throttled",
        short="Throttled",
        title="How long were you throttled?" if is_own else "Who was throttled?",
        lead=_lead(report, ordered),
        tone=words.throttled_tone(ordered),
        reasons=tuple(map(words.sentence, report.notes)) if is_own else (),
        blocks=(_bars(report, ordered), *_worst(report), *_spreads(report)) if ordered else (),
    )


def _lead(report: AuditReport, ordered: list[ThrottledBucket]) -> str:
    head = report.head
    if not ordered:
        who = "You were not throttled" if head.tenant is not None else "Nobody was throttled"
        return f"{who}: no request of this period waited for a quota."
    worst = ordered[0]
    kind = words.type_word(worst.bucket.quota_type)
    share = f"{words.throttled_time(worst)} {words.of_the_stretch(head)} ({kind})"
    delay = f"{person_ms(worst.throttled_ms)} of delay, " if worst.throttled_ms else ""
    most = f"{words.bucket_of(worst.bucket, head)} most, {delay}{share}"
    count = len(ordered) + report.throttled_left_out
    if head.tenant is not None:
        if count == 1:
            return f"You were throttled: {delay}{share}."
        return f"You were throttled in {count:,} buckets; {most}."
    return f"{words.counted(count, 'bucket was', 'buckets were')} throttled; {most}."


def _bars(report: AuditReport, ordered: list[ThrottledBucket]) -> Block:
    shown = ordered[:_MOST_BARS]
    # JMX has no sums: if it is the only source, the bars are shares of samples.
    has_delay = any(one.throttled_ms for one in shown)
    data = {
        "labels": _labels(report, shown),
        "values": [
            one.throttled_ms / 1_000 if has_delay else round(one.time_in_throttle_percent, 4) for one in shown
        ],
        "suffix": " s" if has_delay else " %",
        "texts": [
            f"{person_ms(one.throttled_ms)} · {words.throttled_time(one)}"
            if one.throttled_ms
            else words.throttled_time(one)
            for one in shown
        ],
        "is_over": [one.time_in_throttle_percent > OBJECTIVE_PERCENT for one in shown],
        "hrefs": [words.bucket_href(one.bucket) for one in shown],
        "hover": [", ".join(_hover(one)) for one in shown],
    }
    what = "Total delay" if has_delay else "Time throttled"
    label = f"{what}, {words.counted(len(shown), 'bucket')}, most first"
    rows = (_row(report, one) for one in ordered)
    return Block(
        what,
        "Total delay is the sum of all throttle times. Time throttled is the seconds in which a throttle began or "
        "still ran on any broker, as share of the period.",
        Chart("chart-throttled", "bars", label, data),
        table_of(
            "Buckets that were throttled", _COLUMNS, rows, len(ordered) + report.throttled_left_out, "buckets"
        ),
        is_table_open=True,
    )


def _hover(one: ThrottledBucket) -> Iterator[str]:
    share = words.throttled_time(one)
    yield f"{words.type_word(one.bucket.quota_type)}: {share} of the time"
    if one.throttled_requests is not None:
        yield words.counted(one.throttled_requests, "throttled request")
    if one.throttled_ms:
        yield f"total delay {person_ms(one.throttled_ms)}"


def _worst(report: AuditReport) -> Iterator[Block]:
    """The buckets with the most total delay side by side; nothing for one bucket, which has a chart of its rate."""
    throttled = (one for one in report.lines if sum(one.throttled_ms))
    lines = sorted(throttled, key=lambda one: -sum(one.throttled_ms))[:_MOST_PANELS]
    if len(lines) < 2:
        return
    percent = [
        [_percent(*pair) for pair in zip(one.rate_per_s, one.limit_per_s, strict=True)] for one in lines
    ]
    panels = [
        {
            "label": f"{words.bucket_of(one.bucket, report.head)}, {words.type_word(one.bucket.quota_type)}",
            "percent": of_line,
            "throttled": [person_ms(value) if value else "" for value in one.throttled_ms],
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
    label = f"Rate as percent of the limit over time, {words.counted(len(lines), 'bucket')}, most total delay first"
    columns = (*words.BUCKET_COLUMNS, *Column.numbers("total delay", "peak of limit"))
    rows = (
        (
            *words.bucket_cells(one.bucket, report.head),
            words.throttles_cell(sum(one.throttled_ms)),
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


def _spreads(report: AuditReport) -> Iterator[Block]:
    """The throttle times of single requests, as steps that rise from 0 to 100 % of the requests."""
    spreads = report.throttle_spreads
    if not spreads:
        return
    is_own = report.head.tenant is not None
    names = ["you" if is_own else one.user or "(no user)" for one in spreads]
    data = {"labels": names, "percentiles": [one.percentiles_ms for one in spreads]}
    columns = (
        Column("user"),
        *Column.numbers("throttled requests", "half up to", "95 % up to", "longest", "total delay"),
    )
    rows = (
        (
            Cell(name),
            words.count_cell(one.requests),
            *(words.throttles_cell(one.percentiles_ms[percent]) for percent in _PERCENTS),
            words.throttles_cell(one.throttled_ms),
        )
        for name, one in zip(names, spreads, strict=True)
    )
    who = "your requests" if is_own else "requests by user"
    users = words.counted(len(names), "user")
    label = f"Share of throttled {who} up to a throttle of that length, by brokers, from {users}"
    yield Block(
        "How long a throttle was",
        "Share of the throttled requests with a throttle of at most so long. Dots: half, 95 % and the longest.",
        Chart("chart-lengths", "lengths", label, data),
        table_of("Throttles of single requests", columns, rows, len(spreads), "users"),
    )


def _percent(rate: float | None, limit: float | None) -> float | None:
    known = words.finite(rate), words.finite(limit)
    return None if known[0] is None or not known[1] else round(100.0 * known[0] / known[1], 2)


def _labels(report: AuditReport, shown: list[ThrottledBucket]) -> list[str]:
    """The names of the buckets, with the quota type where two buckets have the same name."""
    names = [_name(report, one) for one in shown]
    return [
        name if names.count(name) == 1 else f"{name}, {words.type_word(one.bucket.quota_type)}"
        for name, one in zip(names, shown, strict=True)
    ]


def _row(report: AuditReport, one: ThrottledBucket) -> tuple[Cell, ...]:
    percent = one.time_in_throttle_percent
    return (
        Cell(_name(report, one), href=words.bucket_href(one.bucket)),
        Cell(words.type_word(one.bucket.quota_type)),
        Cell(words.throttled_time(one), f"{one.throttled_seconds:,} s, {percent:.4f} %", bar_percent=percent),
        Cell("-") if one.throttled_requests is None else words.count_cell(one.throttled_requests),
        words.throttles_cell(one.throttled_ms),
        Cell("-") if one.shared_with else words.count_cell(one.episodes),
        words.used_cell(one.peak_quota_used_percent),
        words.rate_cell(one.bucket.quota_type, one.limit_per_s, "-"),
        Cell(broker_text(one.worst_broker_id)),
        Cell(", ".join(one.clients)),
    )


def _name(report: AuditReport, one: ThrottledBucket) -> str:
    shared = f" (shared with {words.counted(one.shared_with, 'other')})" if one.shared_with else ""
    return f"{words.bucket_of(one.bucket, report.head)}{shared}"


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each throttled bucket, and one for each user with the percentiles of its throttle times."""
    return {
        "throttled.csv": CsvFile(
            (*BUCKET_COLUMNS, *_OF_FILE, "clients"),
            (
                (*names_of(one.bucket), *values_of(one, _OF_FILE), ", ".join(one.clients))
                for one in report.throttled
            ),
        ),
        "throttles.csv": CsvFile(
            ("user", "requests", "throttled_ms", *(f"p{percent}_ms" for percent in _PERCENTS)),
            (
                (one.user, one.requests, one.throttled_ms, *(one.percentiles_ms[each] for each in _PERCENTS))
                for one in report.throttle_spreads
            ),
        ),
    }


SECTION = ReportSection(gather, throttled_section, files)
