"""How many columns a command may fill: the one place that decides it."""

from __future__ import annotations

import os
import sys
from typing import TextIO

PIPE_COLUMNS = 100
"""Columns of a text that goes into a pipe or a file, and of a terminal that reports no width."""


def columns_of(stream: TextIO | None = None) -> int:
    """Columns of the terminal behind a stream (default standard output).

    Elsewhere the variable COLUMNS, else `PIPE_COLUMNS`. A terminal's own answer goes first: an exported COLUMNS does
    not follow a window that gets another size.
    """
    out = stream or sys.stdout
    if out.isatty():
        try:
            columns = os.get_terminal_size(out.fileno()).columns
        except OSError:
            columns = 0
        if columns > 0:
            return columns
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else PIPE_COLUMNS
