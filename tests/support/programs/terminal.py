"""A real program in a pseudo-terminal, and what its screen shows: pyte plays the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping

import pyte

from tests.support.places import ROOT

_LIMIT_S = 120.0
_CAN_FRAMES = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
"""Whether the terminal shows a frame only when it is whole, as a program asks it; and that this one does."""
_FRAME_BEGINS, _FRAME_ENDS = b"\x1b[?2026h", b"\x1b[?2026l"


class Terminal:
    """`kquota` with these arguments on a terminal of so many columns and rows."""

    def __init__(
        self,
        *arguments: str,
        columns: int = 100,
        rows: int = 24,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.exit_code: int | None = None
        self.modes: list[object] = []
        """Modes of the terminal when the program had ended."""
        of_child = {
            "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT),
            "PYTHONUTF8": "1",
            "PATH": os.environ["PATH"],
        }
        held, go = os.pipe()
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.read(held, 1)
            self._set_size(pty.STDOUT_FILENO, columns, rows)
            signal.signal(
                signal.SIGHUP, signal.SIG_DFL
            )  # tests that run under nohup would pass on that it is ignored
            command = [sys.executable, "-m", "kquota_spark.cli.main", *arguments]
            os.execve(command[0], command, {**of_child, **(environment or {})})
        self.modes_before = termios.tcgetattr(self.descriptor)
        """Modes of the terminal before the program began."""
        os.write(go, b".")
        os.close(held)
        os.close(go)

    @staticmethod
    def _set_size(terminal: int, columns: int, rows: int) -> None:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        """The window gets another size; the kernel sends SIGWINCH to whoever is in front."""
        self.screen.resize(rows, columns)
        self._set_size(self.descriptor, columns, rows)

    def type(self, keys: str) -> None:
        """Keys as a terminal sends them."""
        os.write(self.descriptor, keys.encode())

    def hang_up(self) -> None:
        """The connection is gone."""
        os.close(self.descriptor)
        self.descriptor = -1

    def lines(self) -> list[str]:
        """The screen, without blanks at the right."""
        return [line.rstrip() for line in self.screen.display]

    def until(self, holds: Callable[[list[str]], bool], what: str) -> list[str]:
        """The screen as soon as that holds of it and it is drawn to its end; fails after two minutes."""
        end_s = time.monotonic() + _LIMIT_S
        while time.monotonic() < end_s:
            before = len(self.raw)
            if not self._read(0.05):
                break
            if len(self.raw) == before and self._is_whole() and holds(self.lines()):
                return self.lines()
        shown = "\n".join(self.lines())
        raise AssertionError(f"{what} was never shown; the screen is\n{shown}")

    def until_shown(self, text: str) -> list[str]:
        """The screen as soon as some line holds this text."""
        return self.until(lambda lines: any(text in line for line in lines), text)

    def _is_whole(self) -> bool:
        """No frame has begun and not ended; a program that draws no frames is always done."""
        return self.raw.rfind(_FRAME_ENDS) >= self.raw.rfind(_FRAME_BEGINS)

    def _read(self, wait_s: float) -> bool:
        """Whatever comes within that time; False once the program has closed the terminal."""
        if select.select([self.descriptor], [], [], wait_s)[0]:
            try:
                received = os.read(self.descriptor, 65_536)
            except OSError:
                return False
            asked = self.raw.count(_CAN_FRAMES[0])
            self.raw += received
            self._stream.feed(received)
            if self.raw.count(_CAN_FRAMES[0]) > asked:
                os.write(self.descriptor, _CAN_FRAMES[1])
        return True

    def wait(self) -> int:
        """Its exit code once it has ended, minus the signal that killed it; what it still writes is read."""
        end_s = time.monotonic() + _LIMIT_S
        while self.exit_code is None and time.monotonic() < end_s:
            if self.descriptor < 0 or not self._read(0.02):
                time.sleep(0.01)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
                self.modes = [] if self.descriptor < 0 else termios.tcgetattr(self.descriptor)
        assert self.exit_code is not None, "it goes on running"
        return self.exit_code

    def close(self) -> None:
        """End it, if it has not."""
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.descriptor >= 0:
            os.close(self.descriptor)
