"""The sections of a page in their order; the last one defines the numbers, and shows how the page was made."""

from __future__ import annotations

from collections.abc import Iterator

from kquota_spark.reports.pages.opening import opening
from kquota_spark.reports.parts.page_parts import Page, Section
from kquota_spark.reports.parts.words import length, moment, short_moment
from kquota_spark.reports.sections import SECTIONS, WITHOUT_QUOTAS, AuditReport
from kquota_spark.reports.sections.trust import trust_badge

_DEFINITIONS = {
    "bucket": (
        "What a broker keeps one rate for: a user, a client id over all users, or a pair of both, depending on the"
        " rule that matches."
    ),
    "limit": (
        "The quota of the rule in force at that moment. Every broker enforces it alone, so the cluster allows the "
        "limit times the brokers in use."
    ),
    "percent of quota": (
        "The rate as the broker computes it, from eleven samples of a second unless set otherwise, divided by the "
        "limit. Above 100 the broker throttles."
    ),
    "time throttled": (
        "Seconds in which a throttle of the bucket began or still ran, on any broker, as share of the period that"
        " the tables cover. From JMX: the share of samples with a throttle."
    ),
    "total delay": (
        "The sum of the throttle times of all requests, by brokers where their log has it, else by replay. A "
        "client with many connections can wait longer than the clock ran."
    ),
    "error budget": (
        "The seconds that may be throttled: the allowed part of the active seconds, in the period of the objective. A "
        "second is active if a client sent a request in it, or if a throttle of it still ran."
    ),
    "episode": "Seconds over the limit without a longer pause between them.",
    "agreement": (
        "Verdicts that equal the broker's own log: throttled or not. A verdict never uses the "
        "broker's answer to the request it judges."
    ),
    "certain": "Nothing that the log leaves open could turn the verdict: where 2 ms could, it is not.",
    "share": (
        "Of all that was charged for this type of quota on the cluster. Where a client was throttled, what it used"
        " is less than what it wanted."
    ),
    "spread": "The rate on the busiest broker divided by the mean over the brokers that saw the bucket.",
    "request time": "Time of I/O and network threads; one thread has 100 percent per second.",
}


def page_of(report: AuditReport) -> Page:
    """The whole page: for the cluster, for one tenant, or the first report where no quota is set."""
    head = report.head
    subject = f"cluster {head.cluster_id}"
    if head.tenant is not None:
        subject = f"user {head.tenant} on {subject}"
    return Page(
        title=f"Kafka quotas: {subject}, {short_moment(head.from_ms)}",
        subject=subject,
        period=f"{short_moment(head.from_ms)} to {short_moment(head.to_ms)} UTC, {length(head.to_ms - head.from_ms)}",
        made=f"{moment(head.made_at_ms)} UTC by kquota {head.version}",
        badge=trust_badge(report),
        opening=opening(report),
        sections=tuple(_sections(report)),
    )


def _sections(report: AuditReport) -> Iterator[Section]:
    for section in WITHOUT_QUOTAS if report.head.is_first_look else SECTIONS:
        if section.is_shown(report):
            yield section.draw(report)
    yield _appendix(report)


def _appendix(report: AuditReport) -> Section:
    head = report.head
    made = f"Made {moment(head.made_at_ms)} UTC by kquota {head.version} from the audit tables of {head.cluster_id}."
    return Section(
        anchor="appendix",
        short="Definitions",
        title="Definitions",
        lead=f"{made} All times are UTC; kB, MB and GB are powers of 1,000.",
        definitions=tuple(_DEFINITIONS.items()),
    )
