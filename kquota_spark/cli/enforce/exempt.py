"""`kquota exempt`: names that enforcement never touches, kept in the policy file with its comments."""

from __future__ import annotations

import argparse
from pathlib import Path

from kquota_spark.cli.options import add_output_options, add_settings_options, settings_of
from kquota_spark.cli.text.page import say
from kquota_spark.cli.text.render import Report, Shown, show
from kquota_spark.config.exempt_list import with_exempt, without_exempt
from kquota_spark.enforce.guard_settings import Exempt, pattern_problem
from kquota_spark.enforce.policies.policy import Policies
from kquota_spark.enforcement.policies import edit_policy_file, unknown_exemptions
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import person_name

_KINDS = {"user": "users", "client": "client_ids", "pattern": "patterns"}


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
        which.add_argument("--client", metavar="ID", help="this client id")
        which.add_argument("--pattern", metavar="REGEX", help="whole names of users and client ids")
    add.add_argument("--force", action="store_true", help="also a name that has never been seen")
    add.set_defaults(run=run_add)
    remove.set_defaults(run=run_remove)
    listing = commands.add_parser("list", help="all of them")
    add_settings_options(listing)
    add_output_options(listing)
    listing.set_defaults(run=run_list)


def run_add(options: argparse.Namespace) -> int:
    """Add one.

    Raises:
        UserError: nobody of that name was ever seen, the pattern is none, or the file cannot be changed.
    """
    settings = settings_of(options)
    kind, name = _given(options)
    if kind == "pattern":
        if problem := pattern_problem(name):
            raise UserError(f"--pattern {name[:60]}: {problem}")
    elif not options.force:
        alone = Exempt(users=(name,)) if kind == "user" else Exempt(client_ids=(name,))
        for line in unknown_exemptions(settings, Policies(exempt=alone)):
            raise UserError(f"{line}; --force adds it anyway")
    path = Path(settings.enforcement.policy_file)
    is_new = edit_policy_file(path, lambda text: with_exempt(text, _KINDS[kind], name))
    said = "is exempt now" if is_new else "was exempt before"
    say(f"{kind} {terminal_text(person_name(name))} {said} ({path})")
    return 0


def run_remove(options: argparse.Namespace) -> int:
    """Remove one.

    Raises:
        UserError: it is not on the list, or the file cannot be changed.
    """
    settings = settings_of(options)
    kind, name = _given(options)
    path = Path(settings.enforcement.policy_file)
    if not edit_policy_file(path, lambda text: without_exempt(text, _KINDS[kind], name)):
        raise UserError(f"{kind} {person_name(name)} is not in exempt.{_KINDS[kind]} of {path}")
    say(f"{kind} {terminal_text(person_name(name))} is not exempt any more ({path})")
    return 0


def run_list(options: argparse.Namespace) -> int:
    """Show the list."""
    from kquota_spark.enforcement.policies import load_policies

    path = Path(settings_of(options).enforcement.policy_file)
    exempt = load_policies(path).exempt
    rows = [{"kind": kind, "name": name} for kind, field in _KINDS.items() for name in getattr(exempt, field)]
    shown = (
        Shown("kind", lambda row: row["kind"], is_text=True),
        Shown("name", lambda row: person_name(row["name"]), is_text=True),
    )
    when_empty = f"nobody is exempt ({path})"
    show(Report("kquota exempt list", ("kind", "name"), rows, shown, when_empty=when_empty), options.output)
    return 0


def _given(options: argparse.Namespace) -> tuple[str, str]:
    return next((kind, getattr(options, kind)) for kind in _KINDS if getattr(options, kind) is not None)
