"""Modes, switch, lease and changes of `kquota enforce status`, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kquota_spark.cli.enforce.freeze import frozen_text
from kquota_spark.cli.enforce.plan_page import change_text, people_text
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.enforce.changes import Event, LogEntry, Mode
from kquota_spark.enforce.policies.policy import Policies
from kquota_spark.enforce.ports import Frozen, Holder
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.formats.text.person_units import counted, iso_time, person_ms
from kquota_spark.store.reading import utc_text


def values_of(
    policies: Policies, switch: FreezeSwitch, holder: Holder | None, holder_problem: str
) -> dict[str, Any]:
    """Modes, switch and lease for JSON and YAML.

    Args:
        policies: of the policy file.
        switch: the kill switch.
        holder: of the lease; None if no enforcer has run yet.
        holder_problem: why the lease cannot be read; empty if it was read.
    """
    frozen, reading = switch.frozen(), switch.reading()
    return {
        "mode": policies.mode.name.lower(),
        "policies": modes_of(policies),
        "frozen": None if frozen is None else frozen._asdict(),
        "enforcer": None if holder is None else holder._asdict(),
        "enforcer_problem": holder_problem or None,
        "switch": switch.where,
        "switch_read": None if reading is None else reading._asdict(),
    }


def modes_of(policies: Policies) -> dict[str, str]:
    """The mode of each policy by its name."""
    return {policy.name: policies.mode_of(policy.name).name.lower() for policy in policies.policies}


def print_switches(policies: Policies, frozen: Frozen | None, page: Page) -> None:
    """Print the modes and the kill switch."""
    own = ", ".join(f"{name} {mode}" for name, mode in modes_of(policies).items())
    page.paragraph("mode", f"{policies.mode.name.lower()} ({own or 'no policies'})")
    if frozen is None:
        page.paragraph("switch", "not frozen")
    else:
        page.paragraph("switch", f"FROZEN: {frozen_text(frozen)}", Tone.BAD)


def print_holder(holder: Holder | None, problem: str, time_ms: int, page: Page) -> None:
    """Print who holds the lease.

    Args:
        holder: None if no enforcer has run yet.
        problem: why the lease cannot be read; empty if it was read.
        time_ms: now, epoch ms.
        page: to print on.
    """
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


def print_steps(
    title: str, entries: Sequence[LogEntry], policies: Policies, time_ms: int, page: Page
) -> None:
    """Print the changes of one state.

    Args:
        title: the state.
        entries: the newest row of each change.
        policies: decide what a person can do next.
        time_ms: now, epoch ms.
        page: to print on.
    """
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
