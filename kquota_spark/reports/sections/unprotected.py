"""What is unprotected: findings about traffic that is not metered as its owner may expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kquota_spark.findings.findings import Kind, Severity
from kquota_spark.formats.text.person_units import counted
from kquota_spark.model.compare.observed_clients import Observed
from kquota_spark.reports.advice.unprotected import unprotected
from kquota_spark.reports.clients import seen_clients
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Column, Section, Tone, table_of
from kquota_spark.reports.parts.report_section import CsvFile, ReportSection, file_of
from kquota_spark.reports.scope.report_scope import Scope

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_SEVERITY_TONES = {"high": Tone.OVER, "warning": Tone.NEAR}
_METERED = {Kind.SHARED_BUCKET.value, Kind.MIXED_IDENTIFICATION.value}
"""Findings about limits that hold, though for several clients together."""
_COLUMNS = ("kind", "severity", "subject", "sentence", "advice")


def gather(scope: Scope) -> dict[str, Any]:
    """The most severe findings, and how many more there are."""
    found, left_out = unprotected(scope, scope.once(observed), seen_clients.ids_of(scope.once(_clients)))
    return {"unprotected": found, "unprotected_left_out": left_out}


def observed(scope: Scope) -> Observed:
    """The clients that used bandwidth in the period, beside the rules at its end; only the request log has them all."""
    return Observed(
        [one.seen for one in scope.once(_clients)],
        seen_clients.rules_at(scope.tables, scope.cluster_id, scope.asked.to_ms),
        scope.covered.from_ms,
        scope.covered.to_ms,
        seen_clients.problems_of(scope.tables, scope.cluster_id),
        seen_clients.is_sampled(scope.tables, scope.cluster_id, *scope.asked),
    )


def _clients(scope: Scope) -> Sequence[seen_clients.ClientSeen]:
    return seen_clients.clients_seen(
        scope.tables, scope.cluster_id, scope.asked.from_ms, until_ms=scope.asked.to_ms, user=scope.tenant
    )


def is_shown(report: AuditReport) -> bool:
    """Whether the page is of the cluster, because findings reveal other clients; without a quota there are none."""
    return report.head.tenant is None or report.head.is_first_look


def unprotected_section(report: AuditReport) -> Section:
    """Findings about traffic that is not metered as its owner may expect."""
    count = len(report.unprotected) + report.unprotected_left_out
    columns = (
        Column("severity", is_short=True),
        Column("finding", is_short=True),
        Column("about"),
        Column("what"),
        Column("what to do"),
    )
    rows = (
        (
            Cell(one.severity, tone=_SEVERITY_TONES.get(one.severity, Tone.PLAIN)),
            Cell(one.kind),
            Cell(one.subject),
            Cell(words.sentence(one.sentence)),
            Cell(words.sentence(one.advice)),
        )
        for one in report.unprotected
    )
    table = table_of("Traffic without the protection it seems to have", columns, rows, count, "findings")
    is_known = not words.is_sampled(report.confidence)
    open_ends = unprotected_count(report)
    lead = (
        "Nothing was found: all traffic is metered by a rule, and every rule meters what it names."
        if is_known
        else "Not known: brokers measure no traffic without a quota through JMX, a request log shows it."
    )
    if count:
        found = counted(count, "finding")
        lead = (
            f"{found}, the gravest first."
            if open_ends
            else f"All traffic is metered; {found} on shared limits."
        )
    return Section(
        anchor="unprotected",
        short="Unprotected",
        title="What is unprotected?",
        lead=lead,
        tone=Tone.NEAR if open_ends else Tone.GOOD if is_known and not count else Tone.PLAIN,
        blocks=(Block("Findings", table=table, is_table_open=True),) if report.unprotected else (),
    )


def unprotected_count(report: AuditReport) -> int:
    """How many findings leave traffic without the limit that its owner may expect.

    Findings that are left out count too. Behind one of severity info there are only others of that severity. They all
    leave no traffic without a limit.
    """
    shown = report.unprotected
    left_out = report.unprotected_left_out if not shown or shown[-1].severity != Severity.INFO.value else 0
    return sum(one.kind not in _METERED for one in shown) + left_out


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each finding."""
    return {"unprotected.csv": file_of(_COLUMNS, report.unprotected)}


SECTION = ReportSection(gather, unprotected_section, files, is_shown)
