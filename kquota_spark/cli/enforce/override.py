"""`kquota override`: a temporary change of a quota by a person. It uses the guards and the log of enforcement.

When it expires, exactly the value before is restored.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

from kquota_spark.cli.enforce.freeze import login_name, reason_of
from kquota_spark.cli.enforce.plan_page import last_entries, steps_report
from kquota_spark.cli.enforce.plans import (
    acted,
    only_shown,
    plan_entries,
    take_back,
)
from kquota_spark.cli.enforce.ticket import add_ticket_option
from kquota_spark.cli.exit_codes import DONE, ERROR, NOTHING, NOTHING_DONE, REFUSED, REFUSED_THERE
from kquota_spark.cli.options import (
    Since,
    add_client_option,
    add_form_option,
    add_settings_options,
    add_yes_option,
    length_argument,
    settings_of,
    time_argument,
)
from kquota_spark.cli.quotas.undo import settings_words
from kquota_spark.cli.text.render import Shown, show
from kquota_spark.enforce.changes import OVERRIDE as POLICY
from kquota_spark.enforce.changes import Event, LogEntry, Mode, Proposal, Quota
from kquota_spark.enforce.in_memory import InMemoryLedger
from kquota_spark.enforce.log_state import DAY_MS, LogState
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.errors import UserError
from kquota_spark.formats.quota_files.quota_file import quota_value
from kquota_spark.formats.text.escape import entity_text
from kquota_spark.formats.text.person_units import clock_time, person_span, quota_text
from kquota_spark.formats.text.person_values import example_of
from kquota_spark.model.quotas.entities import DEFAULT, Entity, Name
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.process.clock import now_ms
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.enforcement.assembly import Enforcing

COMMANDS = {
    "override": (
        "changes with guards",
        "a person's own change of a quota for a time; it goes through the guards, and ends by itself",
        "kquota override set --user bob --key producer_byte_rate --value 2000000 --for 2h --reason load",
        "kquota override list",
    ),
}
CODES = {
    "override set": {ERROR: REFUSED_THERE, REFUSED: "a guard refused", NOTHING: NOTHING_DONE},
    "override expire": {ERROR: REFUSED_THERE, NOTHING: NOTHING_DONE},
}

_NOT_IN_FORCE = "nothing is in force: see kquota enforce status"
_SHOWN = (
    Shown("plan", itemgetter("plan_id"), is_text=True, keep=12),
    Shown("entity", lambda row: entity_text(row["entity"]), is_text=True, keep=16),
    Shown("key", itemgetter("key"), is_text=True, keep=18),
    Shown("before", lambda row: quota_text(QuotaKey(row["key"]), row["value_before"]), rank=1),
    Shown("now", lambda row: quota_text(QuotaKey(row["key"]), row["value_after"])),
    Shown("until (UTC)", lambda row: clock_time(row["expires_at"], with_day=True), is_text=True, keep=14),
    Shown("by", lambda row: row["author"] or row["actor"], is_text=True, keep=8),
    Shown("approver", lambda row: row["approver"] or "-", is_text=True, keep=8),
    Shown("ticket", lambda row: row["ticket"] or "-", is_text=True, keep=8),
    Shown("reason", itemgetter("reason"), is_text=True, rank=2),
)


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `override`."""
    override = subparsers.add_parser("override")
    commands = override.add_subparsers(required=True, metavar="COMMAND")
    setting = commands.add_parser("set", help="set one key of one entity until a time")
    _add_quota_options(setting)
    when = setting.add_mutually_exclusive_group(required=True)
    when.add_argument("--for", dest="length_ms", type=length_argument, metavar="T", help="30s, 10m, 2h, 1d")
    when.add_argument("--until", type=time_argument, metavar="T", help="an ISO time in UTC")
    setting.add_argument("--reason", required=True, metavar="TEXT", help="why; it is kept in the log")
    setting.set_defaults(run=run_set, usage=setting.error)
    listing = commands.add_parser("list", help="those in force or under way")
    listing.set_defaults(run=run_list)
    expire = commands.add_parser("expire", help="put back now what was there before one")
    expire.add_argument("plan_id", metavar="PLAN", help="as kquota override list names it")
    expire.set_defaults(run=run_expire)
    for parser in (setting, expire):
        add_yes_option(parser)
        add_ticket_option(parser)
    for parser in (setting, listing, expire):
        add_settings_options(parser)
        add_form_option(parser)


def _add_quota_options(parser: argparse.ArgumentParser) -> None:
    user = parser.add_mutually_exclusive_group()
    user.add_argument("--user", metavar="NAME", help="of this user")
    user.add_argument("--user-default", action="store_true", help="of users without a quota of their own")
    client = parser.add_mutually_exclusive_group()
    add_client_option(client, "of this client id; with a user, of the pair")
    client.add_argument(
        "--client-default", action="store_true", help="of client ids without a quota of their own"
    )
    parser.add_argument("--key", required=True, choices=[key.value for key in QuotaKey], help="which quota")
    parser.add_argument(
        "--value",
        required=True,
        metavar="N",
        help="per broker: bytes/s, percent of a thread, or 1/s; also as 2MB/s, 200%%, 10/s",
    )


def run_set(options: argparse.Namespace) -> int:
    """Set an override, or show the decision of the guards without --yes.

    Raises:
        UserError: no reason, an end in the past, or a server or table that cannot be used.
        SystemExit: with 2, without an entity, or for a value that no cluster takes.
    """
    from kquota_spark.enforcement.assembly import enforcing, wait_for_lease
    from kquota_spark.enforcement.situation import override_evidence

    value, quota = _value(options), Quota(_entity(options), QuotaKey(options.key))
    settings, time_ms = settings_of(options, "tables"), now_ms()
    reason, until_ms = reason_of(options.reason), _until_ms(options.length_ms, options.until, time_ms)
    with enforcing(settings, login_name()) as run:
        _require_short(until_ms - time_ms, run)
        if options.yes:
            wait_for_lease(run, "kquota override set")
        wanted = Proposal(
            quota=quota,
            before=run.edges.cluster.read([quota])[quota].value,
            after=value,
            policy=POLICY,
            reason=reason,
            expires_at_ms=until_ms,
            evidence=override_evidence(settings, quota, time_ms),
        )
        # The clock of the guards is read after the tables: what these hold is then not ahead of it.
        situation, time_ms = run.situation(time_ms), now_ms()
        if not options.yes:
            ledger = InMemoryLedger()
            ledger.append(run.edges.ledger.entries())
            entries = run.with_ledger(ledger).plan([wanted], situation, time_ms, options.ticket).entries
            return only_shown("sent", "kquota override set", entries, options.output)
        plan = run.enforcer.plan([wanted], situation, time_ms, options.ticket)
        rows = list(plan.entries)
        may_send = run.mode_of(POLICY) >= Mode.APPROVE and not run.needs_second_person
        if may_send:
            rows += run.enforcer.approve(plan.plan_id, login_name(), time_ms)
            rows += run.enforcer.apply(plan.plan_id, situation, time_ms)
    text = f"plan {plan.plan_id}: it ends at {utc_text(until_ms)} if kquota enforce run is up then"
    if not any(row.event is Event.APPLIED for row in rows):
        is_refused = any(row.event is Event.REFUSED for row in rows)
        text = _NOT_IN_FORCE if is_refused or may_send else _what_it_waits_for(plan.plan_id, run)
    back = ["kquota", "override", "expire", plan.plan_id, "--yes", *settings_words(options)]
    code = acted("kquota override set", rows, options.output, text, back)
    return NOTHING if code == DONE and not may_send else code


def _what_it_waits_for(plan_id: str, run: Enforcing) -> str:
    policy_file = run.settings.enforcement.policy_file
    approve = f"kquota enforce approve {plan_id} --yes"
    if run.mode_of(POLICY) < Mode.APPROVE:
        mode = run.policies.mode.name.lower()
        return f"nothing was sent: mode {mode} in {policy_file}; after mode: approve there, run {approve}"
    return f"nothing was sent: enforcement.approval asks for a second person, who runs {approve}"


def _require_short(length_ms: int, run: Enforcing) -> None:
    longest_ms = run.policies.guards.longest_override
    if length_ms > longest_ms:
        raise UserError(
            f"an override may last {_length_text(longest_ms)} at most (guards.longest_override in "
            f"{run.settings.enforcement.policy_file}), and this one would last {_length_text(length_ms)}"
        )


def _length_text(length_ms: int) -> str:
    return f"{length_ms // DAY_MS:,} d" if length_ms % DAY_MS == 0 else person_span(length_ms)


def run_list(options: argparse.Namespace) -> int:
    """Show the overrides in force."""
    live = _live(EnforcementLog(settings_of(options, "tables")).entries())
    footer = "kquota override expire PLAN puts back what was there before" if live else ""
    report = steps_report("kquota override list", live)
    show(replace(report, shown=_SHOWN, footer=footer, when_empty="no override is in force"), options.output)
    return DONE


def run_expire(options: argparse.Namespace) -> int:
    """Restore the values before an override.

    Raises:
        UserError: no plan has this id, or it is not an override.
    """
    settings = settings_of(options, "tables")
    entries = plan_entries(settings, options.plan_id)
    if any(entry.proposal.policy != POLICY for entry in entries):
        raise UserError(f"plan {options.plan_id} is no override: kquota enforce rollback takes plans back")
    command, form = "kquota override expire", options.output
    return take_back(command, settings, entries, form, is_agreed=options.yes, ticket=options.ticket)


def _live(log: Sequence[LogEntry]) -> list[LogEntry]:
    of_all = [step for steps in LogState.of(log).live.values() for step in steps]
    live = {step.step_id for step in of_all if step.proposal.policy == POLICY}
    return [entry for entry in last_entries(log) if entry.step_id in live]


def _entity(options: argparse.Namespace) -> Entity:
    user: Name = DEFAULT if options.user_default else options.user
    client_id: Name = DEFAULT if options.client_default else options.client_id
    if user is None and client_id is None:
        options.usage(
            "whose quota: give --user, --user-default, --client or --client-default, or a pair of them"
        )
    return Entity(user, client_id)


def _until_ms(length_ms: int | None, until: Since | None, time_ms: int) -> int:
    until_ms = time_ms + length_ms if length_ms is not None else until.time_ms if until is not None else 0
    if until_ms <= time_ms:
        raise UserError(f"--until: {utc_text(until_ms)} is over, expected a time to come")
    return until_ms


def _value(options: argparse.Namespace) -> float:
    key = QuotaKey(options.key)
    try:
        return quota_value(key, options.value, is_above_zero=True)
    except ValueError as error:
        options.usage(f"argument --value: {options.value!r}, expected {error}, e.g. {example_of(key)}")
        raise AssertionError from error  # options.usage ends the program
