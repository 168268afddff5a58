"""Follows one log file through rotation: whole lines in order, and a position from which to continue.

A position is a place in a text, not in a path: the file may have been renamed, copied or compressed since.
Nothing is stored here. The shipper stores `Tail.position` once the lines are safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from kquota_spark.ship.log_text import FINGERPRINT_BYTES, DamagedGzipError, LogText, fingerprint
from kquota_spark.ship.rotated_files import Position, Rotation, identity, rotated_files

CHUNK_BYTES = 1 << 20
KEPT_OF_LONG_LINE_BYTES = 256 << 10
_KEPT_END_BYTES = 16 << 10
CUT = b"\x00"
"""Replaces the middle of a line that was cut. The ends that are kept identify the client. No log line has this byte."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines without their line ends.

    Attributes:
        lines: in the order in which they were written.
        cut: original length, bytes, by index in `lines`, of each line cut to `KEPT_OF_LONG_LINE_BYTES` or the limit.
        is_at_end: whether everything in the log when `read` was called has been returned, except half a line.
        half_line_bytes: length of that half line.
        lost: lines written between these times (epoch ms) are lost; they came before `lines`.
    """

    lines: list[bytes] = field(default_factory=list)
    cut: dict[int, int] = field(default_factory=dict)
    is_at_end: bool = False
    half_line_bytes: int = 0
    lost: tuple[int, int] | None = None


class Tail:
    """Reads one log from a position on.

    Without a position it starts with the file at `path` and skips files that were rotated away before.

    Args:
        path: the log that is being written.
        position: where to continue; None to start.
        notice: takes one line for the operator.
        line_limit_bytes: longer lines are cut; at most `CHUNK_BYTES`.
    """

    def __init__(
        self,
        path: Path,
        position: Position | None = None,
        *,
        notice: Callable[[str], None],
        line_limit_bytes: int = 999_000,
    ) -> None:
        self._path = path
        self._notice = notice
        self._noticed: set[str] = set()
        self._line_limit_bytes = min(line_limit_bytes, CHUNK_BYTES)
        self._kept_bytes = min(KEPT_OF_LONG_LINE_BYTES, line_limit_bytes)
        self._text: LogText | None = None
        self._scanned_to, self._scanned_end = 0, b""
        self.is_waiting_for_file = False
        """Whether the last `read` found no file to read."""
        self._lost: tuple[int, int] | None = None
        self._is_lost = False
        self._rotation = Rotation(path, self._notice_once)
        if position is None:
            before = rotated_files(path)
            position = Position(after_mtime_ns=before[-1].mtime_ns if before else 0)
        self.position = position
        """The place after the last line returned."""

    def read(self) -> Batch:
        """The next lines; none at the end, and none while the log does not exist.

        Memory is bounded by `CHUNK_BYTES`, whatever the length of a line.
        """
        batch = self._read()
        if self._lost is not None and self._text is not None:
            batch, self._lost = replace(batch, lost=self._lost), None
        return batch

    def _read(self) -> Batch:
        self.is_waiting_for_file = False
        text = self._known_text() or self._find()
        if text is None:
            return Batch()
        offset = self.position.offset
        # Checked before reading: a file that is renamed by now is complete, because log4j closes it first.
        is_live = identity(self._path) == (text.device, text.inode)
        if is_live:
            self._noticed.clear()
        try:
            data = text.read_at(offset, CHUNK_BYTES)
            lines = data.split(b"\n")
            half = lines.pop()
            if lines:
                if b"\r" in data:
                    lines = [line.removesuffix(b"\r") for line in lines]
                self._advance(text, data, offset + len(data) - len(half))
                is_at_end = is_live and len(data) < CHUNK_BYTES
                return self._batch(lines, is_at_end=is_at_end, half_line_bytes=len(half) if is_at_end else 0)
            length, step, end = len(half), 0, half
            if len(data) == CHUNK_BYTES:
                length, step, end = self._scan_long_line(text, data)
        except DamagedGzipError as error:
            self._notice_once(f"{text.path}: damaged ({error}): its lines from byte {offset} on are missing")
            self._lost = _between(self.position.after_mtime_ns, text.mtime_ns)
            return self._finish(text, b"", 0, b"")
        if step:
            self._advance(text, data, offset + step)
            return Batch([self._shortened(half, end)], {0: length})
        if is_live:
            return Batch(is_at_end=True, half_line_bytes=length)
        return self._finish(text, half, length, end)

    def close(self) -> None:
        """Close the file."""
        if self._text is not None:
            self._text.close()
        self._text = None

    def _batch(self, lines: list[bytes], *, is_at_end: bool, half_line_bytes: int) -> Batch:
        cut = {}
        if max(map(len, lines)) > self._line_limit_bytes:
            cut = {i: len(line) for i, line in enumerate(lines) if len(line) > self._line_limit_bytes}
            lines = [self._shortened(line, line) if i in cut else line for i, line in enumerate(lines)]
        return Batch(lines, cut, is_at_end, half_line_bytes)

    def _shortened(self, start: bytes, end: bytes) -> bytes:
        """A line without its middle, from a part that begins with its start and one that ends with its end."""
        of_end = min(_KEPT_END_BYTES, self._kept_bytes // 4)
        return start[: self._kept_bytes - of_end - len(CUT)] + CUT + end[-of_end:]

    def _scan_long_line(self, text: LogText, start: bytes) -> tuple[int, int, bytes]:
        """Length of a line longer than a chunk, the step to the next line, and the line's last bytes.

        The step is 0 while the line has no line feed.
        """
        offset = self.position.offset
        at = max(self._scanned_to, offset + len(start))
        before = self._scanned_end if self._scanned_to else start[-_KEPT_END_BYTES - 1 :]
        while data := text.read_at(at, CHUNK_BYTES):
            end = data.find(b"\n")
            if end >= 0:
                has_cr = (data[end - 1 : end] or text.read_at(at - 1, 1)) == b"\r"
                last = (before + data[:end]).removesuffix(b"\r")[-_KEPT_END_BYTES:]
                return at + end - offset - has_cr, at + end + 1 - offset, last
            at += len(data)
            before = (before + data)[-_KEPT_END_BYTES - 1 :]
            # Half a line may be hundreds of megabytes, so the next `read` does not scan it from its start again.
            self._scanned_to, self._scanned_end = at, before
        return at - offset, 0, before

    def _advance(self, text: LogText, data: bytes, offset: int) -> None:
        old = self.position
        hashed = old.fingerprint
        if old.offset == 0:
            # Hash the bytes that were read: the file may hold others by now.
            hashed = fingerprint(data[:offset])
        elif old.offset < FINGERPRINT_BYTES:
            hashed = text.fingerprint(offset)
        # A .gz may have a later mtime than the file that followed it.
        after_ns = old.after_mtime_ns if text.is_gzip else text.mtime_ns
        self.position = Position(
            device=text.device, inode=text.inode, offset=offset, fingerprint=hashed, after_mtime_ns=after_ns
        )
        self._scanned_to = 0

    def _known_text(self) -> LogText | None:
        """The open file, if it still holds the text that was read; otherwise it is closed."""
        text, position = self._text, self.position
        if text is None or text.is_gzip:
            return text
        # Before its first line is read, a text can be replaced without a trace: find the file again.
        if (
            position.offset > 0
            and text.reaches(max(position.offset, self._scanned_to))
            and text.fingerprint(position.offset) == position.fingerprint
        ):
            return text
        self.close()
        return None

    def _find(self) -> LogText | None:
        """Open the file of the position, or the next one if that file no longer exists."""
        self._scanned_to = 0
        if self.position.offset > 0:
            self._text = self._rotation.open_known(self.position)
            if self._text is not None:
                return self._text
            if identity(self._path) is None:
                # Perhaps this does not last: the directory is not mounted, or a rename is half done.
                self._wait("does not exist, waiting for it")
                return None
            self._notice_once(
                f"{self._path}: the file read last was truncated or removed and has no copy: what was written"
                f" to it after byte {self.position.offset} is missing; continuing with the next file"
            )
            self._is_lost = True
            self.position = Position(after_mtime_ns=self.position.after_mtime_ns)
        self._text = self._rotation.open_next(self.position, None)
        if self._text is None:
            self._wait("does not exist, waiting for it")
            return None
        if self._is_lost:
            # The first line of the next file is older than that file's last change.
            self._lost, self._is_lost = _between(self.position.after_mtime_ns, self._text.mtime_ns), False
        self.position = replace(self.position, device=self._text.device, inode=self._text.inode)
        return self._text

    def _finish(self, text: LogText, rest: bytes, length: int, end: bytes) -> Batch:
        """Return the last line of a file that is not the log any more, and move to the next file."""
        following = self._rotation.open_next(self.position, text)
        if following is None:
            self._wait("vanished, waiting for it")
            return Batch()
        self._rotation.end(text)
        after_ns = text.mtime_ns
        if text.is_gzip:
            # It may have been compressed after the next file was written.
            after_ns = min(after_ns, following.mtime_ns - 1)
        text.close()
        self._text, self._scanned_to = following, 0
        self.position = Position(device=following.device, inode=following.inode, after_mtime_ns=after_ns)
        if length > self._line_limit_bytes:
            return Batch([self._shortened(rest, end)], {0: length})
        return Batch([rest] if rest else [])

    def _wait(self, why: str) -> None:
        self.is_waiting_for_file = True
        if not self._noticed:
            self._notice_once(f"{self._path}: {why}")

    def _notice_once(self, message: str) -> None:
        """Report a message once, until the log is read again."""
        if message not in self._noticed:
            self._noticed.add(message)
            self._notice(message)


def _between(from_ns: int, to_ns: int) -> tuple[int, int]:
    """The period in whole ms, rounded outwards; at least 1 ms, as a file may be older than the one it replaced."""
    from_ms = from_ns // 1_000_000
    return from_ms, max(-(-to_ns // 1_000_000), from_ms + 1)
