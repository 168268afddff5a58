"""Our child processes: started in a process group of their own, stopped by id, never left behind.

The system reuses process ids. Every process is therefore identified by its id together with its start time, and
both are compared before a signal is sent.

Children end with our process. A watchdog leads their process group and kills the group when our process has
ended, for whatever reason. The kernel's own PR_SET_PDEATHSIG is not suitable: it fires when the *thread* that
started the child ends. In a test that is often long before the process ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kquota_spark.errors import UserError

_POLL_S = 0.05
_WATCHDOG = """\
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
while os.getppid() == int(sys.argv[1]):
    time.sleep(0.2)
os.killpg(os.getpid(), signal.SIGKILL)
"""
# Our own children must be waited for; otherwise they stay as zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process; not a later process with the same number."""

    pid: int
    started: str


def spawn(command: Sequence[str], *, directory: Path, log: Path, group: int | None) -> ProcessId:
    """Start a process without a terminal, its output appended to `log`.

    Args:
        command: the program and its arguments.
        directory: its working directory.
        log: the file to which its output is appended.
        group: process group of a watchdog; with None the process outlives this program.
    """
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=group is None,
            process_group=group,
        )
    _children[child.pid] = child
    return _identify(child)


@contextlib.contextmanager
def watchdog() -> Iterator[int]:
    """A process group that is killed if this process ends while the block runs.

    After the block the watchdog no longer protects the members: stop them first, or leave them running on purpose.
    """
    command = [sys.executable, "-I", "-S", "-c", _WATCHDOG, str(os.getpid())]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    _children[child.pid] = child
    process = _identify(child)
    try:
        yield process.pid
    finally:
        kill([process])


def is_running(process: ProcessId) -> bool:
    """Whether exactly this process runs (a paused one does, a zombie does not)."""
    _reap(process.pid)
    return _started(process.pid) == process.started


def send(process: ProcessId, number: signal.Signals) -> None:
    """Send a signal, if the process is still the one that was started."""
    if is_running(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def pause(process: ProcessId) -> None:
    """Freeze a process, and wait until the system has stopped each of its threads."""
    send(process, signal.SIGSTOP)
    if not wait_for(lambda: _thread_states(process.pid) <= set("TZX"), within_s=30):
        send(process, signal.SIGCONT)
        msg = f"process {process.pid} cannot be paused, and continues: check its threads with ps -L"
        raise UserError(msg)


def stop(processes: Sequence[ProcessId], *, grace_s: float) -> None:
    """Ask all to end, wait up to `grace_s` for them together, and kill those that still run."""
    for process in processes:
        send(process, signal.SIGTERM)
        # A paused process handles the signal only after it continues.
        send(process, signal.SIGCONT)
    if not wait_for(lambda: not any(map(is_running, processes)), within_s=grace_s):
        kill(processes)


def kill(processes: Sequence[ProcessId]) -> None:
    """End all at once, as a crash would, and wait until they have ended."""
    for process in processes:
        send(process, signal.SIGKILL)
    if not wait_for(lambda: not any(map(is_running, processes)), within_s=30):
        left = [process.pid for process in processes if is_running(process)]
        raise UserError(f"processes {left} do not end, not even when killed: check them with ps")


def kill_group(group: int) -> None:
    """End every process of a group at once, its watchdog too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def wait_for(condition: Callable[[], bool], *, within_s: float) -> bool:
    """Poll a condition until it is true; returns false if that takes longer than `within_s`."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _identify(child: subprocess.Popen[bytes]) -> ProcessId:
    # Even a child that ended at once keeps its number until it is waited for; it then simply never counts as running.
    return ProcessId(child.pid, _started(child.pid) or "ended at once")


def _reap(pid: int) -> None:
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        _children.pop(pid, None)


def _started(pid: int) -> str | None:
    """The start time of a process, in the system's own format; None if it has ended or is a zombie."""
    try:
        fields = _stat_fields(Path(f"/proc/{pid}/stat"))
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _started_by_ps(pid)
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    # The start time is in ticks since the machine started; the boot id distinguishes it from those of earlier boots.
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {fields[19]}"  # starttime, field 22


def _stat_fields(stat: Path) -> list[str]:
    """The fields after `pid (name)`: state, ppid, ...; the name may contain blanks and brackets."""
    return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _thread_states(pid: int) -> set[str]:
    """The states of a process's threads, in the letters of ps; empty if the system does not report them."""
    states = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            states.add(_stat_fields(stat)[0])
    return states


def _started_by_ps(pid: int) -> str | None:
    answer = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
