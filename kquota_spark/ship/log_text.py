"""The text of one log file, plain or .gz, and the fingerprint that recognises it after a rename or copy."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import stat
import zlib
from pathlib import Path

FINGERPRINT_BYTES = 1024
TextSummary = tuple[int, str]
"""The size of a text modulo 2^32 and its fingerprint: equal for a file and its .gz."""


class DamagedGzipError(Exception):
    """A .gz cannot be read any further."""


class LogText:
    """The text of one opened file, plain or .gz, addressed by offset in the uncompressed text.

    Args:
        path: a regular file. Anything else is refused, because a named pipe would block for ever.

    Raises:
        OSError: it cannot be opened or is not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        descriptor = open_regular_file(path)
        status = os.fstat(descriptor)
        self._file = os.fdopen(descriptor, "rb", buffering=0)
        self.device, self.inode = status.st_dev, status.st_ino
        self._gzip = gzip.GzipFile(fileobj=self._file) if path.name.endswith(".gz") else None
        self.is_gzip = self._gzip is not None
        """A .gz does not grow, and its mtime may be later than its text."""
        self._window, self._window_offset = b"", 0

    @property
    def mtime_ns(self) -> int:
        """The time of the last write to the file, epoch ns."""
        return os.fstat(self._file.fileno()).st_mtime_ns

    def read_at(self, offset: int, limit_bytes: int) -> bytes:
        """Up to `limit_bytes` of text from `offset`; fewer only at the end.

        Raises:
            DamagedGzipError: the .gz is cut or not a .gz.
        """
        if self._gzip is None:
            return os.pread(self._file.fileno(), limit_bytes, offset)
        # To go back in a .gz is to decompress from its start. The last part read is kept, because the caller reads
        # the half line at its end again.
        kept = self._window[offset - self._window_offset :] if offset >= self._window_offset else b""
        try:
            if offset + len(kept) != self._gzip.tell():
                kept = b""
                self._gzip.seek(offset)
            self._window = kept + self._gzip.read(max(0, limit_bytes - len(kept)))
        except (EOFError, OSError, zlib.error) as error:
            raise DamagedGzipError(str(error)) from error
        self._window_offset = offset
        return self._window[:limit_bytes]

    def fingerprint(self, offset: int) -> str:
        """Hash of the first `FINGERPRINT_BYTES`, or of the bytes before `offset` if fewer; equal for equal text."""
        return fingerprint(self.read_at(0, min(offset, FINGERPRINT_BYTES)))

    def reaches(self, offset: int) -> bool:
        """Whether there is text up to `offset`."""
        if self._gzip is None:
            return os.fstat(self._file.fileno()).st_size >= offset
        return offset == 0 or len(self.read_at(offset - 1, 1)) == 1

    def summary(self) -> TextSummary:
        """Size and fingerprint, which identify a complete text.

        The last four bytes of a .gz are the size of its text, modulo 2^32.
        """
        size = os.fstat(self._file.fileno()).st_size
        if self._gzip is not None:
            size = int.from_bytes(os.pread(self._file.fileno(), 4, max(0, size - 4)), "little")
        try:
            return size % 2**32, self.fingerprint(size)
        except DamagedGzipError:
            return size % 2**32, ""

    def close(self) -> None:
        """Close the file."""
        if self._gzip is not None:
            self._gzip.close()
        self._file.close()


def open_regular_file(path: Path) -> int:
    """Descriptor of a file for reading; does not wait for a writer, as opening a named pipe would.

    Raises:
        OSError: it cannot be opened or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


def fingerprint(start: bytes) -> str:
    """Hash of the first `FINGERPRINT_BYTES` of a text that begins with `start`."""
    return hashlib.sha256(start[:FINGERPRINT_BYTES]).hexdigest()
