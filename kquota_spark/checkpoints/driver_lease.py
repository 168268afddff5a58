"""One driver at a time, on an object store too: a lease, where there is no file lock.

A lease has a number. Who takes it commits the next number to a Delta table without rows. deltalake puts that commit in
place only where there is none, on every store, so of two drivers one is refused. The holder counts up in a small note,
its beat. No clocks of two machines are compared: a driver that waits takes over when it has seen the same beat for the
whole lease time, by its own clock. So nothing grows but by one commit per start.

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
from kquota_spark.process.notices import say as say_plainly
from kquota_spark.store.storage import place_of

if TYPE_CHECKING:
    from types import TracebackType

_BEATS = 6
"""Beats per lease time: a live holder is recognised after one of them."""
_POLL_S = 0.5
_RELEASE_S = 5.0


class StoppedWaitingError(UserError):
    """The program was asked to end while it waited."""


class Beat(msgspec.Struct, frozen=True):
    """The note of a lease's holder; `count` differs each time.

    Its times are epoch ms by the holder's clock, for people: no driver decides by them.
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
    """What an observer knows of a lease."""

    FREE = "free"
    ALIVE = "alive"
    SILENT = "silent"
    """Held, and neither seen alive nor silent for long enough."""


class Watched:
    """A lease as one observer sees it, by the observer's own clock."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen: tuple[int, int | None] | None = None
        self._since_s = 0.0

    def sight(self, number: int, beat: Beat | None, now_s: float) -> Sight:
        """What one more look says.

        Args:
            number: of the newest lease; 0 if there has never been one.
            beat: the newest beat, of whichever lease; None for none.
            now_s: a clock that only goes forward, seconds.
        """
        # Another one's says nothing: a driver that was paused may have written it late.
        own = beat if beat is not None and beat.number == number else None
        if number == 0 or (own is not None and own.is_released):
            return Sight.FREE
        seen = (number, None if own is None else own.count)
        if seen == self._seen:
            return Sight.FREE if now_s - self._since_s >= self._lease_s else Sight.SILENT
        is_first, self._seen, self._since_s = self._seen is None, seen, now_s
        return Sight.SILENT if is_first else Sight.ALIVE


class Hold:
    """The right to be the only driver. A file lock holds it by itself: then number and checks do nothing."""

    number = 0

    def check(self) -> None:
        """Raise what the beats have found; asks no store."""

    def require(self) -> None:
        """Check before something is written; asks the store only if the last beat is old.

        Raises:
            UserError: another driver has a newer lease, or the store does not answer.
        """


class Lease(Hold):
    """A lease that is held; as a context it beats in a thread, and is released at the end."""

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
        """Look whether the lease is still the newest, and say that its holder lives.

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
        """Raise what the beats have found."""
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
        # A store that does not answer must not keep the program from its end: the next driver then waits.
        releasing = threading.Thread(target=self._release, daemon=True)
        releasing.start()
        releasing.join(_RELEASE_S)

    def _release(self) -> None:
        with suppress(UserError):
            self.beat(is_released=True)

    def _beat_on(self) -> None:
        while self._problem is None and not self._is_ended.wait(self._lease_s / _BEATS):
            # A store that does not answer is asked again. A newer lease is noted in `_problem`.
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
    say: Callable[[str], None],
    is_stopped: Callable[[float], bool],
    clock_s: Callable[[], float] = time.monotonic,
) -> Lease:
    """Take a lease, or wait until its holder has been silent for the lease time.

    Args:
        settings: how to reach the store, and the lease time.
        root: path or URI below which the leases are.
        name: of the lease.
        in_use: what the error says, with `{where}` and `{pid}`.
        say: takes a line if it has to wait.
        is_stopped: sleeps for some seconds; true if the program was asked to end.
        clock_s: only goes forward, seconds.

    Raises:
        UserError: another driver holds it, or the store does not answer.
    """
    table, path = LeaseTable(settings, place_of(root, "leases")), _note_path(root, name)
    watched, is_said = Watched(settings.stream.lease_time / 1_000), False
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
        if not is_said:
            is_said = True
            seconds = f"{settings.stream.lease_time / 1_000:g} s"
            say(f"{root}: waiting up to {seconds} for a sign of life of its driver (pid {holder})")
        if is_stopped(_POLL_S):
            raise StoppedWaitingError(f"{root}: stopped while waiting for another driver")


def lease_holder(settings: Settings, root: str, name: str) -> LeaseHolder | None:
    """Read who took a lease last, without waiting; None if it was never taken, as on a local disk.

    Args:
        settings: how to reach the store.
        root: path or URI below which the leases are.
        name: of the lease.

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
    say: Callable[[str], None] = say_plainly,
    is_stopped: Callable[[float], bool] = _asleep,
) -> Iterator[Hold]:
    """Be the only driver of a set of queries: by the file lock on a local disk, by a lease on an object store.

    Args:
        settings: how to reach the store, and the lease time.
        root: path or URI below which lock and lease are.
        name: which queries; drivers of other queries may share the root.
        in_use: what the error says, with `{where}` and `{pid}`.
        say: takes a line if it has to wait.
        is_stopped: sleeps for some seconds; true if the program was asked to end.

    Raises:
        UserError: another driver is at work, or the place cannot be written.
    """
    with ExitStack() as stack:
        if local_path(root) is None:
            lease = taken_lease(settings, root, name, in_use, say=say, is_stopped=is_stopped)
            yield stack.enter_context(lease)
        else:
            stack.enter_context(driver_lock(root, name, in_use))
            yield Hold()
