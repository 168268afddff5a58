"""The files of one rotating log: what lies beside it, in which order, and whether a text is the one we know.

A file is known again by its inode and by a hash of its first bytes: the hash alone finds it in a copy or in a
.gz, and tells a reused inode or a truncated file from the one that was read.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path

FINGERPRINT_BYTES = 1024
# What Kafka's log4j and logrotate append: .1, .2026-11-21-07, -20261121, each perhaps with .gz. Nothing else: a
# .bak or .swp beside the log is no part of it.
_ROTATED_SUFFIX = re.compile(r"[._-]\d[\dT:._-]*(?:AM|PM)?(?:\.gz)?")
_COUNTER = re.compile(r"\.(\d{1,6})(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class RotatedFile:
    """A file beside the log as the directory shows it."""

    path: Path
    device: int
    inode: int
    mtime_ns: int
    tie: tuple[int, str]
    """Order of files of one mtime: .2 is older than .1, but a later date is newer."""

    @property
    def order(self) -> tuple[int, tuple[int, str]]:
        """Sorts from old to new."""
        return self.mtime_ns, self.tie


@dataclass(frozen=True, slots=True)
class TextSummary:
    """Equal for a file and its .gz."""

    size_modulo: int
    fingerprint: str


class Damaged(Exception):
    """A .gz cannot be read on."""


class LogText:
    """The text of one opened file, plain or .gz, by offset in what is written in it.

    Args:
        path: a regular file; anything else is refused, a named pipe would block for ever.

    Raises:
        OSError: it cannot be opened or is not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode):
            self._file.close()
            msg = "not a regular file"
            raise OSError(0, msg)
        self.device, self.inode = status.st_dev, status.st_ino
        self._gzip = gzip.GzipFile(fileobj=self._file) if path.name.endswith(".gz") else None
        self._window, self._window_offset = b"", 0

    @property
    def is_gzip(self) -> bool:
        """A .gz does not grow, and its mtime may be later than its text."""
        return self._gzip is not None

    @property
    def mtime_ns(self) -> int:
        """When the file was written last."""
        return os.fstat(self._file.fileno()).st_mtime_ns

    def read_at(self, offset: int, limit_bytes: int) -> bytes:
        """Up to `limit_bytes` of text from `offset`; fewer only at the end.

        Raises:
            Damaged: the .gz is cut or not a .gz.
        """
        if self._gzip is None:
            return os.pread(self._file.fileno(), limit_bytes, offset)
        # Going back in a .gz means to start over: what was read last is kept, that half line is asked for again.
        kept = self._window[offset - self._window_offset :] if offset >= self._window_offset else b""
        try:
            if offset + len(kept) != self._gzip.tell():
                kept = b""
                self._gzip.seek(offset)
            self._window = kept + self._gzip.read(max(0, limit_bytes - len(kept)))
        except (EOFError, OSError, zlib.error) as error:
            raise Damaged(str(error)) from error
        self._window_offset = offset
        return self._window[:limit_bytes]

    def fingerprint(self, offset: int) -> str:
        """Hash of the first bytes, as far as they lie before `offset`; equal for equal text."""
        return hashlib.sha256(self.read_at(0, min(offset, FINGERPRINT_BYTES))).hexdigest()

    def reaches(self, offset: int) -> bool:
        """Whether there is text up to `offset`."""
        if self._gzip is None:
            return os.fstat(self._file.fileno()).st_size >= offset
        return offset == 0 or len(self.read_at(offset - 1, 1)) == 1

    def summary(self) -> TextSummary:
        """What tells a complete text from others; of a .gz, its last four bytes are the size, modulo 2^32."""
        size = os.fstat(self._file.fileno()).st_size
        if self._gzip is not None:
            size = int.from_bytes(os.pread(self._file.fileno(), 4, max(0, size - 4)), "little")
        try:
            return TextSummary(size % 2**32, self.fingerprint(size))
        except Damaged:
            return TextSummary(size % 2**32, "")

    def close(self) -> None:
        """Give the file back."""
        if self._gzip is not None:
            self._gzip.close()
        self._file.close()


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of what is at `path` now; None if nothing is."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def rotated_files(live: Path) -> list[RotatedFile]:
    """What was rotated away from `live`, old to new.

    A chain of renames (.1 to .2, the log to .1) can hide a file from one look: the look is repeated until two
    agree.
    """
    seen = _look(live)
    for _ in range(20):
        before, seen = seen, _look(live)
        if [(file.path, file.inode) for file in before] == [(file.path, file.inode) for file in seen]:
            break
    return seen


def _look(live: Path) -> list[RotatedFile]:
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
    # While X is being compressed, X.gz is not complete; X is the better one of the two anyway.
    kept = [file for name, file in found.items() if name.removesuffix(".gz") == name or name[:-3] not in found]
    return sorted(kept, key=lambda file: file.order)


def _tie(suffix: str) -> tuple[int, str]:
    counter = _COUNTER.fullmatch(suffix)
    return (-int(counter.group(1)), "") if counter else (0, suffix.removesuffix(".gz"))
