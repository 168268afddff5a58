"""Programs that run all the time: each is started again when it has ended, as an init system does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.places import ROOT

_STOPPED_WITHIN_S = 120.0
_AGAIN_AFTER_S = 1.0


class Part:
    """One program, in a process group of its own.

    Args:
        name: for its log, and for the history.
        command: how it is started.
        log: takes what it prints.
        environment: besides that of the test.

    Attributes:
        exits: exit codes of the runs that ended by themselves; not of those that were killed.
        starts: how often it was started.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name, self.log = name, log
        self._command, self._environment = command, {**os.environ, **environment}
        self.exits: list[int] = []
        self.starts = 0
        self._again_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def look(self) -> None:
        """Start it if it does not run."""
        if self._process is not None and self._process.poll() is not None:
            self.exits.append(self._process.returncode)
            self._gone()
        if self._process is None and time.monotonic() >= self._again_s:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            self.starts += 1

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; a paused one runs."""
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes, if it runs."""
        if self._process is not None and self.is_running:
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """As a crash of the machine does."""
        if self._process is not None:
            self.send(signal.SIGKILL)
            self._process.wait()
            self._gone()

    def stop(self) -> int:
        """As an operator does; its exit code."""
        if self._process is None:
            return 0
        self.send(signal.SIGCONT)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOPPED_WITHIN_S)
        finally:
            self.kill()

    def _gone(self) -> None:
        self._process = None
        self._again_s = time.monotonic() + _AGAIN_AFTER_S


@contextmanager
def kept_running(parts: Sequence[Part]) -> Iterator[None]:
    """Nothing of them is left after the block."""
    try:
        yield
    finally:
        for part in parts:
            part.kill()
