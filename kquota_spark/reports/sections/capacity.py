"""How much request time brokers have: threads of each broker, and the part of their time that requests took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import broker_text
from kquota_spark.model.replay.request_replay import US_PER_PERCENT
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Column, Section, table_of
from kquota_spark.reports.parts.report_section import CsvFile, ReportSection, file_of
from kquota_spark.reports.scope.report_scope import Scope

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_CAPACITY = f"""
select broker_id, io_threads, network_threads, 100.0::double * (io_threads + network_threads) as percent, used_percent
from (
  select broker_id, arg_max(num_io_threads, coalesce(valid_from, make_timestamptz(0))) as io_threads,
         arg_max(num_network_threads, coalesce(valid_from, make_timestamptz(0))) as network_threads
  from broker_configs where cluster_id = ? and broker_id is not null and num_io_threads is not null
    and num_network_threads is not null and coalesce(valid_from < make_timestamptz(?), true)
  group by broker_id
) left join (
  select broker_id, sum(percent) as used_percent from (
    select broker_id, coalesce(sum(amount) / {US_PER_PERCENT} / ?, avg(rate_per_s)) as percent
    from used where quota_type = 'request' group by broker_id, "user", client_id
  ) group by broker_id
) using (broker_id) order by broker_id
"""  # noqa: S608 - a number of ours
_COLUMNS = ("broker_id", "io_threads", "network_threads", "percent", "used_percent")


@dataclass(frozen=True, slots=True)
class Capacity:
    """Request time of a broker: (io + network threads) x 100 %."""

    broker_id: int
    io_threads: int
    network_threads: int
    percent: float
    used_percent: float | None
    """Mean of the charged request time; None if it is not measured."""


def gather(scope: Scope) -> dict[str, Any]:
    """The brokers with a known number of threads; none on a tenant's page, where the use would reveal others."""
    if scope.tenant is not None:
        return {"capacity": []}
    asked = scope.cluster_id, scope.asked.to_ms * 1_000, scope.covered_seconds
    return {"capacity": [Capacity(**row) for row in scope.rows(_CAPACITY, *asked)]}


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
