"""`kquota exempt`: names that enforcement never touches, in a file with one per line."""

from __future__ import annotations

import argparse
from pathlib import Path

from kquota_spark.cli.options import add_client_option, add_output_options, add_settings_options, settings_of
from kquota_spark.cli.text.page import print_line
from kquota_spark.cli.text.render import Report, Shown, show
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.guard_settings import Exempt
from kquota_spark.enforce.policies.policy import Policies
from kquota_spark.enforcement.exempt_file import ExemptName, add_exempt, remove_exempt
from kquota_spark.enforcement.policies import exempt_file, load_policies, unknown_exemptions
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import person_name

COMMANDS = {
    "exempt": (
        "changes with guards",
        "names that enforcement never touches: edits exempt.file of the policies",
        "kquota exempt add --client-id etl",
        "kquota exempt list",
    ),
}

_FIELDS = {"user": "users", "client": "client_ids", "pattern": "patterns"}


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `exempt`."""
    exempt = subparsers.add_parser("exempt")
    commands = exempt.add_subparsers(required=True, metavar="COMMAND")
    add = commands.add_parser("add", help="one name more, or a pattern for names")
    remove = commands.add_parser("remove", help="a name or pattern that is on the list")
    for parser in (add, remove):
        add_settings_options(parser)
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--user", metavar="NAME", help="this user")
        add_client_option(which, "this client id")
        which.add_argument("--pattern", metavar="REGEX", help="whole names of users and client ids")
    add.add_argument("--force", action="store_true", help="also a name that has never been seen")
    add.set_defaults(run=run_add)
    remove.set_defaults(run=run_remove)
    listing = commands.add_parser("list", help="all of them")
    add_settings_options(listing)
    add_output_options(listing)
    listing.set_defaults(run=run_list)


def run_add(options: argparse.Namespace) -> int:
    """Add a name.

    Raises:
        UserError: no client had that name, the pattern is invalid, or the file cannot be changed.
    """
    settings, name = settings_of(options), _given(options)
    if problem := name.problem:
        raise UserError(f"--{name.kind} {name.name[:60]}: {problem}")
    policies, path = _policies_and_file(settings)
    if name.name in getattr(policies.exempt, _FIELDS[name.kind]):
        print_line(f"{name.kind} {terminal_text(person_name(name.name))} was exempt before ({path})")
        return 0
    if name.kind != "pattern" and not options.force:
        alone = Exempt(users=(name.name,)) if name.kind == "user" else Exempt(client_ids=(name.name,))
        for line in unknown_exemptions(settings, Policies(exempt=alone)):
            raise UserError(f"{line}; --force adds it anyway")
    add_exempt(path, name)
    print_line(f"{name.kind} {terminal_text(person_name(name.name))} is exempt now ({path})")
    return 0


def run_remove(options: argparse.Namespace) -> int:
    """Remove a name.

    Raises:
        UserError: the name is not in the file, or the file cannot be changed.
    """
    settings, name = settings_of(options), _given(options)
    policies, path = _policies_and_file(settings)
    if not remove_exempt(path, name):
        where = f"is not in {path}"
        if name.name in getattr(policies.exempt, _FIELDS[name.kind]):
            where = (
                f"is in exempt.{_FIELDS[name.kind]} of {settings.enforcement.policy_file}: remove it there"
            )
        raise UserError(f"{name.kind} {person_name(name.name)} {where}")
    print_line(f"{name.kind} {terminal_text(person_name(name.name))} is not exempt any more ({path})")
    return 0


def _policies_and_file(settings: Settings) -> tuple[Policies, Path]:
    """The policies, and the path of the file with the names."""
    policy_file = Path(settings.enforcement.policy_file)
    policies = load_policies(policy_file)
    if not policies.exempt.file:
        raise UserError(
            f"{policy_file}: exempt.file names no file: set exempt: {{file: exempt.txt}}, and make it"
        )
    return policies, exempt_file(policy_file, policies)


def run_list(options: argparse.Namespace) -> int:
    """Show the list of exempt names."""
    path = Path(settings_of(options).enforcement.policy_file)
    exempt = load_policies(path).exempt
    rows = [
        {"kind": kind, "name": name} for kind, field in _FIELDS.items() for name in getattr(exempt, field)
    ]
    shown = (
        Shown("kind", lambda row: row["kind"], is_text=True),
        Shown("name", lambda row: person_name(row["name"]), is_text=True),
    )
    when_empty = f"nobody is exempt ({path})"
    show(Report("kquota exempt list", ("kind", "name"), rows, shown, when_empty=when_empty), options.output)
    return 0


def _given(options: argparse.Namespace) -> ExemptName:
    return next(
        ExemptName(kind, given)
        for kind, given in (
            ("user", options.user),
            ("client", options.client_id),
            ("pattern", options.pattern),
        )
        if given is not None
    )
