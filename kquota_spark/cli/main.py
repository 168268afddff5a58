"""`kquota`: parses the arguments, runs one command, and returns an exit code of `exit_codes`."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import textwrap
from collections.abc import Collection, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from kquota_spark import __version__
from kquota_spark.cli.command_groups import (
    WIDEST,
    Commands,
    all_commands,
    examples_text,
    listing,
    module_of,
    overview,
)
from kquota_spark.cli.door import through_the_door
from kquota_spark.cli.exit_codes import ERROR, STOPPED, USAGE, codes_text, finds_by_2
from kquota_spark.cli.text.page import columns_of
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text

_MOST_LISTED = 12
"""Maximum number of commands or options in an error; --help lists all."""
_MOST_VALUES = 40
"""Maximum number of values of an option in an error, e.g. the names of tables."""
_NAMES = ("user", "client_id")
"""Options of any command that name a client."""
_OF_SETTINGS = re.compile(r"--config FILE|(?:quotas|kafka|ship|collect|enforcement)\.[a-z_]+")
"""Matches errors about something that a settings file decides."""


class _Parser(argparse.ArgumentParser):
    """Prints a usage error in one line, with the nearest command, option or value, and how to get help."""

    def format_help(self) -> str:
        codes = textwrap.fill(codes_text(self.prog.split()[1:]), min(WIDEST, columns_of()))
        # The shell must get an example in one piece, so it is not wrapped.
        examples = examples_text(self.prog)
        return f"{super().format_help()}\n{codes}\n" + (f"\n{examples}\n" if examples else "")

    _given: Sequence[str] = ()
    """The words that are being parsed."""

    def error(self, message: str) -> NoReturn:
        if message.endswith(" required") or (" required: " in message and not message.endswith(": COMMAND")):
            message = self._unknown_option() or message
        if message.endswith(": COMMAND"):
            message = f"which command: one of {', '.join(_below(self))}"
        print(f"{self.prog}: {terminal_text(message)}", file=sys.stderr)
        print(f"{self.prog} --help shows the usage", file=sys.stderr)
        sys.exit(USAGE)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        # Unknown options are refused here, because only this parser contains the options of the command.
        self._given = args or ()
        found, unknown = super().parse_known_args(args, namespace)
        options = [word for word in unknown if word.startswith("-")]
        if options:
            self.error(self._unknown_text(options[0]))
        if unknown:
            self.error(f"unexpected argument {unknown[0]!r}")
        return found, unknown

    def _unknown_option(self) -> str | None:
        """The error about the first unknown long option. It explains why a required one is missing."""
        for word in self._given:
            if word == "--":
                break
            # argparse ends the program if it is asked about a word that is no option.
            if not word.startswith("--"):
                continue
            name = word.partition("=")[0]
            if name not in self._option_string_actions and not self._get_option_tuples(name):
                return self._unknown_text(word)
        return None

    def _unknown_text(self, word: str) -> str:
        name = word.partition("=")[0]
        known = {option.lstrip("-"): option for action in self._actions for option in action.option_strings}
        # Without the hyphens, which all options share: `--tables` does not mean `--names`.
        near = get_close_matches(name.lstrip("-"), known, n=1)
        hint = f", did you mean {known[near[0]]}?" if near else _expected([*known.values()], _MOST_LISTED)
        return f"unknown option {name!r}{hint}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            is_command = isinstance(action, argparse._SubParsersAction)
            most = _MOST_LISTED if is_command else _MOST_VALUES
            name = "/".join(action.option_strings) or action.metavar or action.dest
            what = "command" if is_command else f"value of {name}"
            self.error(f"unknown {what} {value!r}{_hint(str(value), list(map(str, action.choices)), most)}")


def _below(found: argparse.ArgumentParser) -> list[str]:
    """The subcommands of a command."""
    return [
        name
        for action in found._actions
        if isinstance(action, argparse._SubParsersAction)
        for name in action.choices
    ]


def _hint(given: str, known: Sequence[str], most: int = _MOST_LISTED) -> str:
    near = get_close_matches(given, known, n=1)
    if near:
        return f", did you mean {near[0]}?"
    return _expected(known, most)


def _expected(known: Sequence[str], most: int) -> str:
    return f", expected one of {', '.join(known)}" if len(known) <= most else ""


class _Kquota(_Parser):
    """The parser of `kquota` itself. Its help lists the commands under headings."""

    def format_help(self) -> str:
        return f"{super().format_help()}\n{listing()}\n"


def parser(modules: Collection[str] | None = None) -> argparse.ArgumentParser:
    """The parser of `kquota`.

    Args:
        modules: modules to import, with all options of their commands; None for all. Other commands have only their
            names, for help and errors.
    """
    root = _Kquota(
        prog="kquota",
        usage="kquota [-h] [--version] COMMAND ...",
        description="Audit of Apache Kafka client quotas: reads the tables, replays request logs.",
    )
    root.add_argument("--version", action="version", version=f"kquota {__version__}")
    commands = root.add_subparsers(
        action=Commands,
        prog="kquota",
        required=True,
        metavar="COMMAND",
        help=argparse.SUPPRESS,
        parser_class=_Parser,
    )
    added = set()
    for command in all_commands():
        if modules is not None and command.module not in modules:
            commands.add_parser(command.name, add_help=False)
        elif command.module not in added:
            added.add(command.module)
            importlib.import_module(f"kquota_spark.cli.{command.module}").add_commands(commands)
    return root


def parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser that these arguments need: with the options of the command that they name."""
    module = module_of(_command_of(words))
    return parser([] if module is None else [module])


def _command_of(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """The parsed options.

    Raises:
        SystemExit: after help, or after a usage error that was printed.
    """
    try:
        options = parser_for(words).parse_args(words)
    except SystemExit as ended:
        if ended.code == USAGE and finds_by_2(_command_of(words)):
            raise SystemExit(ERROR) from None
        raise
    # Without a UTF-8 locale, Python keeps UTF-8 names as bytes. Paths stay so: the file system takes their bytes back.
    for name in _NAMES:
        value = getattr(options, name, None)
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            with suppress(UnicodeDecodeError):
                setattr(options, name, os.fsencode(value).decode("utf-8"))
    return options


def _open_missing_streams() -> None:
    """Open /dev/null for closed standard streams (`<&-`, some daemons). Python has None for them, which would crash."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - to the end


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _open_missing_streams()
    if "_ARGCOMPLETE" in os.environ:
        # The shell requests completions; this ends the process.
        from kquota_spark.cli.completion import complete

        complete(parser_for)
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        print(overview())
        return USAGE
    options = _parsed(words)
    code = 0

    def run() -> int:
        nonlocal code
        try:
            code = int(options.run(options))
        except UserError as error:
            if getattr(options, "has_only_defaults", False) and _OF_SETTINGS.search(str(error)):
                raise UserError(
                    f"no conf/kquota.yaml here and no --config, so defaults hold: {error}"
                ) from error
            raise
        sys.stdout.flush()  # at exit, Python would print a message and return 120 if the pipe is closed
        return code

    try:
        return through_the_door("kquota", run)
    except KeyboardInterrupt:
        return STOPPED
    except BrokenPipeError:
        # The reader closed the pipe (kquota ... | head). That is no error: return the exit code of the command.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code


if __name__ == "__main__":
    sys.exit(main())
