"""All buckets of the period: a table of the first ones, and an index of all for a search in the browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import broker_text, counted
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Column, Section, table_of
from kquota_spark.reports.parts.report_section import (
    BUCKET_COLUMNS,
    CsvFile,
    ReportSection,
    names_of,
    values_of,
)
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.timeline.top_buckets import LIMIT_PERCENT

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

# The name of a bucket of a user and a client id is that of its client.
_BUCKETS = f"""
with inside as (
  select {BUCKET}, list_sort(list_distinct(flatten(list(users)))) as users,
         list_sort(list_distinct(flatten(list(client_ids)))) as client_ids
  from (
    select distinct {BUCKET}, users, client_ids from judged where bucket_user = '' or bucket_client_id = ''
  ) group by all
), figures as (
  select {BUCKET}, list_sort(list(distinct broker_id)) as brokers,
         arg_max(limit_per_s, last_ms) as limit_per_s, max(certain_used_percent) as peak_quota_used_percent,
         sum(delay_ms)::bigint as delay_ms, sum(throttled_requests)::bigint as throttled_requests
  from places group by all
)
select figures.*, inside.users, inside.client_ids from figures left join inside using ({BUCKET})
where limit_per_s is not null or delay_ms > 0
order by delay_ms desc, peak_quota_used_percent desc nulls last, {BUCKET}
"""  # noqa: S608 - names of ours
_FIGURES = ("limit_per_s", "peak_quota_used_percent", "delay_ms", "throttled_requests")
_COLUMNS = (
    *words.BUCKET_COLUMNS,
    *Column.numbers("total delay", "throttled requests", "peak of quota", "headroom", "limit on a broker"),
    Column("brokers", is_short=True),
)


@dataclass(frozen=True, slots=True)
class PeriodBucket:
    """One bucket with a limit, over the whole period and all brokers."""

    bucket: BucketName
    brokers: tuple[int, ...]
    limit_per_s: float | None
    """The last limit in force, on one broker."""
    peak_quota_used_percent: float | None
    """The highest second that is certain or that a broker throttled, in percent of its limit; None without one."""
    delay_ms: int
    """Total delay, by brokers where they logged it; from JMX 0."""
    throttled_requests: int | None
    """None from JMX."""
    users: tuple[str, ...] = ()
    """Users inside a bucket that names none."""
    client_ids: tuple[str, ...] = ()
    """Client ids inside a bucket that names none."""


def gather(scope: Scope) -> dict[str, Any]:
    """The buckets with a limit, most total delay first, then the nearest to the limit.

    A tenant's page has no bucket that the tenant shares with others.
    """
    return {"buckets": tuple(map(_bucket, scope.rows(_BUCKETS)))}


def _bucket(row: Mapping[str, Any]) -> PeriodBucket:
    return PeriodBucket(
        bucket=bucket_of(row),
        brokers=tuple(row["brokers"]),
        users=() if row["bucket_user"] else tuple(row["users"] or ()),
        client_ids=() if row["bucket_client_id"] else tuple(row["client_ids"] or ()),
        **{name: row[name] for name in _FIGURES},
    )


def is_shown(report: AuditReport) -> bool:
    """Whether any bucket had a limit."""
    return bool(report.buckets)


def buckets_section(report: AuditReport) -> Section:
    """The table that a browser sorts, filters and searches; without scripts it shows the first rows."""
    count = len(report.buckets)
    rows = (_cells(report, one) for one in report.buckets)
    return Section(
        anchor="buckets",
        short="All buckets",
        title="All your buckets" if report.head.tenant is not None else "All buckets",
        lead=f"{counted(count, 'bucket')} had a limit in this period, the one with the most total delay first.",
        blocks=(
            Block(
                "",
                "The peak is the highest certain second, as percent of the limit in force in that second. The headroom "
                "is what was left of the limit at the peak. The limit is the last one in force.",
                table=table_of("All buckets of the period", _COLUMNS, rows, count, "buckets"),
                is_table_open=True,
            ),
        ),
    )


def bucket_index(report: AuditReport) -> dict[str, Any]:
    """Every bucket in columns, which compress better than rows: texts to show, numbers to sort by, names to search."""
    found = report.buckets
    cells = [_cells(report, one) for one in found]
    return {
        "names": [list(astuple(one.bucket)) for one in found],
        "cells": list(map(list, zip(*([cell.text for cell in row] for row in cells), strict=True))),
        "tones": [row[4].tone.value for row in cells],
        "sort": [None, None, *_numbers(found), None],
        "users": [[one.bucket.user] if one.bucket.user else list(one.users) for one in found],
        "inside": [list(one.client_ids) for one in found],
        "brokers": [[broker_text(broker) for broker in one.brokers] for one in found],
    }


def _numbers(found: Sequence[PeriodBucket]) -> list[list[float | None]]:
    """Columns to sort by: total delay, throttled requests, peak, headroom, limit."""
    return [
        [one.delay_ms for one in found],
        [one.throttled_requests for one in found],
        [words.finite(one.peak_quota_used_percent) for one in found],
        [_headroom(one) for one in found],
        [words.finite(one.limit_per_s) for one in found],
    ]


def _headroom(one: PeriodBucket) -> float | None:
    """Percent of the limit that was left at the peak; None if the peak is unknown or above the limit."""
    peak = words.finite(one.peak_quota_used_percent)
    return None if peak is None or peak > LIMIT_PERCENT else LIMIT_PERCENT - peak


def _cells(report: AuditReport, one: PeriodBucket) -> tuple[Cell, ...]:
    kind, room = one.bucket.quota_type, _headroom(one)
    return (
        *words.bucket_cells(one.bucket, report.head),
        words.throttles_cell(one.delay_ms),
        Cell("-") if one.throttled_requests is None else words.count_cell(one.throttled_requests),
        words.used_cell(one.peak_quota_used_percent),
        Cell("-" if room is None else words.share_text(room)),
        words.rate_cell(kind, one.limit_per_s, "-"),
        Cell(", ".join(map(broker_text, one.brokers))),
    )


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each bucket."""
    return {
        "buckets.csv": CsvFile(
            (*BUCKET_COLUMNS, *_FIGURES, "brokers"),
            (
                (*names_of(one.bucket), *values_of(one, _FIGURES), " ".join(map(str, one.brokers)))
                for one in report.buckets
            ),
        )
    }


SECTION = ReportSection(gather, buckets_section, files, is_shown)
