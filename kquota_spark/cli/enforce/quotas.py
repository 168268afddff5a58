"""`kquota lift`: lifts quotas, and restores exactly the values before (KIP-13's tooling).

Without --yes, nothing is sent to the cluster. `kquota quotas disable`, `enable` and `status` are the old names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kquota_spark.cli.enforce.freeze import login_name, reason_of
from kquota_spark.cli.enforce.ticket import add_ticket_option
from kquota_spark.cli.exit_codes import DONE, ERROR, NOTHING, NOTHING_DONE
from kquota_spark.cli.options import (
    add_client_option,
    add_form_option,
    add_settings_options,
    add_yes_option,
    settings_of,
)
from kquota_spark.cli.quotas.undo import settings_words, undo_of
from kquota_spark.cli.text.page import print_line
from kquota_spark.cli.text.render import Colour, Format, Report, Row, Shown, show
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Quota, StepId
from kquota_spark.enforce.lifting import (
    Fate,
    FencedError,
    Lifter,
    Line,
    Scope,
    in_batches,
    lifts,
    planned_lifting,
    planned_restoring,
)
from kquota_spark.enforce.log_state import LogState, Step
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.formats.text.person_units import counted, iso_time, quota_text
from kquota_spark.model.quotas.entities import DEFAULT, Name
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.process.clock import now_ms

if TYPE_CHECKING:
    from kquota_spark.enforcement.assembly import Edges

COMMANDS = {
    "lift": (
        "changes with guards",
        "remove the brokers' quotas for a time; --end puts back exactly what was there",
        "kquota lift --user alice --reason 'incident 4711'",
        "kquota lift --end --user alice --yes",
    ),
    "quotas": (
        "unlisted",
        "the old name of kquota lift: disable, enable, status",
        "kquota quotas disable --user alice --reason 'incident 4711'",
        "kquota quotas enable --user alice --yes",
    ),
}
_OWN = {ERROR: "an error, or a quota is not as asked", NOTHING: NOTHING_DONE}
CODES = {"lift": _OWN, "quotas disable": _OWN, "quotas enable": _OWN}

_COLUMNS = ("entity", "key", "before", "after", "status", "detail")
_STATUS_COLUMNS = (
    "entity",
    "key",
    "value",
    "since",
    "actor",
    "reason",
    "is_in_doubt",
    "plan_id",
    "step",
    "ticket",
)


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lift`, and its old name `quotas` with its subcommands."""
    lift = subparsers.add_parser("lift")
    what = lift.add_mutually_exclusive_group()
    what.add_argument("--end", action="store_true", help="put back what was lifted, to the byte")
    what.add_argument("--list", action="store_true", help="which quotas are lifted, since when and by whom")
    _add_options(lift, run_lift)
    _add_reason(lift)
    add_yes_option(lift)
    group = subparsers.add_parser("quotas")
    commands = group.add_subparsers(required=True, metavar="COMMAND")
    for name, run, instead in (
        ("disable", run_disable, ""),
        ("enable", run_enable, " --end"),
        ("status", run_status, " --list"),
    ):
        about = f"the old name of kquota lift{instead}"
        old = commands.add_parser(name, help=about, description=about)
        _add_options(old, run)
        if run is run_disable:
            _add_reason(old)
        if run is not run_status:
            add_yes_option(old)


def _add_reason(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", metavar="TEXT", help="why; goes into enforcement_log, needed with --yes")
    add_ticket_option(parser)


def _add_options(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    add_settings_options(parser)
    selectors = parser.add_argument_group("whose", "all that match; without any of these, the whole cluster")
    user = selectors.add_mutually_exclusive_group()
    user.add_argument("--user", metavar="NAME", help="this user, with any client id or none")
    user.add_argument("--user-default", action="store_true", help="the default user, likewise")
    client = selectors.add_mutually_exclusive_group()
    add_client_option(client, "this client id, of any user or none")
    client.add_argument("--client-default", action="store_true", help="the default client id, likewise")
    add_form_option(parser)
    parser.set_defaults(run=run, usage=parser.error)


def run_lift(options: argparse.Namespace) -> int:
    """Lift quotas, restore them with --end, or show the lifted ones with --list.

    Raises:
        UserError: the cluster or the log cannot be used, or --yes has no reason.
        SystemExit: with 2, for an option that --end or --list does not take.
    """
    if options.end or options.list:
        given = {
            "--reason": options.reason,
            "--ticket": options.ticket,
            "--yes": options.list and options.yes,
        }
        for name, value in given.items():
            if value:
                options.usage(f"{name}: not with {'--end' if options.end else '--list'}")
        return run_enable(options) if options.end else run_status(options)
    return run_disable(options)


def run_disable(options: argparse.Namespace) -> int:
    """Lift quotas, or show which quotas would be lifted.

    Raises:
        UserError: the cluster or the log cannot be used, or --yes has no reason.
    """
    settings, scope = settings_of(options, "tables"), _scope_of(options)
    reason = reason_of(options.reason) if options.yes else ""
    with _edges(settings) as edges:
        if not options.yes:
            lines = planned_lifting(_in_force(settings, scope), _lifted(edges))
            return _show("kquota lift", lines, options.output, _nothing_changed(lines, "nothing to lift"))
        lifter = _lifter(settings, edges, "kquota lift")
        earlier = len(_selected(lifter.lifted, scope))
        lines = planned_lifting(_in_force(settings, scope), lifter.lifted)
        kept = [line for line in lines if line.fate is Fate.KEPT]
        meant = [line.quota for line in lines if line.fate is Fate.LIFT]
        plan_id, step = f"disable-{now_ms()}", 1
        done: list[Line] = []
        for batch in in_batches(meant):
            done += lifter.lift(batch, StepId(plan_id, step), reason, now_ms(), options.ticket)
            step += len(batch)
            _progress("lifted", len(done), len(meant))
        may_set_again = "\nour own enforcement continues and may set quotas: kquota freeze stops it"
        advice = "" if edges.switch.frozen() else may_set_again
    text = f"{_count(done, Fate.LIFTED)} lifted; kquota lift --end puts them back{advice}"
    code = _show("kquota lift", [*done, *kept], options.output, text if done else "nothing to lift")
    if any(line.fate is Fate.LIFTED for line in done):
        others = f"kquota lift --end puts back {counted(earlier, 'quota')} lifted earlier, too"
        undo = f"no undo of this alone: {others}" if earlier else undo_of(_way_back(options))
        print_line(undo, sys.stdout if options.output == "table" else sys.stderr)
    return code


def _way_back(options: argparse.Namespace) -> list[str]:
    """The command that puts back all lifted quotas of the same names."""
    selectors = [f"--user={options.user}"] if options.user is not None else []
    selectors += [f"--client-id={options.client_id}"] if options.client_id is not None else []
    selectors += ["--user-default"] if options.user_default else []
    selectors += ["--client-default"] if options.client_default else []
    return ["kquota", "lift", "--end", *selectors, "--yes", *settings_words(options)]


def run_enable(options: argparse.Namespace) -> int:
    """Restore lifted quotas, or show which quotas would be restored.

    Raises:
        UserError: the cluster or the log cannot be used.
    """
    settings, scope = settings_of(options, "tables"), _scope_of(options)
    with _edges(settings) as edges:
        if not options.yes:
            meant = _selected(_lifted(edges), scope)
            held = edges.cluster.read(list(meant)) if meant else {}
            values = {quota: held[quota].value for quota in meant}
            lines = planned_restoring(meant.values(), values)
            return _show("enable", lines, options.output, _nothing_changed(lines, "nothing is lifted"))
        lifter = _lifter(settings, edges, "kquota lift --end")
        meant = _selected(lifter.lifted, scope)
        done: list[Line] = []
        for batch in in_batches(reversed(meant)):
            done += lifter.restore([meant[quota] for quota in batch], now_ms())
            _progress("put back", len(done), len(meant))
        still = len(_selected(lifter.lifted, Scope())) if scope != Scope() else 0
    text = f"{_count(done, Fate.RESTORED)} put back as before" if done else "nothing is lifted"
    return _show("kquota lift --end", done, options.output, text + _skipped(done, still))


def run_status(options: argparse.Namespace) -> int:
    """Show the lifted quotas of the log.

    Raises:
        UserError: the log cannot be read.
    """
    from kquota_spark.enforcement.edges.log import EnforcementLog

    scope = _scope_of(options)
    found = lifts(LogState.of(EnforcementLog(settings_of(options, "tables")).entries()))
    rows = [_status_row(lift) for lift in found if scope.holds(lift.proposal.quota.entity)]
    shown = (
        Shown("since", lambda row: iso_time(row["since"] // 1_000 * 1_000), is_text=True, keep=20),
        Shown("entity", lambda row: entity_text(row["entity"]), is_text=True, keep=20),
        Shown("was", lambda row: quota_text(QuotaKey(row["key"]), row["value"])),
        Shown("key", lambda row: row["key"], is_text=True),
        Shown("by", lambda row: row["actor"], is_text=True),
        Shown("reason", lambda row: row["reason"], is_text=True, rank=2),
        Shown("ticket", lambda row: row["ticket"] or "-", is_text=True, rank=1),
        Shown("", lambda row: "in doubt" if row["is_in_doubt"] else "", is_text=True),
    )
    footer = f"{counted(len(rows), 'quota')} lifted; kquota lift --end puts them back"
    if any(row["is_in_doubt"] for row in rows):
        footer += "\nin doubt: a run was cut short; lift and lift --end read back what became of it"
    report = Report(
        "kquota lift --list", _STATUS_COLUMNS, rows, shown, times=frozenset({"since"}), footer=footer,
        when_empty="nothing is lifted", colour=lambda row: Colour.YELLOW if row["is_in_doubt"] else None,
    )  # fmt: skip
    show(report, options.output)
    return 0


def _scope_of(options: argparse.Namespace) -> Scope:
    """The user and client id that the options select."""
    user: Name = DEFAULT if options.user_default else options.user
    client_id: Name = DEFAULT if options.client_default else options.client_id
    return Scope(user, client_id)


@contextmanager
def _edges(settings: Settings) -> Iterator[Edges]:
    from kquota_spark.enforcement.assembly import enforcement_edges

    try:
        with enforcement_edges(settings) as edges:
            yield edges
    except FencedError:
        raise UserError(
            "another enforcer has taken the lease meanwhile: nothing more was sent; run it again, it continues where "
            "it ended"
        ) from None


def _lifter(settings: Settings, edges: Edges, command: str) -> Lifter:
    """A lifter that holds the lease. It has read back the unconfirmed writes of earlier runs."""
    from kquota_spark.enforcement.assembly import taken_lease

    lifter = Lifter(edges.cluster, edges.ledger, taken_lease(settings, edges.lease, command), login_name())
    lifter.settle(now_ms())
    return lifter


def _in_force(settings: Settings, scope: Scope) -> dict[Quota, float]:
    """The selected quotas, as the cluster has them now."""
    from kquota_spark.quotas.sources import from_cluster

    history = from_cluster(settings)
    for problem in history.problems:
        print(f"not read as quotas, and left as it is: {terminal_text(problem)}", file=sys.stderr)
    time_ms = now_ms()
    return {
        Quota(entity, key): value
        for entity in history.book
        if scope.holds(entity) and (period := history.book.at(entity, time_ms)) is not None
        for key, value in period.values.items()
        if isinstance(key, QuotaKey)
    }


def _lifted(edges: Edges) -> list[Step]:
    return lifts(LogState.of(edges.ledger.entries()))


def _selected(lifted: Sequence[Step], scope: Scope) -> dict[Quota, Step]:
    return {lift.proposal.quota: lift for lift in lifted if scope.holds(lift.proposal.quota.entity)}


def _count(lines: Sequence[Line], fate: Fate) -> str:
    return counted(sum(line.fate is fate for line in lines), "quota")


def _skipped(lines: Sequence[Line], still: int) -> str:
    """The quotas that were not restored, each with its reason, and the number of other quotas that are still lifted."""
    others = [line for line in lines if line.fate is not Fate.RESTORED]
    skipped = [
        f"\nskipped: {entity_text(str(line.quota.entity))} {line.quota.key}: {line.fate.value}"
        for line in others
    ]
    if still:
        skipped.append(f"\n{counted(still, 'quota')} of others stay lifted: kquota lift --end without a name")
    return "".join(skipped)


def _nothing_changed(lines: Sequence[Line], when_empty: str) -> str:
    return "nothing was changed; add --yes to do it" if lines else when_empty


def _progress(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"{what} {done:,} of {total:,}", file=sys.stderr)


def _show(command: str, lines: Sequence[Line], form: Format, text: str) -> int:
    shown = (
        Shown("entity", lambda row: entity_text(row["entity"]), is_text=True, keep=24),
        Shown("key", lambda row: row["key"], is_text=True, keep=18),
        Shown("before", lambda row: quota_text(QuotaKey(row["key"]), row["before"])),
        Shown("after", lambda row: quota_text(QuotaKey(row["key"]), row["after"])),
        Shown("", _status_text, is_text=True, keep=12),
    )
    bad = {fate.value for fate in Fate if fate.is_bad}
    report = Report(
        command, _COLUMNS, [_row(line) for line in lines], shown, footer=text,
        when_empty=text, colour=lambda row: Colour.RED if row["status"] in bad else None,
    )  # fmt: skip
    show(report, form)
    if form != "table":
        print(text, file=sys.stderr)
    if any(line.fate.is_bad for line in lines):
        return ERROR
    return DONE if any(line.fate in (Fate.LIFTED, Fate.RESTORED) for line in lines) else NOTHING


def _row(line: Line) -> Row:
    return {
        "entity": str(line.quota.entity),
        "key": line.quota.key.value,
        "before": line.before,
        "after": line.after,
        "status": line.fate.value,
        "detail": line.detail,
    }


def _status_text(row: Row) -> str:
    return f"{row['status']}: {row['detail']}" if row["detail"] else str(row["status"])


def _status_row(lift: Step) -> Row:
    entry, wanted = lift.sending or lift.planned, lift.proposal
    return {
        "entity": str(wanted.quota.entity),
        "key": wanted.quota.key.value,
        "value": wanted.before,
        "since": entry.at_ms,
        "actor": entry.actor,
        "reason": wanted.reason,
        "is_in_doubt": lift.is_in_doubt,
        "plan_id": entry.step_id.plan_id,
        "step": entry.step_id.step,
        "ticket": entry.ticket,
    }
