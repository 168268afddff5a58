"""`kquota enforce`: plans of enforcement, from what they would do to taking them back.

Nothing is sent to the cluster without --yes. Exit codes: 0 done or shown, 1 an error, 3 refused by a guard.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence

from kquota_spark.cli.enforce import simulate
from kquota_spark.cli.enforce import status as enforce_status
from kquota_spark.cli.enforce.actor import login_name
from kquota_spark.cli.enforce.plan_page import event_line, last_entries, print_plan, steps_report
from kquota_spark.cli.options.options import (
    add_form_option,
    add_settings_options,
    add_yes_option,
    settings_of,
)
from kquota_spark.cli.text.page import Page, say
from kquota_spark.cli.text.render import Format, show
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Event, LogEntry, Mode
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.process.clock import now_ms

REFUSED_EXIT_CODE = 3
_NEXT = {
    Mode.OBSERVE: "mode observe: it is written down, and never sent",
    Mode.APPROVE: "to be sent it needs: kquota enforce approve {plan_id} --yes",
    Mode.ENFORCE: "jobs/enforce.py sends it, if it wants the same at its next look",
}


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `enforce` and what is below it."""
    enforce = subparsers.add_parser(
        "enforce", description="{about}. Exit codes: 0 done, 1 an error, 3 refused by a guard."
    )
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
    enforce_status.add_command(commands)
    simulate.add_command(commands)


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
    """Plan, and show it."""
    from kquota_spark.enforcement.assembly import enforcing

    time_ms = now_ms()
    with enforcing(settings_of(options), login_name()) as run:
        plan = run.enforcer.plan(run.proposals(time_ms), run.situation(time_ms), time_ms)
        entries = last_entries(entry for entry in run.edges.ledger.entries() if _is_of(entry, plan.plan_id))
    show_steps("kquota enforce plan", entries, options.output)
    planned = {entry.mode for entry in entries if entry.event is Event.PLANNED}
    if options.output == "table":
        for mode in sorted(planned):
            say(f"\n{_NEXT[mode].format(plan_id=plan.plan_id)}")
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Show a plan as the log has it."""
    show_steps("kquota enforce show", plan_entries(settings_of(options), options.plan_id), options.output)
    return 0


def run_approve(options: argparse.Namespace) -> int:
    """Approve a plan."""
    from kquota_spark.enforcement.assembly import enforcing

    settings = settings_of(options)
    entries = plan_entries(settings, options.plan_id)
    if not options.yes:
        return only_shown("approved", "kquota enforce approve", entries, options.output)
    with enforcing(settings, login_name()) as run:
        rows = run.enforcer.approve(options.plan_id, login_name(), now_ms())
    said = (
        "nothing in it waits for approval"
        if not rows
        else "approved; jobs/enforce.py sends it at its next look"
    )
    return acted("kquota enforce approve", rows, options.output, said)


def run_apply(options: argparse.Namespace) -> int:
    """Send what may be sent of a plan."""
    from kquota_spark.enforcement.assembly import enforcing, wait_for_lease

    settings = settings_of(options)
    entries = plan_entries(settings, options.plan_id)
    if not options.yes:
        return only_shown("sent", "kquota enforce apply", entries, options.output)
    with enforcing(settings, login_name()) as run:
        wait_for_lease(run)
        time_ms = now_ms()
        rows = run.enforcer.apply(options.plan_id, run.situation(time_ms), time_ms)
    return acted(
        "kquota enforce apply",
        rows,
        options.output,
        "" if rows else f"nothing was sent: {_why_nothing(entries)}",
    )


def _why_nothing(entries: Sequence[LogEntry]) -> str:
    modes = {entry.mode for entry in entries if entry.event is Event.PLANNED}
    if Mode.APPROVE in modes:
        return f"approve it first: kquota enforce approve {entries[0].step_id.plan_id} --yes"
    return "its policies may only observe" if Mode.OBSERVE in modes else "nothing in it waits"


def run_rollback(options: argparse.Namespace) -> int:
    """Put back what was before a plan."""
    from kquota_spark.enforcement.assembly import enforcing, wait_for_lease

    settings = settings_of(options)
    entries = plan_entries(settings, options.plan_id)
    if not options.yes:
        return only_shown("put back", "kquota enforce rollback", entries, options.output)
    with enforcing(settings, login_name()) as run:
        wait_for_lease(run)
        rows = run.enforcer.roll_back(options.plan_id, now_ms(), login_name())
    return acted("kquota enforce rollback", rows, options.output, "" if rows else "nothing of it is in force")


def plan_entries(settings: Settings, plan_id: str | None) -> list[LogEntry]:
    """The newest row of each step of a plan, of the newest plan without an id.

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
    """Steps in the form that was asked for."""
    if form == "table":
        print_plan(entries, Page())
    else:
        show(steps_report(command, entries), form)


def exit_code_of(rows: Iterable[LogEntry]) -> int:
    """3 if a guard refused any, else 1 if the cluster did, else 0."""
    events = {row.event for row in rows}
    if Event.REFUSED in events:
        return REFUSED_EXIT_CODE
    return 1 if Event.FAILED in events else 0


def acted(command: str, rows: Sequence[LogEntry], form: Format, said: str) -> int:
    """Say what was done, row by row, and what is to be said besides; the exit code."""
    if form == "table":
        for row in rows:
            say(event_line(row))
    else:
        show(steps_report(command, rows), form)
    if said:
        say(terminal_text(said), sys.stderr if form != "table" else sys.stdout)
    return exit_code_of(rows)


def only_shown(what: str, command: str, entries: Sequence[LogEntry], form: Format) -> int:
    """Show what --yes would act on; the exit code."""
    show_steps(command, entries, form)
    say(f"\nnothing was {what}: --yes does it", sys.stderr if form != "table" else sys.stdout)
    return 0


def _is_of(entry: LogEntry, plan_id: str) -> bool:
    return entry.step_id.plan_id == plan_id
