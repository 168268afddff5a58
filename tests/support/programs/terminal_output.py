"""What a command writes to a real pseudo-terminal of some width, and what such a terminal then shows."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import sys
import termios
import threading
from dataclasses import dataclass

import pyte
import pytest

from kquota_spark.cli.main import main

_MOST_LINES = 1_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What stands on the screen, and how many lines the command had ended."""

    code: int
    rows: list[str]
    """Rows of the terminal that were reached, without blanks at the right."""
    lines: int
    """Line feeds: a line that is too wide takes more rows than that."""


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, *arguments: str) -> Seen:
    """Run a command of `kquota` in this process, on a terminal of so many columns."""
    code, written = written_to_terminal(monkeypatch, columns, *arguments)
    screen = pyte.Screen(columns, _MOST_LINES)
    pyte.ByteStream(screen).feed(written)
    assert screen.cursor.y < _MOST_LINES - 1, "more lines than the screen has"
    rows = [row.rstrip() for row in screen.display[: screen.cursor.y]]
    return Seen(code, rows, written.count(b"\n"))


def written_to_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, *arguments: str) -> tuple[int, bytes]:
    """The exit code of a command, and all that it sends to a terminal of so many columns."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    received = io.BytesIO()
    reader = threading.Thread(target=_read_all, args=(controller, received))
    reader.start()
    with monkeypatch.context() as patch, os.fdopen(terminal, "w", encoding="utf-8") as out:
        patch.setenv("TERM", "xterm-256color")
        patch.delenv("NO_COLOR", raising=False)
        patch.setattr(sys, "stdout", out)
        code = main(list(arguments))
    reader.join()
    os.close(controller)
    return code, received.getvalue()


def _read_all(controller: int, received: io.BytesIO) -> None:
    """All that comes until the other side is closed, which Linux tells by an error."""
    while True:
        try:
            some = os.read(controller, 65_536)
        except OSError:
            return
        if not some:
            return
        received.write(some)
