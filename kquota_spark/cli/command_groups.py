"""All commands: the heading of each in `kquota --help`, and the module that contains it.

A command is one file below `kquota_spark/cli`. It registers itself with a literal:

    COMMANDS = {
        "watch": ("programs", "follow the quotas into quota_changes and quota_rules", "kquota watch --once"),
    }

The literal contains the name, the heading, the line of help, and one or two examples for the end of the command's help.
A command imports only its own module.
"""

from __future__ import annotations

import argparse
import ast
import os
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.cli.text.page import columns_of

WIDEST = 100
_HERE = os.path.dirname(__file__)  # noqa: PTH120
_INDENT = 15
_NAMES_AT = 13
_QUESTION = "kquota: which clients do Kafka quotas slow down, and why?"
_MORE = "kquota --help has all; kquota help tutorial begins"
_BEGINNINGS = (
    ("try", "a recorded broker, in ten seconds, without Kafka and Spark"),
    ("status", "does the audit work; what to do next"),
    ("top", "who is at a limit now"),
    ("throttled", "who was slowed down, most first"),
    ("explain", "why a client has its limit"),
    ("timeline", "one client, minute by minute"),
    ("whatif", "the same traffic under other quotas"),
    ("describe", "quotas of a running cluster (alter sets them)"),
    ("report", "one page about a day, also for a tenant"),
    ("doctor", "is every line counted"),
)
"""The ten commands that `kquota` prints without arguments. They answer most questions."""
_BELOW = {
    "programs": (("enforce run", "the enforcer: sends and expires changes, as the policy file allows"),)
}
"""Subcommands that run as programs. The help lists them beside the commands of a heading."""


class Command(NamedTuple):
    """One command of `kquota`."""

    name: str
    module: str
    """Below `kquota_spark.cli`. Its `add_commands` adds this command and any other commands of the module."""
    about: str
    examples: tuple[str, ...] = ()
    """Whole command lines that work."""


_HEADINGS = ("answers", "quotas", "changes with guards", "programs", "help")
_UNLISTED = "unlisted"
"""The heading of old names. They work, and no list shows them."""
_ORDER = (
    "try", "status", "top", "throttled", "why", "slow", "budget", "rightsize", "explain", "timeline", "whatif",
    "shadow", "impact", "report", "violations",
    "decisions", "usage", "connections", "evidence", "findings", "agreement", "doctor", "resolve", "replay",
    "describe", "alter", "import", "export", "diff", "review", "migration", "drift", "tree", "kfk", "context",
    "enforce", "override", "exempt", "freeze", "unfreeze", "lift",
    "init", "audit", "enforce run", "ship", "collect", "watch", "notify", "backfill", "restate", "maintain", "serve",
    "exporter", "demo", "cluster", "help", "tables", "completion",
)  # fmt: skip
"""The order of the commands below their headings; other commands follow by name."""
_BEGINS, _ENDS = b"\nCOMMANDS = ", b"\n}\n"


def _found() -> Iterator[tuple[str, Command]]:
    """Headings and commands of all files. Reads the files without importing them, which would take a second."""
    for folder, _, names in os.walk(_HERE):
        for name in names:
            if not name.endswith(".py"):
                continue
            with open(f"{folder}/{name}", "rb") as file:  # noqa: PTH123 - each command reads them all
                text = file.read()
            after = text.partition(_BEGINS)[2]
            if after:
                module = f"{folder[len(_HERE) :]}/{name[:-3]}".strip("/").replace("/", ".")
                literal = after.partition(_ENDS)[0].decode() + "}"
                for command, (heading, about, *examples) in ast.literal_eval(literal).items():
                    yield heading, Command(command, module, about, tuple(examples))


def _place(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _groups() -> dict[str, tuple[Command, ...]]:
    found: dict[str, list[Command]] = {heading: [] for heading in (*_HEADINGS, _UNLISTED)}
    for heading, command in _found():
        found[heading].append(command)
    return {
        heading: tuple(sorted(commands, key=lambda one: _place(one.name)))
        for heading, commands in found.items()
    }


GROUPS = _groups()
"""The commands by heading, in the order of the help. Each command has one heading."""
UNLISTED = GROUPS.pop(_UNLISTED)
"""Old names of commands."""


def all_commands() -> list[Command]:
    """The commands of all groups, and the old names."""
    return [command for commands in (*GROUPS.values(), UNLISTED) for command in commands]


if TYPE_CHECKING:
    _Added = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    _Added = argparse._SubParsersAction  # generic for type checkers alone


class Commands(_Added):
    """Adds commands, each with its line of help."""

    def add_parser(
        self, name: str, *, description: str | None = "{about}", **options: Any
    ) -> argparse.ArgumentParser:
        """Add a command. The text of its own help is the description; `{about}` in it becomes the line of help."""
        [about] = [command.about for command in all_commands() if command.name == name]
        whole = description and description.replace("{about}", about)
        return super().add_parser(name, help=about, description=whole, **options)


def module_of(name: str) -> str | None:
    """The module of a command; None if there is no such command."""
    return next((command.module for command in all_commands() if command.name == name), None)


def examples_text(program: str) -> str:
    """The examples of a command, or of a subcommand such as `kquota enforce plan`; empty if there are none."""
    words = program.split()
    found = [
        example
        for command in all_commands()
        for example in command.examples
        if len(words) > 1 and example.split()[: len(words)] == words
    ]
    return "\n".join(["Examples:", *(f"  {example}" for example in found)]) if found else ""


def overview() -> str:
    """The ten commands that answer most questions; it fits a small terminal."""
    lines = [f"  {name.ljust(_NAMES_AT - 3)} {about}" for name, about in _BEGINNINGS]
    return "\n".join([_QUESTION, "", *lines, "", _MORE])


def listing() -> str:
    """The commands with their lines of help under their headings, as wide as the terminal, at most 100 columns."""
    columns = min(WIDEST, columns_of())
    lines: list[str] = []
    for title, commands in GROUPS.items():
        lines.append(f"{title}:")
        rows = [(command.name, command.about) for command in commands]
        for name, about in sorted((*rows, *_BELOW.get(title, ())), key=lambda row: _place(row[0])):
            begin = f"  {name.ljust(_INDENT - 3)} "
            lines += textwrap.wrap(about, columns, initial_indent=begin, subsequent_indent=" " * _INDENT)
        lines.append("")
    return "\n".join([*lines, "kquota COMMAND --help shows the options of a command."])
