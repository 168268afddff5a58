"""The errors that a user is meant to see."""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CAUSE = "↳"


class UserError(Exception):
    """One line for the user: what is wrong, where, and what to do.

    Commands print it as `kquota: <message>` and exit 1; it never comes with a traceback.
    """


class UnreachableError(UserError):
    """A server did not answer; a caller with an earlier answer may continue with it and must report that it does."""


def one_line(error: BaseException) -> str:
    """The message of a library's error in one line: deltalake puts each cause on a line below its effect."""
    effect, *below = _COLOUR.sub("", str(error)).split("\n")
    causes = (line.strip().removeprefix(_CAUSE).strip() for line in below if line.lstrip().startswith(_CAUSE))
    return ": ".join((effect, *causes))
