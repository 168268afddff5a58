"""Which sections a page has, in which order."""

from __future__ import annotations

from kquota_spark.reports.scope.audit_report import AuditReport
from kquota_spark.reports.sections.advice import capacity_section, to_do_section, unprotected_section
from kquota_spark.reports.sections.appendix import appendix_section
from kquota_spark.reports.sections.buckets import buckets_section
from kquota_spark.reports.sections.changes import changes_section
from kquota_spark.reports.sections.headline import headline
from kquota_spark.reports.sections.hurt import hurt_section
from kquota_spark.reports.sections.limits import limits_section
from kquota_spark.reports.sections.parts import Page, Section
from kquota_spark.reports.sections.trust import trust_section
from kquota_spark.reports.sections.usage import usage_section
from kquota_spark.reports.sections.words import length, moment, short_moment


def page_of(report: AuditReport) -> Page:
    """The whole page: for the cluster, for one tenant, or the first look where no quota is set."""
    head = report.head
    sentence, facts = headline(report)
    whose = (
        f"user {head.tenant} on cluster {head.cluster_id}"
        if head.tenant is not None
        else f"cluster {head.cluster_id}"
    )
    return Page(
        title=f"Kafka quotas: {whose}, {short_moment(head.from_ms)}",
        whose=whose,
        stretch=f"{short_moment(head.from_ms)} to {short_moment(head.to_ms)} UTC, {length(head.to_ms - head.from_ms)}",
        made=f"{moment(head.made_at_ms)} UTC by kquota {head.version}",
        headline=sentence,
        facts=facts,
        sections=_sections(report),
    )


def _sections(report: AuditReport) -> tuple[Section, ...]:
    head = report.head
    if head.is_first_look:
        # Without a quota nobody can be throttled or near a limit: usage comes first, then where to begin.
        return (
            usage_section(report),
            to_do_section(report),
            unprotected_section(report),
            *([capacity_section(report)] if head.tenant is None else []),
            trust_section(report),
            appendix_section(report),
        )
    first = (
        trust_section(report),
        hurt_section(report),
        limits_section(report),
        *([buckets_section(report)] if report.buckets else []),
        usage_section(report),
    )
    if head.tenant is not None:
        # Findings and threads are the operator's: they tell of others.
        return (*first, changes_section(report), to_do_section(report), appendix_section(report))
    return (
        *first,
        changes_section(report),
        unprotected_section(report),
        to_do_section(report),
        capacity_section(report),
        appendix_section(report),
    )
