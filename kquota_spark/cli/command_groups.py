"""All commands: the heading of each in `kquota --help`, and the module that contains it.

A command is one file below `kquota_spark/cli`. It registers itself with a literal:

    COMMANDS = {
        "watch": ("run", "follow the quotas into quota_changes and quota_rules", "kquota watch --once"),
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
_NAMES_AT = 12
_BEGINNINGS = (
    "kquota help COMMAND      what a command does, with its options",
    "kquota help              the pages of the documentation, first of all tutorial",
    "kquota --help            every command with a line about it",
    "kquota try               a first try without Kafka, Spark and Java",
)


class Command(NamedTuple):
    """One command of `kquota`."""

    name: str
    module: str
    """Below `kquota_spark.cli`. Its `add_commands` adds this command and any other commands of the module."""
    about: str
    examples: tuple[str, ...] = ()
    """Whole command lines that work."""


_HEADINGS = ("look", "quotas", "judge", "run", "enforce", "cluster")
_ORDER = (
    "try", "status", "top", "throttled", "timeline", "violations", "decisions", "usage", "connections", "report",
    "tables", "serve", "exporter",
    "resolve", "explain", "tree", "describe", "alter", "import", "export", "diff", "drift", "kfk", "context",
    "agreement", "findings", "doctor", "replay", "whatif",
    "init", "audit", "ship", "collect", "watch", "notify", "backfill", "restate", "maintain", "help", "completion",
    "enforce", "override", "exempt", "freeze", "unfreeze", "quotas", "cluster", "demo",
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


def _place(command: Command) -> tuple[int, str]:
    return (_ORDER.index(command.name) if command.name in _ORDER else len(_ORDER), command.name)


def _groups() -> dict[str, tuple[Command, ...]]:
    found: dict[str, list[Command]] = {heading: [] for heading in _HEADINGS}
    for heading, command in _found():
        found[heading].append(command)
    return {heading: tuple(sorted(commands, key=_place)) for heading, commands in found.items()}


GROUPS = _groups()
"""The commands by heading, in the order of the help. Each command has one heading."""


def all_commands() -> list[Command]:
    """The commands of all groups."""
    return [command for commands in GROUPS.values() for command in commands]


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
    """The names of all commands under their headings, and the first commands to try; it fits a small terminal."""
    columns = min(WIDEST, columns_of())
    lines = ["usage: kquota COMMAND ...", ""]
    for title, commands in GROUPS.items():
        names = ", ".join(command.name for command in commands)
        begin = f"  {title}:".ljust(_NAMES_AT)
        lines += textwrap.wrap(names, columns, initial_indent=begin, subsequent_indent=" " * _NAMES_AT)
    return "\n".join([*lines, "", *_BEGINNINGS])


def listing() -> str:
    """The commands with their lines of help under their headings, as wide as the terminal, at most 100 columns."""
    columns = min(WIDEST, columns_of())
    lines: list[str] = []
    for title, commands in GROUPS.items():
        lines.append(f"{title}:")
        for command in commands:
            begin = f"  {command.name.ljust(_INDENT - 3)} "
            lines += textwrap.wrap(
                command.about, columns, initial_indent=begin, subsequent_indent=" " * _INDENT
            )
        lines.append("")
    return "\n".join([*lines, "kquota COMMAND --help shows the options of a command."])
