"""The files of one rotating log: which there are, in which order, and which of them holds a text already read.

A file is recognised by its inode and by a hash of its first bytes. The hash alone finds a text in a copy or in
a .gz. It also distinguishes the file that was read from a truncated file or a reused inode.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kquota_spark.ship.log_text import DamagedGzipError, LogText, TextSummary

# Suffixes of Kafka's log4j and of logrotate: .1, .2026-11-21-07, -20261121, each perhaps with .gz. Nothing else
# matches: a .bak or .swp beside the log is not part of it.
_ROTATED_SUFFIX = re.compile(r"[._-]\d[\dT:._-]*(?:AM|PM)?(?:\.gz)?")
_COUNTER = re.compile(r"\.(\d{1,6})(?:\.gz)?")
# Greater than any tie, so that files with the same mtime do not count as later.
_LAST = (1, "")
# Maximum times that the directory is read again when files are renamed meanwhile.
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The place up to which a log has been read.

    Attributes:
        device: the file's device, as the operating system numbers it now.
        inode: the file's inode.
        offset: offset in the uncompressed text of the first byte not read.
        fingerprint: hash of the text's first bytes before `offset`.
        after_mtime_ns: epoch ns; rotated files with a later mtime, except this one, have not been read yet.
    """

    device: int = 0
    inode: int = 0
    offset: int = 0
    fingerprint: str = ""
    after_mtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class RotatedFile:
    """A rotated file, as the directory of the log lists it."""

    path: Path
    device: int
    inode: int
    mtime_ns: int
    tie: tuple[int, str]
    """Order of files with the same mtime: .2 is older than .1, but a later date is newer."""

    @property
    def order(self) -> tuple[int, tuple[int, str]]:
        """Sort key, from old to new."""
        return self.mtime_ns, self.tie


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at `path` now; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def rotated_files(live: Path) -> list[RotatedFile]:
    """The files rotated away from `live`, old to new.

    A chain of renames (.1 to .2, the log to .1) can hide a file from one reading of the directory. The reading
    is repeated until two agree.
    """
    seen = _listed(live)
    for _ in range(_ATTEMPTS):
        before, seen = seen, _listed(live)
        if [(file.path, file.inode) for file in before] == [(file.path, file.inode) for file in seen]:
            break
    return seen


def _listed(live: Path) -> list[RotatedFile]:
    found: dict[str, RotatedFile] = {}
    try:
        with os.scandir(live.parent) as entries:
            for entry in entries:
                suffix = entry.name.removeprefix(live.name)
                if suffix == entry.name or not _ROTATED_SUFFIX.fullmatch(suffix):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    file = RotatedFile(
                        Path(entry.path), status.st_dev, status.st_ino, status.st_mtime_ns, _tie(suffix)
                    )
                    found[entry.name] = file
    except OSError:
        return []
    # While X is being compressed, X.gz is incomplete. X is the better one of the two in any case.
    kept = [
        file for name, file in found.items() if name.removesuffix(".gz") == name or name[:-3] not in found
    ]
    return sorted(kept, key=lambda file: file.order)


def _tie(suffix: str) -> tuple[int, str]:
    counter = _COUNTER.fullmatch(suffix)
    return (-int(counter.group(1)), "") if counter else (0, suffix.removesuffix(".gz"))


class Rotation:
    """Finds the file of the log `live` to read next; reports files that cannot be opened to the operator."""

    def __init__(self, live: Path, notice: Callable[[str], None]) -> None:
        self._live = live
        self._notice = notice
        # The .gz of a text that was just read can appear with a newer mtime than the file that follows it.
        self._ended: deque[TextSummary] = deque(maxlen=8)

    def open_known(self, position: Position) -> LogText | None:
        """The text of a position: the file with its inode, else a copy or .gz that starts with the same bytes."""
        for _ in range(_ATTEMPTS):
            ids = self._ids()
            for path in sorted(ids, key=lambda path: ids[path] != (position.device, position.inode)):
                text = self._open(path)
                if text is not None and _holds(text, position):
                    return text
                if text is not None:
                    text.close()
            if ids == self._ids():  # else it was rotated during the search
                break
        return None

    def open_next(self, position: Position, ended: LogText | None) -> LogText | None:
        """The oldest file that was not read: a rotated one, else the log; None if there is none.

        Args:
            position: the place up to which was read. At offset 0 the next file is its own, or a copy of it.
            ended: the file of the position, if it was read to its end.
        """
        for _ in range(_ATTEMPTS):
            for path, expected in self._unread(position, ended):
                text = self._open(path)
                if text is None or (text.device, text.inode) != expected:
                    break  # it was rotated, or may not be read: it must not be skipped
                if not (text.is_gzip and self._was_read(text, ended)):
                    return text
                text.close()
            else:
                return None
        return None

    def end(self, text: LogText) -> None:
        """Remember that a text was read to its end."""
        self._ended.append(text.summary())

    def _unread(self, position: Position, ended: LogText | None) -> list[tuple[Path, tuple[int, int]]]:
        # In this order, a file that is rotated in between is seen twice instead of missed.
        live = identity(self._live)
        rotated = rotated_files(self._live)
        after = (position.after_mtime_ns, _LAST)
        if ended is not None and not ended.is_gzip:
            tie = next((file.tie for file in rotated if file.inode == ended.inode), _LAST)
            after = (ended.mtime_ns, tie)
        # The inode finds the next file even if the clock was set back. A .gz has that inode only if it was reused.
        waiting_inode = position.inode if ended is None else None
        unread = [
            (file.path, (file.device, file.inode))
            for file in rotated
            if file.order > after or (file.inode == waiting_inode and file.path.suffix != ".gz")
        ]
        if live is not None:
            unread.append((self._live, live))
        return [item for item in unread if ended is None or item[1] != (ended.device, ended.inode)]

    def _was_read(self, text: LogText, ended: LogText | None) -> bool:
        summary = text.summary()
        return summary in self._ended or (ended is not None and summary == ended.summary())

    def _ids(self) -> dict[Path, tuple[int, int] | None]:
        ids = {self._live: identity(self._live)}
        return ids | {file.path: (file.device, file.inode) for file in rotated_files(self._live)}

    def _open(self, path: Path) -> LogText | None:
        try:
            return LogText(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._notice(f"{path}: cannot be read: {error.strerror}; let the shipper's user read it")
            return None


def _holds(text: LogText, position: Position) -> bool:
    try:
        return text.fingerprint(position.offset) == position.fingerprint and text.reaches(position.offset)
    except DamagedGzipError:
        return False
