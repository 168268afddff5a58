"""Sections on unprotected traffic, on recommendations, and on the request time of brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kquota_spark.findings.findings import Kind, Severity
from kquota_spark.formats.text.person_units import broker_text, person_ms, type_text
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Advice, Block, Cell, Column, Section, Tone, table_of
from kquota_spark.reports.scope.audit_report import AuditReport, RaiseSum, Recommendation
from kquota_spark.reports.sections.changes import quota_type_of

_SEVERITY_TONES = {"high": Tone.OVER, "warning": Tone.NEAR}
_METERED = {Kind.SHARED_BUCKET.value, Kind.MIXED_IDENTIFICATION.value}
"""Findings about limits that hold, though for several clients together."""
MOST_ADVICE = 50


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
        found = words.counted(count, "finding")
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

    Findings that are left out count too. Behind one of severity info there are only others of that severity, and none
    of those leaves traffic without a limit.
    """
    shown = report.unprotected
    left_out = report.unprotected_left_out if not shown or shown[-1].severity != Severity.INFO.value else 0
    return sum(one.kind not in _METERED for one in shown) + left_out


def to_do_section(report: AuditReport) -> Section:
    """Recommendations, each with the command that shows what it would do."""
    head = report.head
    shown = report.recommendations[:MOST_ADVICE]
    count = len(report.recommendations) + report.recommendations_left_out
    more = count - len(shown)
    title = "What to do" if head.tenant is None else "What can you do?"
    if not shown:
        lead = "Nothing is recommended from what this period shows."
    elif head.tenant is not None:
        lead = "What your clients can do, then what to ask for where quotas are set."
    elif head.is_first_look:
        lead = f"{words.counted(count, 'starting value')}; every command shows first what it would do."
    else:
        lead = f"{words.counted(count, 'step')}; every command shows first what it would do."
    return Section(
        anchor="to-do",
        short="To do",
        title="Where to begin" if head.is_first_look else title,
        lead=f"{lead} The largest are shown; {more:,} more are left out." if more else lead,
        advice=tuple(_advice(one, card_anchor(number)) for number, one in enumerate(shown, 1)),
        blocks=tuple(_sums(report.raises)),
    )


def _sums(raises: Sequence[RaiseSum]) -> Iterator[Block]:
    """All raises together, by broker and type, beside the headroom."""
    if not raises:
        return
    columns = (
        Column("type", is_short=True),
        *Column.numbers("broker", "raises", "least values", "recommended", "headroom"),
    )
    rows = (
        (
            Cell(type_text(one.quota_type)),
            Cell(broker_text(one.broker_id)),
            words.count_cell(one.raises),
            *(_more(one, value) for value in (one.least_more_per_s, one.more_per_s)),
            Cell("not known") if one.headroom_per_s is None else _room(one.quota_type, one.headroom_per_s),
        )
        for one in raises
    )
    note = (
        "What all raises of this section add together, with their least values and with their recommended ones. The "
        "headroom is what policies of the kind raise may still add. It is known where such a policy states the "
        "capacity of a broker."
    )
    yield Block(
        "All raises together",
        note=note,
        table=table_of("Raises by broker", columns, rows, len(raises)),
        is_table_open=True,
    )


def _more(one: RaiseSum, value: float) -> Cell:
    is_over = one.headroom_per_s is not None and value > one.headroom_per_s
    cell = words.rate_cell(one.quota_type, value)
    return replace(cell, text=f"+{cell.text}", tone=Tone.OVER if is_over else Tone.PLAIN)


def _room(quota_type: str, value: float) -> Cell:
    return words.rate_cell(quota_type, value) if value > 0 else Cell("none", tone=Tone.OVER)


def card_anchor(number: int) -> str:
    """The id of the advice card with this number, from 1."""
    return f"card-{number}"


def action_of(one: Recommendation, *, is_own: bool) -> str:
    """The advice in a few words: `raise 300 kB/s to 570 kB/s`; on a tenant's page `ask for 570 kB/s`."""
    kind = quota_type_of(one.key)
    if one.title:
        return one.title
    if one.is_left:
        return "leave it"
    if one.recommended is None:
        return "remove the quota" if one.command else "check the clients"
    wanted = words.rate_cell(kind, one.recommended).text
    if is_own:
        return f"ask for {wanted}"
    if one.present is None:
        return f"set {wanted}"
    verb = "raise" if one.recommended > one.present else "lower"
    return f"{verb} {words.rate_cell(kind, one.present).text} to {wanted}"


def _advice(one: Recommendation, anchor: str) -> Advice:
    kind = quota_type_of(one.key)
    change = ""
    if one.key:
        present, least, recommended = (
            words.rate_cell(kind, value).text for value in (one.present, one.least, one.recommended)
        )
        # Without a recommended value, only the removal of a quota has a command.
        change = f"{one.key} {present}"
        if one.least is not None and one.recommended is not None and one.least < one.recommended:
            change += f" → {least} to {recommended}" if least != recommended else f" → {recommended}"
        elif one.recommended is not None or one.command:
            change += f" → {recommended}"
        elif one.is_left:
            change += ", no change"
    facts = (
        ("Total delay", person_ms(one.delay_ms) if one.delay_ms and one.key else ""),
        ("Cause", one.cause),
        ("Confidence", one.confidence),
        ("With this value", one.expected),
        ("Headroom", one.headroom),
    )
    return Advice(
        one.title or (words.entity_of(one.entity) if one.entity else "The cluster"),
        change,
        words.sentence(one.reason),
        one.command,
        tuple((name, words.sentence(text)) for name, text in facts if text),
        tuple((words.sentence(other.text), other.command) for other in one.alternatives),
        anchor,
    )


def has_capacity(report: AuditReport) -> bool:
    """Whether the use of some broker's request time is known: without it the section has nothing to compare."""
    return any(one.used_percent is not None for one in report.capacity)


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
