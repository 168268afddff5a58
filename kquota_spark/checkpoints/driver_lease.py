"""One driver at a time, also on an object store, which has no file locks: there a lease replaces the lock.

A lease has a number. A driver takes it by committing the next number to a Delta table without rows. On every store
deltalake never replaces a commit, so of two drivers one is refused. The holder counts up in a small note, its beat.
Clocks of two machines are never compared. A waiting driver takes over when it has seen the same beat for the whole
lease time, by its own clock. Nothing grows except by one commit per start.

A holder that was paused for longer finds a newer number at its next beat, and ends.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kquota_spark.checkpoints.driver_lock import IN_USE, driver_lock
from kquota_spark.checkpoints.lease_table import LeaseTable
from kquota_spark.checkpoints.notes import read_note, write_note
from kquota_spark.config.roots import local_path
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.process.clock import now_ms
from kquota_spark.process.notices import notice
from kquota_spark.store.storage import place_of

if TYPE_CHECKING:
    from types import TracebackType

_BEATS = 6
"""Beats per lease time: a waiting driver recognises a live holder after one of them."""
_POLL_S = 0.5
_RELEASE_S = 5.0


class StoppedWaitingError(UserError):
    """The program was asked to stop while it waited."""


class Beat(msgspec.Struct, frozen=True):
    """The note of a lease's holder; each one has a new `count`.

    Its times are epoch ms by the holder's clock. They are for people: no driver decides by them.
    """

    number: int
    count: int
    host: str
    pid: int
    is_released: bool = False
    since_ms: int | None = None
    """When the holder took the lease."""
    renewed_ms: int | None = None
    """When it wrote this note."""


class LeaseHolder(NamedTuple):
    """The newest number of a lease, and the newest note of its holder; None if there is no note of this number."""

    number: int
    beat: Beat | None


class Sight(Enum):
    """The state of a lease for an observer."""

    FREE = "free"
    ALIVE = "alive"
    SILENT = "silent"
    """Held, but neither seen alive nor silent for the lease time yet."""


class Watched:
    """A lease as one observer sees it, by the observer's own clock."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen: tuple[int, int | None] | None = None
        self._since_s = 0.0

    def sight(self, number: int, beat: Beat | None, now_s: float) -> Sight:
        """The state of the lease after one more observation.

        Args:
            number: number of the newest lease; 0 if there has never been one.
            beat: the newest beat, of any lease; None for none.
            now_s: a monotonic clock, seconds.
        """
        # A beat of another lease is ignored: a driver that was paused may have written it late.
        own = beat if beat is not None and beat.number == number else None
        if number == 0 or (own is not None and own.is_released):
            return Sight.FREE
        seen = (number, None if own is None else own.count)
        if seen == self._seen:
            return Sight.FREE if now_s - self._since_s >= self._lease_s else Sight.SILENT
        is_first, self._seen, self._since_s = self._seen is None, seen, now_s
        return Sight.SILENT if is_first else Sight.ALIVE


class Hold:
    """The right to be the only driver. A file lock needs no checks: then number and checks do nothing."""

    number = 0

    def check(self) -> None:
        """Raise the problem that a beat has found; does not query the store."""

    def require(self) -> None:
        """Check before something is written; queries the store only if the last beat is old.

        Raises:
            UserError: another driver has a newer lease, or the store does not answer.
        """


class Lease(Hold):
    """A held lease; as a context manager it beats in a thread, and releases the lease at the end."""

    def __init__(self, table: LeaseTable, name: str, number: int, settings: Settings, root: str) -> None:
        self._table, self._name, self.number = table, name, number
        self._settings, self._root = settings, root
        self._path = _note_path(root, name)
        self._lease_s = settings.stream.lease_time / 1_000
        self._count, self._beaten_s, self._since_ms = 0, time.monotonic(), now_ms()
        self._problem: UserError | None = None
        self._is_ended, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._beat_on, name=f"lease-{name}", daemon=True)

    def beat(self, *, is_released: bool = False) -> None:
        """Check that the lease is still the newest, and write a note that its holder is alive.

        Raises:
            UserError: another driver has a newer one, or the store does not answer.
        """
        with self._lock:
            newest = self._table.number(self._name)
            if newest != self.number:
                self._problem = UserError(self._overtaken(newest))
                raise self._problem
            self._count += 1
            noted = Beat(
                self.number,
                self._count,
                socket.gethostname(),
                os.getpid(),
                is_released,
                self._since_ms,
                now_ms(),
            )
            write_note(self._settings, self._path, msgspec.json.encode(noted))
            self._beaten_s = time.monotonic()

    def check(self) -> None:
        """Raise the problem that a beat has found."""
        if self._problem is not None:
            raise self._problem

    def require(self) -> None:
        """Check, and beat first if the last beat is older than the lease time."""
        self.check()
        if time.monotonic() - self._beaten_s > self._lease_s:
            self.beat()

    def __enter__(self) -> Lease:
        self.beat()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_ended.set()
        # A store that does not answer must not prevent the program's end; then the next driver has to wait.
        releasing = threading.Thread(target=self._release, daemon=True)
        releasing.start()
        releasing.join(_RELEASE_S)

    def _release(self) -> None:
        with suppress(UserError):
            self.beat(is_released=True)

    def _beat_on(self) -> None:
        while self._problem is None and not self._is_ended.wait(self._lease_s / _BEATS):
            # A store that does not answer is queried again. A newer lease is kept in `_problem`.
            with suppress(UserError):
                self.beat()

    def _overtaken(self, newest: int) -> str:
        by = ""
        with suppress(UserError):
            beat = _noted(self._settings, self._path)
            if beat is not None and beat.number == newest:
                by = f" (host {beat.host}, pid {beat.pid})"
        return (
            f"{self._root}: another driver has taken over the lease of {self._name}{by}, so this one has ended: let "
            "one scheduler start it, once"
        )


def taken_lease(
    settings: Settings,
    root: str,
    name: str,
    in_use: str,
    *,
    notice: Callable[[str], None],
    is_stopped: Callable[[float], bool],
    clock_s: Callable[[], float] = time.monotonic,
) -> Lease:
    """Take a lease, or wait until its holder has been silent for the lease time.

    Args:
        settings: access to the store, and the lease time.
        root: path or URI of the folder with the leases.
        name: name of the lease.
        in_use: text of the error, with `{where}` and `{pid}`.
        notice: takes one line for the user if it has to wait.
        is_stopped: sleeps for the given seconds; returns true if the program was asked to stop.
        clock_s: a monotonic clock, seconds.

    Raises:
        UserError: another driver holds it, or the store does not answer.
    """
    table, path = LeaseTable(settings, place_of(root, "leases")), _note_path(root, name)
    watched, is_noted = Watched(settings.stream.lease_time / 1_000), False
    while True:
        number, beat = table.number(name), _noted(settings, path)
        sight = watched.sight(number, beat, clock_s())
        holder = "pid ?" if beat is None else f"{beat.pid}, host {beat.host}"
        if sight is Sight.ALIVE:
            raise UserError(in_use.format(where=root, pid=holder))
        if sight is Sight.FREE:
            if table.take(name, number):
                return Lease(table, name, number + 1, settings, root)
            continue
        if not is_noted:
            is_noted = True
            seconds = f"{settings.stream.lease_time / 1_000:g} s"
            notice(f"{root}: waiting up to {seconds} for a sign of life of its driver (pid {holder})")
        if is_stopped(_POLL_S):
            raise StoppedWaitingError(f"{root}: stopped while waiting for another driver")


def lease_holder(settings: Settings, root: str, name: str) -> LeaseHolder | None:
    """The last holder of a lease, without waiting; None if it was never taken, and on a local disk.

    Args:
        settings: access to the store.
        root: path or URI of the folder with the leases.
        name: name of the lease.

    Raises:
        UserError: the store does not answer.
    """
    if local_path(root) is not None:
        return None
    number = LeaseTable(settings, place_of(root, "leases")).number(name)
    if number == 0:
        return None
    beat = _noted(settings, _note_path(root, name))
    return LeaseHolder(number, beat if beat is not None and beat.number == number else None)


def _note_path(root: str, name: str) -> str:
    return place_of(root, f"{name}.lease.json")


def _noted(settings: Settings, path: str) -> Beat | None:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(read_note(settings, path) or b"", type=Beat)
    return None


def _asleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextmanager
def only_driver(
    settings: Settings,
    root: str,
    name: str,
    in_use: str = IN_USE,
    *,
    notice: Callable[[str], None] = notice,
    is_stopped: Callable[[float], bool] = _asleep,
) -> Iterator[Hold]:
    """Be the only driver of a set of queries: by the file lock on a local disk, by a lease on an object store.

    Args:
        settings: access to the store, and the lease time.
        root: path or URI of the folder with lock and lease.
        name: name of the set of queries; drivers of other queries may share the root.
        in_use: text of the error, with `{where}` and `{pid}`.
        notice: takes one line for the user if it has to wait.
        is_stopped: sleeps for the given seconds; returns true if the program was asked to stop.

    Raises:
        UserError: another driver is running, or the folder cannot be written.
    """
    with ExitStack() as stack:
        if local_path(root) is None:
            lease = taken_lease(settings, root, name, in_use, notice=notice, is_stopped=is_stopped)
            yield stack.enter_context(lease)
        else:
            stack.enter_context(driver_lock(root, name, in_use))
            yield Hold()
