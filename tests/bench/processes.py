"""CPU and memory of processes, from /proc, by kind of process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["jvm", "driver", "workers"]
"""JVMs, the Python of the driver, and the Python workers of Spark with the daemons that fork them."""
Identity = tuple[int, str]
"""Id of a process and the time of its start: an id is given again some day."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_EVERY_S = 0.5
_GONE_WITHIN_S = 10.0


def process_cpu_s(pid: int) -> float:
    """CPU seconds of one process so far."""
    return sum(map(int, _stat(pid)[11:13])) / _TICKS_PER_S


def session_cpu_s(session: int, nodes: Sequence[int] = ()) -> dict[Kind, float]:
    """CPU seconds of all processes of a job so far, by kind, with those that ended and were waited for.

    Args:
        session: id of the session of its driver.
        nodes: Spark's daemons whose executors it has.
    """
    found: dict[Kind, float] = {"jvm": 0.0, "driver": 0.0, "workers": 0.0}
    for _, kind, cpu_s in _cpu_by_process(session, nodes):
        found[kind] += cpu_s
    return found


class Held(NamedTuple):
    """What processes hold at a time.

    Attributes:
        bytes: memory (VmRSS).
        files: open files, sockets and pipes among them.
        threads: how many.
    """

    bytes: int
    files: int
    threads: int


def session_held(session: int) -> dict[Kind, Held]:
    """What the processes of a session hold now, by kind."""
    found: dict[Kind, Held] = {"jvm": Held(0, 0, 0), "driver": Held(0, 0, 0), "workers": Held(0, 0, 0)}
    for pid in _members(session):
        with suppress(OSError):  # it has ended
            if not _is_fork(pid):
                status = _status(pid)
                files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
                size = int(status.get("VmRSS", "0 kB").split()[0]) * 1_024
                before = found[_kind(pid)]
                found[_kind(pid)] = Held(
                    before.bytes + size, before.files + files, before.threads + int(status["Threads"])
                )
    return found


class Watch:
    """What the processes of a job take while the block runs: CPU so far, and the most memory that they had together.

    The kernel keeps the peak of each process (VmHWM). Peaks of processes that are there at the same time are added, so
    pages that forked workers share count for each of them.

    Args:
        session: id of the session of its driver.
        nodes: Spark's daemons whose executors it has.
    """

    def __init__(self, session: int, nodes: Sequence[int] = ()) -> None:
        self._session, self._nodes = session, nodes
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._workers_s: dict[Identity, float] = {}
        self.bytes_by_kind: dict[Kind, int] = {"jvm": 0, "driver": 0, "workers": 0}

    def cpu_s(self) -> dict[Kind, float]:
        """CPU seconds so far by kind, as `session_cpu_s`, and of Python workers that ended while the block ran.

        Spark ends workers that are idle for a minute, and their daemon does not wait for them, so that no process
        keeps their time.
        """
        found: dict[Kind, float] = {"jvm": 0.0, "driver": 0.0, "workers": 0.0}
        for identity, kind, cpu_s in _cpu_by_process(self._session, self._nodes):
            if kind == "workers":
                self._workers_s[identity] = cpu_s
            else:
                found[kind] += cpu_s
        found["workers"] = sum(list(self._workers_s.values()))
        return found

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            self.cpu_s()
            now: defaultdict[Kind, int] = defaultdict(int)
            for pid in _of_job(self._session, self._nodes):
                with suppress(OSError):
                    if not _is_fork(pid):
                        now[_kind(pid)] += _peak_bytes(pid)
            for kind, size in now.items():
                self.bytes_by_kind[kind] = max(size, self.bytes_by_kind[kind])


def end_session(session: int) -> None:
    """Kill all processes of a session, stopped ones too, and wait until they are gone."""
    _kill_while(lambda: list(_members(session)))


def kill_all(pids: Sequence[int]) -> None:
    """Kill processes at once, and wait until they are gone."""
    known = dict(_identified(pids))
    _kill_while(lambda: [pid for pid, began in _identified(pids) if known.get(pid) == began])


def descendants(pid: int) -> list[int]:
    """The processes below one: its children, their children and so on, as long as the parents are there."""
    children = defaultdict[int, list[int]](list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = _stat(int(entry.name))
                if fields[0] not in "ZX":
                    children[int(fields[1])].append(int(entry.name))
    found = list(children[pid])
    for each in found:  # it grows meanwhile
        found += children[each]
    return found


def _kill_while(left: Callable[[], list[int]]) -> None:
    give_up_s = time.monotonic() + _GONE_WITHIN_S
    while members := left():
        if time.monotonic() > give_up_s:
            raise SystemExit(f"processes {members} do not end")
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _identified(pids: Sequence[int]) -> Iterator[Identity]:
    """Those that run."""
    for pid in pids:
        with suppress(OSError):
            fields = _stat(pid)
            if fields[0] not in "ZX":
                yield pid, fields[19]


def _cpu_by_process(session: int, nodes: Sequence[int]) -> Iterator[tuple[Identity, Kind, float]]:
    for pid in _of_job(session, nodes):
        with suppress(OSError):  # it has ended
            fields = _stat(pid)
            yield (pid, fields[19]), _kind(pid), sum(map(int, fields[11:15])) / _TICKS_PER_S


def _of_job(session: int, nodes: Sequence[int]) -> Iterator[int]:
    yield from _members(session)
    for node in nodes:
        yield from descendants(node)


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
    return int(_status(pid).get("VmHWM", "0 kB").split()[0]) * 1_024


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
