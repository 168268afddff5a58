"""`kquota override`: a person's own change of a quota for a time, through the same guards and the same log.

Exit codes: 0 done or shown, 1 an error, 3 refused by a guard. Expiry restores exactly what was there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kquota_spark.cli.enforce.freeze import login_name, reason_of
from kquota_spark.cli.enforce.plan_page import last_entries
from kquota_spark.cli.enforce.plans import (
    acted,
    exit_code_of,
    only_shown,
    plan_entries,
    show_steps,
    take_back,
)
from kquota_spark.cli.options import (
    Since,
    add_form_option,
    add_settings_options,
    add_yes_option,
    length_argument,
    settings_of,
    time_argument,
)
from kquota_spark.cli.text.page import say
from kquota_spark.enforce.changes import Event, LogEntry, Mode, Proposal, Quota
from kquota_spark.enforce.in_memory import InMemoryLedger
from kquota_spark.enforce.log_state import LogState
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.errors import UserError
from kquota_spark.formats.quota_files.quota_file import finite_number
from kquota_spark.model.quotas.entities import DEFAULT, Entity, Name
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.process.clock import now_ms
from kquota_spark.store.reading import utc_text

POLICY = "override"


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `override`."""
    override = subparsers.add_parser(
        "override", description="{about}. Exit codes: 0 done, 1 an error, 3 refused by a guard."
    )
    commands = override.add_subparsers(required=True, metavar="COMMAND")
    setting = commands.add_parser("set", help="set one key of one entity until a time")
    _add_quota_options(setting)
    when = setting.add_mutually_exclusive_group(required=True)
    when.add_argument("--for", dest="length_ms", type=length_argument, metavar="T", help="30s, 10m, 2h, 1d")
    when.add_argument("--until", type=time_argument, metavar="T", help="an ISO time in UTC")
    setting.add_argument("--reason", required=True, metavar="TEXT", help="why; it is kept in the log")
    setting.set_defaults(run=run_set)
    listing = commands.add_parser("list", help="those in force or under way")
    listing.set_defaults(run=run_list)
    expire = commands.add_parser("expire", help="put back now what was there before one")
    expire.add_argument("plan_id", metavar="PLAN", help="as kquota override list names it")
    expire.set_defaults(run=run_expire)
    for parser in (setting, expire):
        add_yes_option(parser)
    for parser in (setting, listing, expire):
        add_settings_options(parser)
        add_form_option(parser)


def _add_quota_options(parser: argparse.ArgumentParser) -> None:
    user = parser.add_mutually_exclusive_group()
    user.add_argument("--user", metavar="NAME", help="of this user")
    user.add_argument("--user-default", action="store_true", help="of users without a quota of their own")
    client = parser.add_mutually_exclusive_group()
    client.add_argument("--client", metavar="ID", help="of this client id; with a user, of the pair")
    client.add_argument(
        "--client-default", action="store_true", help="of client ids without a quota of their own"
    )
    parser.add_argument("--key", required=True, choices=[key.value for key in QuotaKey], help="which quota")
    parser.add_argument(
        "--value",
        required=True,
        type=_amount,
        metavar="N",
        help="per broker: bytes/s, percent of a thread, or 1/s",
    )


def run_set(options: argparse.Namespace) -> int:
    """Set one, or show what the guards would say.

    Raises:
        UserError: no entity, no reason, an end that is over, or a server or table that cannot be used.
    """
    from kquota_spark.enforcement.assembly import enforcing, wait_for_lease
    from kquota_spark.enforcement.situation import override_evidence

    settings, time_ms = settings_of(options), now_ms()
    quota = Quota(_entity(options), QuotaKey(options.key))
    reason, until_ms = reason_of(options.reason), _until_ms(options.length_ms, options.until, time_ms)
    with enforcing(settings, login_name()) as run:
        wanted = Proposal(
            quota=quota,
            before=run.edges.target.read([quota])[quota].value,
            after=options.value,
            policy=POLICY,
            reason=reason,
            expires_at_ms=until_ms,
            evidence=override_evidence(settings, quota, time_ms),
            is_penalty=True,
        )
        situation = run.situation(time_ms)
        if not options.yes:
            ledger = InMemoryLedger()
            ledger.append(run.edges.ledger.entries())
            entries = run.with_ledger(ledger).plan([wanted], situation, time_ms).entries
            only_shown("sent", "kquota override set", entries, options.output)
            return exit_code_of(entries)
        wait_for_lease(run)
        plan = run.enforcer.plan([wanted], situation, time_ms)
        rows = list(plan.entries)
        if run.policies.mode_of(POLICY) >= Mode.APPROVE:
            rows += run.enforcer.approve(plan.plan_id, login_name(), time_ms)
            rows += run.enforcer.apply(plan.plan_id, situation, time_ms)
    said = f"plan {plan.plan_id}: it ends at {utc_text(until_ms)} if jobs/enforce.py runs then"
    if not any(row.event is Event.APPLIED for row in rows):
        said = "nothing is in force: see kquota enforce status"
        if run.policies.mode_of(POLICY) < Mode.APPROVE:
            said = f"mode {run.policies.mode.name.lower()} in {settings.enforcement.policy_file}: nothing was sent"
    return acted("kquota override set", rows, options.output, said)


def run_list(options: argparse.Namespace) -> int:
    """Show those in force."""
    live = _live(EnforcementLog(settings_of(options)).entries())
    if options.output == "table" and not live:
        say("no override is in force")
        return 0
    show_steps("kquota override list", live, options.output)
    return 0


def run_expire(options: argparse.Namespace) -> int:
    """Put back what was there before one.

    Raises:
        UserError: there is none of this name in force.
    """
    settings = settings_of(options)
    entries = plan_entries(settings, options.plan_id)
    if any(entry.proposal.policy != POLICY for entry in entries):
        raise UserError(f"plan {options.plan_id} is no override: kquota enforce rollback takes plans back")
    return take_back("kquota override expire", settings, entries, options.output, is_agreed=options.yes)


def _live(log: Sequence[LogEntry]) -> list[LogEntry]:
    of_all = [step for steps in LogState.of(log).live.values() for step in steps]
    live = {step.step_id for step in of_all if step.proposal.policy == POLICY}
    return [entry for entry in last_entries(log) if entry.step_id in live]


def _entity(options: argparse.Namespace) -> Entity:
    user: Name = DEFAULT if options.user_default else options.user
    client_id: Name = DEFAULT if options.client_default else options.client
    if user is None and client_id is None:
        raise UserError(
            "whose quota: give --user, --user-default, --client or --client-default, or a pair of them"
        )
    return Entity(user, client_id)


def _until_ms(length_ms: int | None, until: Since | None, time_ms: int) -> int:
    until_ms = time_ms + length_ms if length_ms is not None else until.time_ms if until is not None else 0
    if until_ms <= time_ms:
        raise UserError(f"--until: {utc_text(until_ms)} is over, expected a time to come")
    return until_ms


def _amount(text: str) -> float:
    value = finite_number(text)
    if value is None or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number above 0, e.g. 1500000")
    return value
