"""`kquota enforce status`: the mode, the kill switch, changes in force, and waiting plans."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kquota_spark.cli.enforce.freeze import frozen_text, reading_text
from kquota_spark.cli.enforce.plan_page import change_text, people_text, steps_report
from kquota_spark.cli.options import counted
from kquota_spark.cli.question import Asked, Found, Question
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Event, LogEntry, Mode
from kquota_spark.enforce.log_state import LogState
from kquota_spark.enforce.policies.policy import Policies
from kquota_spark.enforce.ports import Frozen, Holder
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.formats.text.person_units import iso_time, person_ms
from kquota_spark.process.clock import now_ms
from kquota_spark.store.reading import utc_text

_REFUSALS = 5


def _find(asked: Asked) -> Found:
    """The status. If the lease cannot be read, the error is printed in its place.

    Raises:
        UserError: the policies or the log cannot be read.
    """
    from kquota_spark.enforcement.policies import load_policies

    settings, time_ms = asked.settings, now_ms()
    policies = load_policies(Path(settings.enforcement.policy_file))
    sections = _sections(EnforcementLog(settings).entries(), policies, time_ms, asked.limit)
    switch = FreezeSwitch(settings)
    frozen = switch.frozen()

    def print_all(page: Page) -> None:
        _print_switches(policies, frozen, page)
        page.paragraph("", reading_text(switch, time_ms))
        for title, entries in sections.items():
            _print_steps(title, entries, policies, time_ms, page)
        # Last, because the cluster may answer slowly.
        sys.stdout.flush()
        _print_holder(*_holder(settings), time_ms, page)

    if asked.is_for_people:
        return Found((), (), page=print_all)
    report = steps_report("", [entry for entries in sections.values() for entry in entries])
    envelope = _envelope(policies, frozen, *_holder(settings)) | _reading(switch)
    return Found(report.columns, report.rows, envelope=envelope, is_limited=True, times=report.times)


def _sections(
    log: Sequence[LogEntry], policies: Policies, time_ms: int, limit: int | None
) -> dict[str, list[LogEntry]]:
    """The newest row of each step in force, waiting or refused, by title."""
    state = LogState.of(log)
    live = [step.last for steps in state.live.values() for step in steps]
    waiting = [step.last for step in state.waiting(time_ms, policies.guards.approve_within)]
    refused = [entry for entry in reversed(log) if entry.event is Event.REFUSED]
    return {
        "in force": live[:limit],
        "waiting": waiting[:limit],
        "refused, newest first": refused[:_REFUSALS],
    }


def _holder(settings: Settings) -> tuple[Holder | None, str]:
    from kquota_spark.enforcement.assembly import enforcement_edges

    try:
        with enforcement_edges(settings) as edges:
            return edges.lease.holder(), ""
    except UserError as error:
        return None, str(error)


def _envelope(
    policies: Policies, frozen: Frozen | None, holder: Holder | None, holder_problem: str
) -> dict[str, Any]:
    return {
        "mode": policies.mode.name.lower(),
        "policies": _modes(policies),
        "frozen": None if frozen is None else frozen._asdict(),
        "enforcer": None if holder is None else holder._asdict(),
        "enforcer_problem": holder_problem or None,
    }


def _reading(switch: FreezeSwitch) -> dict[str, Any]:
    reading = switch.reading()
    return {"switch": switch.where, "switch_read": None if reading is None else reading._asdict()}


def _modes(policies: Policies) -> dict[str, str]:
    return {policy.name: policies.mode_of(policy.name).name.lower() for policy in policies.policies}


def _print_switches(policies: Policies, frozen: Frozen | None, page: Page) -> None:
    own = ", ".join(f"{name} {mode}" for name, mode in _modes(policies).items())
    page.paragraph("mode", f"{policies.mode.name.lower()} ({own or 'no policies'})")
    if frozen is None:
        page.paragraph("switch", "not frozen")
    else:
        page.paragraph("switch", f"FROZEN: {frozen_text(frozen)}", Tone.BAD)


def _print_holder(holder: Holder | None, problem: str, time_ms: int, page: Page) -> None:
    page.line()
    if problem:
        page.paragraph("enforcer", terminal_text(problem), Tone.BAD)
        return
    if holder is None:
        page.paragraph("enforcer", "none has run yet")
        return
    if holder.command:
        state = "the lease is held by" if holder.is_holding else "the lease was held last by"
        text = f"{state} {terminal_text(holder.command)} on {terminal_text(holder.name)}"
        page.paragraph("enforcer", text)
        return
    ago = f"looked {person_ms(max(0, time_ms - holder.since_ms))} ago"
    page.paragraph("enforcer", f"{terminal_text(holder.name)}, {'at work now' if holder.is_holding else ago}")


def _print_steps(
    title: str, entries: Sequence[LogEntry], policies: Policies, time_ms: int, page: Page
) -> None:
    page.line()
    page.line(f"{title}: {counted(len(entries), 'change') if entries else 'none'}", Tone.TITLE)
    for entry in entries:
        proposal = entry.proposal
        change = f"{entity_text(str(proposal.quota.entity))} {proposal.quota.key.value} {change_text(entry)}"
        tone = Tone.BAD if entry.event in (Event.REFUSED, Event.FAILED) else None
        page.paragraph("", terminal_text(change), tone, indent=2)
        page.paragraph("", terminal_text("; ".join(_about(entry, policies, time_ms))), indent=6)


def _about(entry: LogEntry, policies: Policies, time_ms: int) -> list[str]:
    proposal, plan_id = entry.proposal, entry.step_id.plan_id
    parts = [f"{proposal.policy}, plan {plan_id} step {entry.step_id.step}, {entry.mode.name.lower()}"]
    if people := people_text(entry):
        parts.append(people)
    if entry.event is Event.REFUSED:
        return [*parts, f"{iso_time(entry.at_ms)} {entry.guard}: {entry.detail}"]
    if proposal.expires_at_ms is None:
        parts.append("stays")
    elif proposal.expires_at_ms <= time_ms:
        parts.append(f"its time was over at {utc_text(proposal.expires_at_ms)}: is kquota enforce run up?")
    else:
        parts.append(f"until {utc_text(proposal.expires_at_ms)}")
    if entry.event is Event.PLANNED and entry.mode is not Mode.ENFORCE:
        may_only_observe = policies.mode_of(proposal.policy) < Mode.APPROVE
        parts.append("written down only" if may_only_observe else f"kquota enforce approve {plan_id} --yes")
    if entry.event not in (Event.APPLIED, Event.PLANNED):
        by = f" by {entry.actor}: {entry.detail}" if entry.detail else ""
        parts.append(f"{entry.event.value}{by}")
    return parts


QUESTION = Question(
    command="enforce status",
    table=None,
    find=_find,
    options=lambda _: None,
    period=None,
    has_agreement=False,
    about="mode, kill switch, lease, changes in force with their ends, plans that wait, newest refusals",
)
add_command = QUESTION.add_to
