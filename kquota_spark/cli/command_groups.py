"""Every command: under which heading `kquota --help` names it, and which module has it.

A command is one file below `kquota_spark/cli`, which registers itself by a literal:

    COMMANDS = {
        "violations": ("look", "episodes of buckets above their limit"),
    }

That is its name, its heading and its line of help. A command imports its own module alone.
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
    "kquota replay --sample   a first try without Kafka, Spark and Java",
)


class Command(NamedTuple):
    """One command of `kquota`."""

    name: str
    module: str
    """Of `kquota_spark.cli`; its `add_commands` adds this command, and any other one that it has."""
    about: str


_HEADINGS = ("look", "quotas", "judge", "run", "enforce", "cluster")
_ORDER = (
    "status", "top", "timeline", "violations", "decisions", "usage", "report", "tables", "serve", "exporter",
    "resolve", "explain", "tree", "describe", "alter", "import", "export", "diff", "drift", "kfk", "context",
    "agreement", "findings", "doctor", "replay", "whatif",
    "audit", "ship", "collect", "watch", "notify", "backfill", "restate", "maintain", "help", "completion",
    "enforce", "override", "exempt", "freeze", "unfreeze", "quotas", "cluster", "demo",
)  # fmt: skip
"""Which come first below their headings; others follow by name."""
_BEGINS, _ENDS = b"\nCOMMANDS = ", b"\n}\n"


def _found() -> Iterator[tuple[str, Command]]:
    """The commands of all files with their headings. The files are read and not imported, which would take a second."""
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
                for command, (heading, about) in ast.literal_eval(literal).items():
                    yield heading, Command(command, module, about)


def _place(command: Command) -> tuple[int, str]:
    return (_ORDER.index(command.name) if command.name in _ORDER else len(_ORDER), command.name)


def _groups() -> dict[str, tuple[Command, ...]]:
    found: dict[str, list[Command]] = {heading: [] for heading in _HEADINGS}
    for heading, command in _found():
        found[heading].append(command)
    return {heading: tuple(sorted(commands, key=_place)) for heading, commands in found.items()}


GROUPS = _groups()
"""In the order in which they are named; each command is in one group."""


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
        """A command; its own help says the description, with `{about}` for the line of help."""
        [about] = [command.about for command in all_commands() if command.name == name]
        whole = description and description.replace("{about}", about)
        return super().add_parser(name, help=about, description=whole, **options)


def module_of(name: str) -> str | None:
    """The module of a command; None if there is no such command."""
    return next((command.module for command in all_commands() if command.name == name), None)


def overview() -> str:
    """The names of all commands under their headings, and where to begin; it fits a small terminal."""
    columns = min(WIDEST, columns_of())
    lines = ["usage: kquota COMMAND ...", ""]
    for title, commands in GROUPS.items():
        names = ", ".join(command.name for command in commands)
        begin = f"  {title}:".ljust(_NAMES_AT)
        lines += textwrap.wrap(names, columns, initial_indent=begin, subsequent_indent=" " * _NAMES_AT)
    return "\n".join([*lines, "", *_BEGINNINGS])


def listing() -> str:
    """The commands under their headings, as wide as the terminal, 100 columns at most."""
    columns = min(WIDEST, columns_of())
    lines: list[str] = []
    for title, commands in GROUPS.items():
        lines.append(f"{title}:")
        for name, _, about in commands:
            begin = f"  {name.ljust(_INDENT - 3)} "
            lines += textwrap.wrap(about, columns, initial_indent=begin, subsequent_indent=" " * _INDENT)
        lines.append("")
    return "\n".join([*lines, "kquota COMMAND --help shows the options of a command."])
