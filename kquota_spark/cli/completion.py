"""`kquota completion`: a script for bash, zsh or fish, and its completions: commands, options, choices and names.

A user, a client id or a saved context is completed from the known names. Other people chose these names, so names that
are not printable are left out, and argcomplete quotes the rest for the shell. Settings are read only from a file that
the command line names with --config.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kquota_spark.errors import UserError
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey

if TYPE_CHECKING:
    from kquota_spark.enforcement.policies import KnownNames

COMMANDS = {
    "completion": (
        "help",
        "a script for the shell that completes kquota by the tab key",
        "kquota completion bash",
    ),
}

_PATHS = {"FILE", "PATH", "DIR", "DIRECTORY"}
"""Metavars of arguments that take a file; the shell completes them with file names."""
_MOST_NAMES = 200


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `completion`."""
    parser = subparsers.add_parser(
        "completion",
        description="Prints {about}: commands, options, their choices, and names that the tables know. "
        'bash: eval "$(kquota completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. '
        "fish: kquota completion fish > ~/.config/fish/completions/kquota.fish",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell it is for")
    parser.set_defaults(run=run_completion)


def run_completion(options: argparse.Namespace) -> int:
    """Print the script."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["kquota"], shell=options.shell))
    return 0


def complete(parser_for: Callable[[Sequence[str]], argparse.ArgumentParser]) -> None:
    """Answer the shell's request, which is in environment variables, and end the process.

    Args:
        parser_for: makes the parser for the words of the command line.
    """
    import argcomplete
    from argcomplete.completers import FilesCompleter, SuppressCompleter

    parser = parser_for(_words(os.environ.get("COMP_LINE", "")))
    files = FilesCompleter()
    for action in _actions(parser):
        if names := _NAMES.get(max(action.option_strings, key=len, default="")):
            action.completer = _offered(names)  # type: ignore[attr-defined]
        elif action.metavar in _PATHS:
            action.completer = files  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, default_completer=SuppressCompleter())


def _words(line: str) -> list[str]:
    """The words after `kquota`; an unclosed quote is closed at the end of the line."""
    for end in ("", '"', "'"):
        with contextlib.suppress(ValueError):
            return shlex.split(line + end)[1:]
    return []


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)


def _offered(names: Callable[[argparse.Namespace], Iterable[str]]) -> Callable[..., list[str]]:
    """A completer of names for argcomplete. It returns none after an error, because nobody would read a message."""

    def offered(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        try:
            known = sorted(name for name in names(parsed_args) if name.startswith(prefix))
        except (UserError, OSError):
            return []
        return [name for name in known if name and name.isprintable()][:_MOST_NAMES]

    return offered


def _known(options: argparse.Namespace) -> KnownNames:
    from kquota_spark.cli.settings_file import settings_from
    from kquota_spark.enforcement.policies import known_names

    # An unfinished command line may lack values that the parser would have set, and a command may have no --tables.
    # Anybody may have written conf/kquota.yaml of the working directory, so completion does not read it.
    config, tables = (getattr(options, name, None) for name in ("config", "tables"))
    return known_names(settings_from(config, tables, is_quiet=True))


def _contexts(_: argparse.Namespace) -> Iterable[str]:
    from kquota_spark.config.contexts import contexts_file, load_contexts

    return load_contexts(contexts_file(os.environ)).contexts


def _entities(options: argparse.Namespace) -> Iterator[str]:
    """Values for `--name`: the types, and the known names of users and client ids."""
    yield from ("user=", "client-id=", "ip=")
    known = _known(options)
    yield from (f"user={name}" for name in known.users)
    yield from (f"client-id={name}" for name in known.client_ids)


def _keys(end: str) -> Callable[[argparse.Namespace], Iterable[str]]:
    return lambda _: [f"{key.value}{end}" for key in (*QuotaKey, *IpQuotaKey)]


_NAMES: dict[str, Callable[[argparse.Namespace], Iterable[str]]] = {
    "--user": lambda options: _known(options).users,
    "--client": lambda options: _known(options).client_ids,
    "--client-id": lambda options: _known(options).client_ids,
    "--tenant": lambda options: _known(options).users,
    "--name": _entities,
    "--add-config": _keys("="),
    "--delete-config": _keys(""),
    "--context": _contexts,
    "--kafka": _contexts,
}
