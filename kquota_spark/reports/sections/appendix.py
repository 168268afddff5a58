"""What the numbers are, and what made the page."""

from __future__ import annotations

from kquota_spark.reports.scope.audit_report import AuditReport
from kquota_spark.reports.sections.parts import Section
from kquota_spark.reports.sections.words import moment

DEFINITIONS = (
    (
        "bucket",
        (
            "What a broker keeps one rate for: a user, a client id over all users, or a pair of both, as the rule says "
            "that matches."
        ),
    ),
    (
        "limit",
        (
            "The quota of the rule in force at that moment. Every broker enforces it alone, so the cluster allows the "
            "limit times the brokers in use."
        ),
    ),
    (
        "percent of quota",
        (
            "The rate as the broker computes it, from eleven samples of a second unless set otherwise, divided by "
            "the limit. Above 100 the broker throttles."
        ),
    ),
    (
        "time throttled",
        (
            "Seconds in which a throttle of the bucket began or still ran, on any broker, as share of the stretch that "
            "the tables cover. From JMX: the share of samples with a throttle."
        ),
    ),
    (
        "total delay",
        (
            "The sum of the throttle times of all requests, by brokers where their log has it, else by replay. A "
            "client with many connections can wait longer than the clock ran."
        ),
    ),
    ("episode", "Seconds over the limit without a longer pause between them."),
    (
        "agreement",
        (
            "Verdicts that say the same as the broker's own log: throttled or not. A verdict never looks at the "
            "broker's answer to the request it judges."
        ),
    ),
    ("certain", "Nothing that the log leaves open could turn the verdict: where 2 ms could, it is not."),
    (
        "share",
        (
            "Of all that was charged for this type of quota on the cluster. Where a client was throttled, what it used "
            "is less than what it wanted."
        ),
    ),
    ("spread", "The rate on the busiest broker divided by the mean over the brokers that saw the bucket."),
    ("request time", "Time of I/O and network threads; one thread has 100 percent a second."),
)


def appendix_section(report: AuditReport) -> Section:
    """Definitions and version."""
    head = report.head
    made = f"Made {moment(head.made_at_ms)} UTC by kquota {head.version} from the audit tables of {head.cluster_id}."
    return Section(
        anchor="appendix",
        short="Definitions",
        title="Definitions",
        lead=f"{made} All times are UTC; kB, MB and GB are powers of 1,000.",
        definitions=DEFINITIONS,
    )
