"""CPU and memory of processes, from /proc, by kind of process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

Kind = Literal["jvm", "driver", "workers"]
"""JVMs, the Python of the driver, and the Python workers of Spark with the daemons that fork them."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_EVERY_S = 0.5
_GONE_WITHIN_S = 10.0


def process_cpu_s(pid: int) -> float:
    """CPU seconds of one process so far."""
    return sum(map(int, _stat(pid)[11:13])) / _TICKS_PER_S


def session_cpu_s(session: int) -> dict[Kind, float]:
    """CPU seconds of all processes of a session so far, by kind, with those that ended and were waited for."""
    found: dict[Kind, float] = {"jvm": 0.0, "driver": 0.0, "workers": 0.0}
    for pid in _members(session):
        with suppress(OSError):  # it has ended
            found[_kind(pid)] += sum(map(int, _stat(pid)[11:15])) / _TICKS_PER_S
    return found


def job_cpu_s(session: int, broker_pid: int) -> dict[str, float]:
    """CPU seconds so far of all processes of a job, and of the broker that it reads from, by kind."""
    return dict([*session_cpu_s(session).items(), ("broker", process_cpu_s(broker_pid))])


class PeakMemory:
    """The most memory that the processes of a session had together while the block ran, in bytes by kind.

    The kernel keeps the peak of each process (VmHWM). Peaks of processes that are there at the same time are added, so
    pages that forked workers share count for each of them.

    Args:
        session: id of the session.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.bytes_by_kind: dict[Kind, int] = {"jvm": 0, "driver": 0, "workers": 0}

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            now: defaultdict[Kind, int] = defaultdict(int)
            for pid in _members(self._session):
                with suppress(OSError):
                    if not _is_fork(pid):
                        now[_kind(pid)] += _peak_bytes(pid)
            for kind, size in now.items():
                self.bytes_by_kind[kind] = max(size, self.bytes_by_kind[kind])


def end_session(session: int) -> None:
    """Kill all processes of a session, stopped ones too, and wait until they are gone."""
    give_up_s = time.monotonic() + _GONE_WITHIN_S
    while members := list(_members(session)):
        if time.monotonic() > give_up_s:
            raise SystemExit(f"processes {members} do not end")
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _members(session: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = _stat(int(entry.name))
                if int(fields[3]) == session and fields[0] not in "ZX":
                    yield int(entry.name)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def _is_fork(pid: int) -> bool:
    """Whether a JVM has just forked it to run a program: until then it has all of the JVM's memory."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    parent = Path(f"/proc/{_stat(pid)[1]}/cmdline").read_bytes()
    return command.partition(b"\0")[0].endswith(b"/java") and command == parent


def _kind(pid: int) -> Kind:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    if command[0].endswith(b"/java"):
        return "jvm"
    return "workers" if b"pyspark.daemon" in command or b"pyspark.worker" in command else "driver"


def _peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) * 1_024 if found else 0
