"""Real shells: one on a terminal of its own to which keys are sent, and those that answer without one."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.places import ROOT

_PATIENCE_S = 120.0


def found_shell(name: str) -> str:
    """The shell on PATH."""
    path = shutil.which(name)
    assert path, f"{name} is missing: install it (apt-get install {name}), these tests type into it"
    return path


def kquota_on_path(directory: Path) -> dict[str, str]:
    """An environment in which `kquota` is the one of this checkout, and nothing of this machine's shells is read."""
    program = directory / "bin" / "kquota"
    program.parent.mkdir()
    root = ROOT
    program.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(root))} exec {shlex.quote(sys.executable)} "
        '-m kquota_spark.cli.main "$@"\n'
    )
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(directory),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
        "KQUOTA_CONTEXTS": str(directory / "contexts.yaml"),
    }


class Typist:
    """Sends keys to the shell and reads what it shows."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._unread = b""

    def keys(self, text: str) -> None:
        """Type."""
        os.write(self._terminal, text.encode())

    def until(self, text: str) -> str:
        """What is shown up to this text, which must come."""
        wanted, end_s = text.encode(), time.monotonic() + _PATIENCE_S
        while wanted not in self._unread:
            rest_s = end_s - time.monotonic()
            assert rest_s > 0, f"{text!r} did not come, but {self._unread!r}"
            if select.select([self._terminal], [], [], rest_s)[0]:
                self._unread += os.read(self._terminal, 4_096)
        shown, _, self._unread = self._unread.partition(wanted)
        return shown.decode(errors="replace") + text


@contextmanager
def terminal(program: list[str], environment: dict[str, str], directory: Path) -> Iterator[Typist]:
    """Start a shell on a terminal; it is gone afterwards."""
    process, descriptor = pty.fork()
    if process == 0:
        os.chdir(directory)
        os.execvpe(program[0], program, environment)
    try:
        yield Typist(descriptor)
    finally:
        os.close(descriptor)  # the shell is told that its terminal has gone
        os.waitpid(process, 0)
