"""The exit codes of all commands: the common ones, and those that the `CODES` of a module add."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from kquota_spark.cli.command_groups import module_of

DONE, ERROR, USAGE, REFUSED, NOTHING, STOPPED = 0, 1, 2, 3, 4, 130
FOUND = 2
"""`diff`, `drift`, `doctor` or `status` found something. Their usage errors are 1, because 2 is a find."""

_ERROR = "an error, in one line on standard error"
ALL = {DONE: "done", ERROR: _ERROR, USAGE: "a usage error", STOPPED: "stopped with Ctrl-C"}
"""The default meaning of each code. The `CODES` of a command replace single meanings."""

REFUSED_THERE = "an error, or the cluster refused"
NOT_AGREED = "nothing was done: you did not agree, or --yes is missing where there is no terminal"
NOTHING_DONE = "nothing was done: --yes is missing, there is nothing to do, or it waits for a person"


def own_codes(name: str) -> Mapping[str, Mapping[int, str]]:
    """The exit codes of a command and its subcommands that differ from `ALL`: the `CODES` of its module."""
    module = module_of(name)
    if module is None:
        return {}
    codes = getattr(importlib.import_module(f"kquota_spark.cli.{module}"), "CODES", {})
    return {words: own for words, own in codes.items() if words.split()[0] == name}


def codes_of(words: Sequence[str]) -> dict[int, str]:
    """The exit codes of a command with their meanings, ascending.

    Args:
        words: the command and its arguments, e.g. `enforce apply p-1`.
    """
    own = own_codes(words[0]) if words else {}
    found = own.get(" ".join(words[:2])) or own.get(" ".join(words[:1])) or {}
    return dict(sorted({**ALL, **found}.items()))


def finds_by_2(command: str) -> bool:
    """Whether exit code 2 of a command means that it found something, and not a usage error."""
    return FOUND in own_codes(command).get(command, {})


def codes_text(words: Sequence[str]) -> str:
    """The exit codes of a command in one sentence."""
    return "Exit codes: " + ", ".join(f"{code} {meaning}" for code, meaning in codes_of(words).items()) + "."
