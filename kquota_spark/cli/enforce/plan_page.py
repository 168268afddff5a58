"""A plan for people, similar to a diff: entity, change, reason, end, people, and refused steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.render import Report, Row
from kquota_spark.enforce.changes import Event, LogEntry
from kquota_spark.formats.text.escape import entity_text, json_text, terminal_text
from kquota_spark.formats.text.person_units import counted, iso_time, quota_text
from kquota_spark.store.reading import utc_text

_COLUMNS = (
    "plan_id", "step", "status", "entity", "key", "value_before", "value_after", "policy", "reason", "would_have",
    "expires_at", "mode", "actor", "at", "guard", "detail", "fencing", "evidence_from", "evidence_to", "seconds",
    "certain_seconds", "throttled_seconds", "numbers", "author", "approver", "ticket",
)  # fmt: skip
_TIMES = frozenset({"expires_at", "at", "evidence_from", "evidence_to"})
_INDENT = 6
_LABEL = 11
_WORDS = {
    Event.APPLIED.value: "in force",
    Event.SENDING.value: "sent, the answer is not known",
}


def last_entries(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """The newest row of each step, in the order of plans and steps."""
    return list({entry.step_id: entry for entry in entries}.values())


def _step_row(entry: LogEntry) -> Row:
    proposal, evidence = entry.proposal, entry.proposal.evidence
    return {
        "plan_id": entry.step_id.plan_id,
        "step": entry.step_id.step,
        "status": entry.event.value,
        "entity": str(proposal.quota.entity),
        "key": proposal.quota.key.value,
        "value_before": proposal.before,
        "value_after": proposal.after,
        "policy": proposal.policy,
        "reason": proposal.reason,
        "would_have": proposal.would_have,
        "expires_at": proposal.expires_at_ms,
        "mode": entry.mode.name.lower(),
        "actor": entry.actor,
        "at": entry.at_ms,
        "guard": entry.guard,
        "detail": entry.detail,
        "fencing": entry.fencing,
        "evidence_from": evidence.from_ms,
        "evidence_to": evidence.to_ms,
        "seconds": evidence.seconds,
        "certain_seconds": evidence.certain_seconds,
        "throttled_seconds": evidence.throttled_seconds,
        "numbers": json_text({name: _number(value) for name, value in evidence.numbers.items()}),
        "author": entry.author,
        "approver": entry.approver,
        "ticket": entry.ticket,
    }


def steps_report(command: str, entries: Iterable[LogEntry]) -> Report:
    """A report of steps for JSON, YAML and CSV."""
    return Report(command, _COLUMNS, [_step_row(entry) for entry in entries], shown=(), times=_TIMES)


def change_text(entry: LogEntry, *, is_back: bool = False) -> str:
    """`300 kB/s -> 150 kB/s (-50 %)`; reversed if the change is rolled back."""
    proposal = entry.proposal
    key, before, after = proposal.quota.key, proposal.before, proposal.after
    if is_back:
        before, after = after, before
    text = f"{quota_text(key, before)} -> {quota_text(key, after)}"
    if before and after is not None:
        text += f" ({100 * (after - before) / before:+.3g} %)"
    return text


def event_line(entry: LogEntry) -> str:
    """One row of the log on one line: time, event, entity, change, and reason."""
    plan_id, step = entry.step_id
    refused = f"refused by {entry.guard}" if entry.event is Event.REFUSED else entry.event.value
    proposal = entry.proposal
    is_back = entry.event in (Event.RESTORING, Event.RESTORED)
    until = "" if proposal.expires_at_ms is None or is_back else f", until {utc_text(proposal.expires_at_ms)}"
    ticket = f", ticket {entry.ticket}" if entry.ticket else ""
    detail = f" [{entry.detail}]" if entry.detail else ""
    return terminal_text(
        f"{iso_time(entry.at_ms)} {refused}: {entity_text(str(proposal.quota.entity))} {proposal.quota.key.value} "
        f"{change_text(entry, is_back=is_back)}{until}; {proposal.policy}: {proposal.reason} "
        f"(plan {plan_id} step {step}, {entry.actor}{ticket}){detail}"
    )


def status_text(entry: LogEntry) -> str:
    """The status of a step, in a few words."""
    if entry.event is Event.REFUSED:
        return f"refused by {entry.guard or 'guard'}: {entry.detail}"
    status = _WORDS.get(entry.event.value, entry.event.value)
    return "; ".join(part for part in (status, entry.detail) if part)


def people_text(entry: LogEntry) -> str:
    """`planned by ann, approved by bob, ticket CHG-7`; unknown parts are left out."""
    named = (("planned by", entry.author), ("approved by", entry.approver), ("ticket", entry.ticket))
    return ", ".join(f"{what} {who}" for what, who in named if who)


def print_plan(entries: Sequence[LogEntry], page: Page) -> None:
    """Print a plan with its steps. Names that clients chose are escaped for the terminal."""
    if not entries:
        page.line("nothing to change")
        return
    refused = [entry for entry in entries if entry.event is Event.REFUSED]
    others = [entry for entry in entries if entry.event is not Event.REFUSED]
    plan_id = terminal_text(entries[0].step_id.plan_id)
    modes = "/".join(mode.name.lower() for mode in sorted({entry.mode for entry in entries}))
    title = f"plan {plan_id}  {modes}  {counted(len(others), 'change')}, {len(refused)} refused"
    page.paragraph("", title, Tone.TITLE, indent=0)
    for entry in (*others, *refused):
        _print_step(entry, page)


def _print_step(entry: LogEntry, page: Page) -> None:
    proposal = entry.proposal
    is_refused = entry.event is Event.REFUSED
    mark = "!" if is_refused else _mark(proposal.before, proposal.after)
    tone = Tone.BAD if is_refused else Tone.TITLE
    page.line()
    page.paragraph(
        f"{entry.step_id.step:>3} {mark} ", entity_text(str(proposal.quota.entity)), tone, indent=_INDENT
    )
    _field(page, "change", f"{proposal.quota.key.value} {change_text(entry)}")
    _field(page, "why", f"{proposal.policy}: {proposal.reason}")
    _field(page, "until", "stays" if proposal.expires_at_ms is None else utc_text(proposal.expires_at_ms))
    _field(page, "yesterday", proposal.would_have)
    _field(page, "who", people_text(entry))
    if is_refused:
        _field(page, "refused", f"{entry.guard or 'guard'}: {entry.detail}", Tone.BAD)
    else:
        _field(page, "now", "" if entry.event is Event.PLANNED else status_text(entry))


def _field(page: Page, label: str, text: str, tone: Tone | None = None) -> None:
    if text:
        page.paragraph(" " * _INDENT + label, terminal_text(text), tone, indent=_INDENT + _LABEL)


def _number(value: float) -> float | str:
    """The number, or a text for infinity and NaN, which JSON does not have."""
    return value if math.isfinite(value) else str(value)


def _mark(before: float | None, after: float | None) -> str:
    """The mark of a diff: `+` if no value was set, `-` for a removal, `~` for another value."""
    if before is None:
        return "+"
    return "-" if after is None else "~"
