"""`kquota enforce`: plans of enforcement: preview, approve, apply, roll back.

Only `run` sends changes to the cluster without --yes: those that the policy file allows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kquota_spark.cli.enforce import run as enforce_run
from kquota_spark.cli.enforce import status as enforce_status
from kquota_spark.cli.enforce.freeze import login_name
from kquota_spark.cli.enforce.plan_page import (
    change_text,
    event_line,
    last_entries,
    print_plan,
    status_text,
    steps_report,
)
from kquota_spark.cli.enforce.ticket import add_ticket_option
from kquota_spark.cli.exit_codes import DONE, ERROR, NOTHING, NOTHING_DONE, REFUSED, REFUSED_THERE
from kquota_spark.cli.options import (
    add_form_option,
    add_settings_options,
    add_yes_option,
    settings_of,
)
from kquota_spark.cli.quotas.undo import settings_words, undo_of
from kquota_spark.cli.text.page import Page, print_line
from kquota_spark.cli.text.render import Format, show
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Event, LogEntry, Mode
from kquota_spark.enforce.log_state import LogState
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.process.clock import now_ms

if TYPE_CHECKING:
    from kquota_spark.enforcement.assembly import Enforcing

COMMANDS = {
    "enforce": (
        "changes with guards",
        "decisions become quotas: plan, approve, apply, roll back; only run sends without --yes",
        "kquota enforce plan",
        "kquota enforce apply p-e25048cb --yes",
    ),
}
CODES = {
    "enforce approve": {NOTHING: NOTHING_DONE},
    "enforce apply": {ERROR: REFUSED_THERE, REFUSED: "a guard refused", NOTHING: NOTHING_DONE},
    "enforce rollback": {ERROR: REFUSED_THERE, NOTHING: NOTHING_DONE},
}

_IN_FORCE = (Event.SENDING, Event.APPLIED, Event.RESTORING)
"""The newest row of a step in force, or perhaps in force, has one of these events."""
_NOT_IN_FORCE = "nothing of it is in force"
_NEXT = {
    Mode.OBSERVE: "mode observe: it is written down, and never sent",
    Mode.APPROVE: "to be sent it needs: kquota enforce approve {plan_id} --yes",
    Mode.ENFORCE: "kquota enforce run sends it, if it wants the same at its next look",
}


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `enforce` and its subcommands."""
    enforce = subparsers.add_parser("enforce")
    commands = enforce.add_subparsers(required=True, metavar="COMMAND")
    _add(commands, "plan", "what the policies want now, and what the guards say to it", run_plan)
    shown = _add(commands, "show", "a plan and what has become of it; the newest without a name", run_show)
    shown.add_argument("plan_id", nargs="?", metavar="PLAN")
    for name, help_text, run in (
        ("approve", "allow the running enforcer to send a plan", run_approve),
        ("apply", "send the steps of a plan that are approved or need no approval, now", run_apply),
        ("rollback", "put back what was there before a plan", run_rollback),
    ):
        acting = _add(commands, name, help_text, run)
        acting.add_argument("plan_id", metavar="PLAN")
        add_yes_option(acting)
        if name != "apply":  # apply uses the ticket of the approval
            add_ticket_option(acting)
    enforce_status.add_command(commands)
    enforce_run.add_command(commands)


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    about: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=about, description=about)
    add_settings_options(parser)
    add_form_option(parser)
    parser.set_defaults(run=run)
    return parser


def run_plan(options: argparse.Namespace) -> int:
    """Make a plan and show it."""
    from kquota_spark.enforcement.assembly import enforcing

    with enforcing(settings_of(options, "tables"), login_name()) as run:
        begun_ms = now_ms()
        wanted, known = run.proposals(begun_ms), run.situation(begun_ms)
        # The clock of the guards is read after the tables: what these hold is then not ahead of it.
        plan = run.enforcer.plan(wanted, known, now_ms())
        entries = last_entries(entry for entry in run.edges.ledger.entries() if _is_of(entry, plan.plan_id))
    show_steps("kquota enforce plan", entries, options.output)
    planned = {entry.mode for entry in entries if entry.event is Event.PLANNED}
    if options.output == "table":
        for mode in sorted(planned):
            print_line(f"\n{_NEXT[mode].format(plan_id=plan.plan_id)}")
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Show a plan from the log."""
    show_steps(
        "kquota enforce show", plan_entries(settings_of(options, "tables"), options.plan_id), options.output
    )
    return 0


def run_approve(options: argparse.Namespace) -> int:
    """Approve a plan."""
    from kquota_spark.enforcement.assembly import enforcing

    settings = settings_of(options, "tables")
    entries = plan_entries(settings, options.plan_id)
    if not options.yes:
        return only_shown("approved", "kquota enforce approve", entries, options.output)
    with enforcing(settings, login_name()) as run:
        time_ms = now_ms()
        rows = run.enforcer.approve(options.plan_id, login_name(), time_ms, options.ticket)
        text = "approved; kquota enforce run sends it at its next look"
        if not rows:
            text = f"nothing was approved: {_why_nothing(entries, run, time_ms)}"
    return acted("kquota enforce approve", rows, options.output, text)


def run_apply(options: argparse.Namespace) -> int:
    """Send the steps of a plan that may be sent."""
    from kquota_spark.enforcement.assembly import enforcing, wait_for_lease

    settings = settings_of(options, "tables")
    entries = plan_entries(settings, options.plan_id)
    if not options.yes:
        return only_shown("sent", "kquota enforce apply", entries, options.output)
    with enforcing(settings, login_name()) as run:
        wait_for_lease(run, "kquota enforce apply")
        known, time_ms = run.situation(now_ms()), now_ms()  # in this order, as in run_plan
        rows = run.enforcer.apply(options.plan_id, known, time_ms)
        frozen = run.edges.switch.frozen()
        why = frozen and f"frozen by {frozen.actor}: {frozen.reason} (kquota unfreeze)"
        text = "" if rows else f"nothing was sent: {why or _why_nothing(entries, run, time_ms)}"
    back = ["kquota", "enforce", "rollback", options.plan_id, "--yes", *settings_words(options)]
    return acted("kquota enforce apply", rows, options.output, text, back)


def _why_nothing(entries: Sequence[LogEntry], run: Enforcing, time_ms: int) -> str:
    """The reason why a plan is neither approved nor sent, and what to do."""
    steps = [step for step in LogState.of(entries).steps.values() if step.is_open]
    plan_id = entries[0].step_id.plan_id
    if not steps:
        found = ", ".join(dict.fromkeys(status_text(entry) for entry in entries))
        return f"nothing in it waits ({found})"
    if any(entry.event is Event.APPROVED for entry in entries):
        return "it is approved already; kquota enforce run sends it at its next look"
    for step in steps:
        if overdue := step.overdue(time_ms, run.policies.guards.approve_within):
            return f"{overdue}; kquota enforce plan makes a new one"
        if run.policies.mode_of(policy := step.proposal.policy) < Mode.APPROVE:
            return (
                f"{policy} may only observe: set mode: approve in {run.settings.enforcement.policy_file}, at the top "
                f"and for the policy; then kquota enforce approve {plan_id} --yes"
            )
    return f"approve it first: kquota enforce approve {plan_id} --yes"


def run_rollback(options: argparse.Namespace) -> int:
    """Restore the values before a plan."""
    settings = settings_of(options, "tables")
    entries = plan_entries(settings, options.plan_id)
    command, form = "kquota enforce rollback", options.output
    return take_back(command, settings, entries, form, is_agreed=options.yes, ticket=options.ticket)


def take_back(
    command: str,
    settings: Settings,
    entries: Sequence[LogEntry],
    form: Format,
    *,
    is_agreed: bool,
    ticket: str | None,
) -> int:
    """Restore the values before a plan, or show what would be restored.

    Args:
        command: name in the envelope of the answer.
        settings: of the cluster.
        entries: the newest row of each step of the plan.
        form: of the output.
        is_agreed: whether the person gave --yes; without it nothing is changed.
        ticket: change request for the log; None for none.

    Returns:
        The exit code.
    """
    from kquota_spark.enforcement.assembly import enforcing, wait_for_lease

    if not is_agreed:
        return _taking_back(command, entries, form)
    with enforcing(settings, login_name()) as run:
        wait_for_lease(run, command)
        rows = run.enforcer.roll_back(entries[0].step_id.plan_id, now_ms(), login_name(), ticket)
    return acted(command, rows, form, "" if rows else _NOT_IN_FORCE)


def _taking_back(command: str, entries: Sequence[LogEntry], form: Format) -> int:
    """Show what a rollback would restore, in the order of the rollback."""
    in_force = [entry for entry in reversed(entries) if entry.event in _IN_FORCE]
    if form != "table":
        show(steps_report(command, in_force), form)
    for entry in in_force if form == "table" else ():
        quota, change = entry.proposal.quota, change_text(entry, is_back=True)
        entity = entity_text(str(quota.entity))
        print_line(
            terminal_text(f"would put back: {entity} {quota.key.value} {change} (step {entry.step_id.step})")
        )
    text = "nothing was put back; add --yes to do it" if in_force else _NOT_IN_FORCE
    print_line(f"\n{text}" if in_force else text, sys.stdout if form == "table" else sys.stderr)
    return NOTHING


def plan_entries(settings: Settings, plan_id: str | None) -> list[LogEntry]:
    """The newest row of each step of a plan.

    Args:
        settings: of the cluster.
        plan_id: the plan; None for the newest.

    Raises:
        UserError: there is no such plan.
    """
    log = EnforcementLog(settings).entries()
    if plan_id is None:
        if not log:
            raise UserError(f"there is no plan yet in {settings.tables}: kquota enforce plan makes one")
        newest = {entry.step_id.plan_id: entry.at_ms for entry in reversed(log)}
        plan_id = max(newest, key=lambda name: newest[name])
    entries = last_entries(entry for entry in log if _is_of(entry, plan_id))
    if not entries:
        raise UserError(f"there is no plan {plan_id}: kquota enforce status lists those that wait")
    return entries


def show_steps(command: str, entries: Sequence[LogEntry], form: Format) -> None:
    """Print steps in the requested form."""
    if form == "table":
        print_plan(entries, Page())
    else:
        show(steps_report(command, entries), form)


def exit_code_of(rows: Iterable[LogEntry]) -> int:
    """The exit code for rows: refused by a guard, else failed in the cluster, else done; nothing without rows."""
    events = {row.event for row in rows}
    if Event.REFUSED in events:
        return REFUSED
    if Event.FAILED in events:
        return ERROR
    return DONE if events else NOTHING


def acted(command: str, rows: Sequence[LogEntry], form: Format, note: str, back: Sequence[str] = ()) -> int:
    """Print rows, then a note, then the command that undoes what was applied.

    Args:
        command: name in the envelope of the answer.
        rows: rows written to the enforcement log.
        form: of the output.
        note: a sentence for people; empty for none.
        back: words of the command that undoes it; empty for none.

    Returns:
        The exit code.
    """
    if form == "table":
        # The last row of each step: the earlier ones repeat its text.
        for row in {row.step_id: row for row in rows}.values():
            print_line(event_line(row))
    else:
        show(steps_report(command, rows), form)
    stream = sys.stdout if form == "table" else sys.stderr
    if note:
        print_line(terminal_text(note), stream)
    if back and any(row.event is Event.APPLIED for row in rows):
        print_line(undo_of(back), stream)
    return exit_code_of(rows)


def only_shown(what: str, command: str, entries: Sequence[LogEntry], form: Format) -> int:
    """Show what --yes would act on.

    Args:
        what: the action that was not done, as a participle, e.g. `sent`.
        command: name in the envelope of the answer.
        entries: the newest row of each step of the plan.
        form: of the output.

    Returns:
        The exit code.
    """
    show_steps(command, entries, form)
    refused = [entry for entry in entries if entry.event is Event.REFUSED]
    why = ": a guard refused it" if entries and len(refused) == len(entries) else "; add --yes to do it"
    print_line(f"\nnothing was {what}{why}", sys.stdout if form == "table" else sys.stderr)
    return REFUSED if refused else NOTHING


def _is_of(entry: LogEntry, plan_id: str) -> bool:
    return entry.step_id.plan_id == plan_id
