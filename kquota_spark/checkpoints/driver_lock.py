"""One driver per checkpoint: a lock that the operating system releases when the process dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kquota_spark.errors import UserError
from kquota_spark.store.storage import local_place_of

LOCK_NAME = "driver.lock"
_STOP_IT = "stop it first, or give checkpoints: another path"
IN_USE = f"checkpoints {{where}} are in use by another driver (pid {{pid}}): {_STOP_IT}"
"""Error for the second driver."""
_TRIES, _PAUSE_S = 4, 0.02
"""Attempts to lock, and the pause between them: `is_driver_running` holds a shared lock for a moment."""


@contextmanager
def driver_lock(checkpoints: str, name: str, in_use: str = IN_USE) -> Iterator[None]:
    """Hold the lock of a set of queries; its file contains the id of the holding process, for `kill`.

    An object store has no locks: see `checkpoints.driver_lease`.

    Args:
        checkpoints: root of the checkpoints.
        name: name of the set of queries; drivers of other queries may share the root.
        in_use: text of the error, with `{where}` and `{pid}`.

    Raises:
        UserError: another driver holds it, or the folder cannot be written.
    """
    lock = _place(checkpoints, name)
    if lock is None:
        yield
        return
    with ExitStack() as stack:
        try:
            _locked(lock, stack)
        except BlockingIOError as error:
            pid = driver_pid(checkpoints, name) or "?"
            raise UserError(in_use.format(where=checkpoints, pid=pid)) from error
        except OSError as error:
            raise UserError(f"checkpoints {checkpoints}: cannot be locked: {error.strerror}") from error
        yield


def _place(checkpoints: str, name: str) -> Path | None:
    return local_place_of(checkpoints, f"{name}.{LOCK_NAME}")


def _locked(path: Path, stack: ExitStack) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Unbuffered: a failed write raises here, not when the file is closed.
    file = stack.enter_context(path.open("ab+", buffering=0))
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if not left:
                raise
            time.sleep(_PAUSE_S)
    file.truncate(0)
    file.write(str(os.getpid()).encode("ascii"))


def driver_pid(checkpoints: str, name: str) -> int | None:
    """The id of the process that holds or last held the lock; None if unknown."""
    lock = _place(checkpoints, name)
    if lock is None:
        return None
    try:
        return int(lock.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def is_driver_running(checkpoints: str, name: str) -> bool | None:
    """Whether a process holds the lock; None if no driver ever locked it, or this cannot be known.

    The lock itself answers: the id in its file may belong to another process by now, or to one of another container.
    """
    lock = _place(checkpoints, name)
    if lock is None:
        return None
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def last_commit_ms(checkpoints: str, name: str) -> int | None:
    """When the queries of a local checkpoint last finished a micro-batch, epoch ms; None if unknown."""
    folder = local_place_of(checkpoints, f"{name}/commits")
    if folder is None:
        return None
    try:
        times = [file.stat().st_mtime for file in folder.iterdir() if file.name.isdecimal()]
    except OSError:
        return None
    return round(1_000 * max(times)) if times else None
