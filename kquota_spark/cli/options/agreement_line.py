"""The agreement with the brokers at the foot of every table of results, and in the JSON envelope."""

from __future__ import annotations

from dataclasses import replace

from kquota_spark.cli.options.filters import Filter
from kquota_spark.cli.text.render import Report
from kquota_spark.reports.agreement.agreement import Span, percent, total
from kquota_spark.store.reading import Tables


def with_agreement(report: Report, tables: Tables, wanted: Filter) -> Report:
    """A report that says how far its numbers can be trusted; as it is where nothing was judged.

    The agreement is that of the whole cluster since --since, whatever else the rows are filtered by.
    """
    found = total(tables, Span(wanted.newer_than_ms))
    if found is None:
        return report
    share = percent(found)
    envelope = {**report.envelope, "agreement": {"agreement_percent": share, **found}}
    if share is None or not report.rows:
        return replace(report, envelope=envelope)
    whole = "" if wanted.is_of_all else " (all clients)"
    line = f"agreement {percent_text(share)} of {found['requests_judged']:,} certain verdicts{whole}"
    return replace(report, envelope=envelope, footer=f"{report.footer}\n{line}".lstrip("\n"))


def percent_text(share: float | None) -> str:
    """`99.93 %`; 100 only if not one verdict differs, `-` if nothing was judged."""
    if share is None:
        return "-"
    return f"{min(share, 99.99) if share < 100 else share:.2f} %"
