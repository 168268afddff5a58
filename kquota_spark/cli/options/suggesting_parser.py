"""An argument parser that answers a typing error with the word that was probably meant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from kquota_spark.formats.text.escape import terminal_text

_USAGE_ERROR = 2
_MOST_LISTED = 10
"""Commands, options or values that one line has room for; --help lists them all."""


class SuggestingParser(argparse.ArgumentParser):
    """Prints one line for a usage error, with the nearest command, option or value, and where help is."""

    def error(self, message: str) -> NoReturn:
        """Print the line and exit with 2."""
        print(f"{self.prog}: {terminal_text(message)}", file=sys.stderr)
        print(f"{self.prog} --help shows the usage", file=sys.stderr)
        sys.exit(_USAGE_ERROR)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuse options that this command does not have, here where its own ones are known."""
        found, unknown = super().parse_known_args(args, namespace)
        options = [word for word in unknown if word.startswith("-")]
        if options:
            name = options[0].partition("=")[0]
            known = [option for action in self._actions for option in action.option_strings]
            self.error(f"unknown option {name!r}{_hint(name, known)}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            is_command = isinstance(action, argparse._SubParsersAction)
            name = "/".join(action.option_strings) or action.metavar or action.dest
            what = "command" if is_command else f"value of {name}"
            self.error(f"unknown {what} {value!r}{_hint(str(value), list(map(str, action.choices)))}")


def _hint(given: str, known: Sequence[str]) -> str:
    near = get_close_matches(given, known, n=1)
    if near:
        return f", did you mean {near[0]}?"
    return f", expected one of {', '.join(known)}" if len(known) <= _MOST_LISTED else ""
