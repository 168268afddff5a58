"""How much request time brokers have: threads of each broker, and the part of their time that requests took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import broker_text
from kquota_spark.reports.gathered.usage import capacities
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Column, Section, table_of
from kquota_spark.reports.parts.report_section import CsvFile, ReportSection, file_of
from kquota_spark.reports.scope.report_scope import Scope

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_COLUMNS = ("broker_id", "io_threads", "network_threads", "percent", "used_percent")


def gather(scope: Scope) -> dict[str, Any]:
    """The brokers with a known number of threads."""
    return {"capacity": capacities(scope)}


def is_shown(report: AuditReport) -> bool:
    """Whether the page is of the cluster and some broker's use is known: else there is nothing to compare."""
    return report.head.tenant is None and any(one.used_percent is not None for one in report.capacity)


def capacity_section(report: AuditReport) -> Section:
    """Threads of each broker, and the part of their time that requests took."""
    columns = Column.numbers(
        "broker", "I/O threads", "network threads", "request time there is", "charged on average", "share"
    )
    rows = []
    for one in sorted(report.capacity, key=lambda capacity: capacity.broker_id):
        used = words.finite(one.used_percent)
        share = 100 * used / one.percent if used is not None and one.percent else None
        rows.append(
            (
                Cell(broker_text(one.broker_id)),
                words.count_cell(one.io_threads),
                words.count_cell(one.network_threads),
                Cell(f"{one.percent:,.0f} %"),
                Cell("not measured" if used is None else f"{used:,.2f} %"),
                Cell("-") if share is None else words.share_cell(share),
            )
        )
    lead = "Each thread has 100 % of request time a second; request quotas are percent of one thread."
    table = table_of("Request time by broker", columns, rows, len(rows))
    return Section(
        anchor="capacity",
        short="Capacity",
        title="How much request time do brokers have?",
        lead=lead,
        blocks=(Block("", table=table, is_table_open=True),),
    )


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each broker."""
    return {"capacity.csv": file_of(_COLUMNS, report.capacity)}


SECTION = ReportSection(gather, capacity_section, files, is_shown)
