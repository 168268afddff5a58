"""Follows one log file through rotation: whole lines in order, and a position from which to go on.

A position is a place in a text, not in a path: the file may have been renamed, copied or compressed since. Nothing
is stored here: whoever ships the lines stores `Tail.position` once they are safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from kquota_spark.io.rotated_files import (
    FINGERPRINT_BYTES,
    Damaged,
    LogText,
    TextSummary,
    identity,
    rotated_files,
)

CHUNK_BYTES = 1 << 20
KEPT_OF_LONG_LINE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Up to where a log has been read.

    Attributes:
        device: of the file, as the operating system numbers it now.
        inode: of the file.
        offset: of the first byte not read, within the uncompressed text.
        fingerprint: hash of the text's first bytes before `offset`; see `LogText.fingerprint`.
        after_mtime_ns: rotated files with a later mtime have not been read yet, apart from this one.
    """

    device: int = 0
    inode: int = 0
    offset: int = 0
    fingerprint: str = ""
    after_mtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines without their line ends.

    Attributes:
        lines: in the order in which they were written.
        cut: by index in `lines`, the length before it was cut to `KEPT_OF_LONG_LINE_BYTES`.
        is_at_end: all that the log held when `read` was called has been returned, but for half a line at its end.
        half_line_bytes: length of that half line.
    """

    lines: list[bytes] = field(default_factory=list)
    cut: dict[int, int] = field(default_factory=dict)
    is_at_end: bool = False
    half_line_bytes: int = 0


class Tail:
    """Reads one log from a position on.

    Without a position it starts with what is at `path`; files that were rotated away before are left alone.

    Args:
        path: of the log that is being written.
        position: where to go on; None to start.
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
        self._said: set[str] = set()
        self._line_limit_bytes = min(line_limit_bytes, CHUNK_BYTES)
        self._text: LogText | None = None
        self._scanned_to = 0
        self._is_waiting = False
        # The .gz of what was just read can turn up with a newer mtime than the file that follows it.
        self._finished: deque[TextSummary] = deque(maxlen=8)
        if position is None:
            before = rotated_files(path)
            position = Position(after_mtime_ns=before[-1].mtime_ns if before else 0)
        self._position = position

    @property
    def position(self) -> Position:
        """Behind the last line returned."""
        return self._position

    @property
    def is_waiting_for_file(self) -> bool:
        """Whether the last `read` found no log to read."""
        return self._is_waiting

    def read(self) -> Batch:
        """The next lines; none at the end, and while the log is not there.

        Memory is bounded by `CHUNK_BYTES`, whatever the length of a line.
        """
        text = self._known_text() or self._find()
        if text is None:
            return Batch()
        offset = self._position.offset
        # Asked before reading: what has been renamed by now was complete before it was (log4j closes it first).
        is_live = identity(self._path) == (text.device, text.inode)
        if is_live:
            self._is_waiting = False
            self._said.clear()
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
            length, step = len(half), 0
            if len(data) == CHUNK_BYTES:
                length, step = self._scan_long_line(text, data)
        except Damaged as error:
            self._say(f"{text.path}: damaged ({error}): its lines from byte {offset} on are missing")
            return self._finish(text, b"", 0)
        if step:
            self._advance(text, data, offset + step)
            return Batch([half[:KEPT_OF_LONG_LINE_BYTES]], {0: length})
        if is_live:
            return Batch(is_at_end=True, half_line_bytes=length)
        return self._finish(text, half, length)

    def close(self) -> None:
        """Give the file back."""
        if self._text is not None:
            self._text.close()
        self._text = None

    def _batch(self, lines: list[bytes], *, is_at_end: bool, half_line_bytes: int) -> Batch:
        cut = {}
        if max(map(len, lines)) > self._line_limit_bytes:
            cut = {i: len(line) for i, line in enumerate(lines) if len(line) > self._line_limit_bytes}
            lines = [line[:KEPT_OF_LONG_LINE_BYTES] if i in cut else line for i, line in enumerate(lines)]
        return Batch(lines, cut, is_at_end, half_line_bytes)

    def _scan_long_line(self, text: LogText, start: bytes) -> tuple[int, int]:
        """Length of a line that is longer than a chunk, and the step to the next line; step 0 if it has no end."""
        offset = self._position.offset
        at, before = max(self._scanned_to, offset + len(start)), b""
        while data := text.read_at(at, CHUNK_BYTES):
            end = data.find(b"\n")
            if end >= 0:
                has_cr = (data[end - 1 : end] if end else before or start[-1:]) == b"\r"
                return at + end - offset - has_cr, at + end + 1 - offset
            at, before = at + len(data), data[-1:]
            # Half a line may be hundreds of megabytes: it is not scanned from its start again at each look.
            self._scanned_to = at
        return at - offset, 0

    def _advance(self, text: LogText, data: bytes, offset: int) -> None:
        old = self._position
        fingerprint = old.fingerprint
        if old.offset < FINGERPRINT_BYTES:
            # Of what was read, not of what is in the file by now, if possible.
            first = data[: min(offset, FINGERPRINT_BYTES)] if old.offset == 0 else None
            fingerprint = text.fingerprint(offset) if first is None else LogText.hash_of(first)
        # A .gz may be younger than the file that followed it.
        after_ns = old.after_mtime_ns if text.is_gzip else text.mtime_ns
        self._position = Position(
            device=text.device,
            inode=text.inode,
            offset=offset,
            fingerprint=fingerprint,
            after_mtime_ns=after_ns,
        )
        self._scanned_to = 0

    def _known_text(self) -> LogText | None:
        """The open file, if it still holds the text that was read; closed otherwise."""
        text, position = self._text, self._position
        if text is None or text.is_gzip:
            return text
        # Before its first line is read, a text can be exchanged for another without a trace: look again.
        if (
            position.offset > 0
            and text.reaches(max(position.offset, self._scanned_to))
            and text.fingerprint(position.offset) == position.fingerprint
        ):
            return text
        self.close()
        return None

    def _find(self) -> LogText | None:
        """Open the file of the position, or the one after it if it is gone."""
        self._scanned_to = 0
        if self._position.offset > 0:
            self._text = self._open_known()
            if self._text is not None:
                return self._text
            if identity(self._path) is None:
                # Not gone for good, perhaps: the directory is not mounted, or a rename is half done.
                return self._wait("does not exist, waiting for it")
            self._say(
                f"{self._path}: the file read last was truncated or removed, and there is no copy of it: what was"
                f" written to it after byte {self._position.offset} is missing; going on with the next file"
            )
            self._position = Position(after_mtime_ns=self._position.after_mtime_ns)
        self._text = self._open_next(self._position.after_mtime_ns)
        if self._text is None:
            return self._wait("does not exist, waiting for it")
        self._position = replace(self._position, device=self._text.device, inode=self._text.inode)
        return self._text

    def _open_known(self) -> LogText | None:
        """The text of the position: under its inode, else in a copy or .gz that starts with the same bytes."""
        position = self._position
        seen = None
        while seen != (seen := self._sight()):  # again if it was rotated while we looked
            ids = {self._path: identity(self._path)}
            ids |= {file.path: (file.device, file.inode) for file in rotated_files(self._path)}
            for path in sorted(ids, key=lambda path: ids[path] != (position.device, position.inode)):
                text = self._open(path)
                if text is None:
                    continue
                try:
                    if text.fingerprint(position.offset) == position.fingerprint and text.reaches(position.offset):
                        return text
                except Damaged:
                    pass
                text.close()
        return None

    def _sight(self) -> list[object]:
        return [identity(self._path), *((file.path, file.inode) for file in rotated_files(self._path))]

    def _finish(self, text: LogText, rest: bytes, length: int) -> Batch:
        """A file that is not the log any more has been read to its end: its last line, and on to the next file."""
        summary = text.summary()
        following = self._open_next(text.mtime_ns, text, summary)
        if following is None:
            self._wait("vanished, waiting for it")
            return Batch()
        after_ns = text.mtime_ns
        if text.is_gzip:
            after_ns = min(after_ns, following.mtime_ns - 1)
        self._finished.append(summary)
        text.close()
        self._text, self._scanned_to = following, 0
        self._position = Position(device=following.device, inode=following.inode, after_mtime_ns=after_ns)
        if not rest:
            return Batch()
        if length > self._line_limit_bytes:
            return Batch([rest[:KEPT_OF_LONG_LINE_BYTES]], {0: length})
        return Batch([rest])

    def _open_next(
        self, after_ns: int, ended: LogText | None = None, summary: TextSummary | None = None
    ) -> LogText | None:
        """The oldest file that was not read: a rotated one, else the log; None if there is none.

        Args:
            after_ns: what was written later has not been read.
            ended: the file that was read to its end; without one, the position's file itself is the next.
            summary: of `ended`.
        """
        known = [*self._finished, *([summary] if summary else [])]
        for _ in range(20):
            # In this order: what is renamed in between is then seen twice, not missed.
            live = identity(self._path)
            rotated = rotated_files(self._path)
            me = next((file for file in rotated if ended and file.inode == ended.inode), None)
            if ended and ended.is_gzip:
                after_ns, me = self._position.after_mtime_ns, None
            wanted = [
                (file.path, (file.device, file.inode))
                for file in rotated
                if (file.order > (after_ns, me.tie) if me else file.mtime_ns > after_ns)
                or (ended is None and file.inode == self._position.inode)
            ]
            wanted += [(self._path, live)] if live else []
            wanted = [item for item in wanted if not ended or item[1] != (ended.device, ended.inode)]
            is_stale = False
            for path, expected in wanted:
                text = self._open(path)
                is_stale = text is None or (text.device, text.inode) != expected
                if text is not None and not is_stale and not (text.is_gzip and text.summary() in known):
                    return text
                if text is not None:
                    text.close()
                if is_stale:
                    break
            if not is_stale:
                return None
        return None

    def _open(self, path: Path) -> LogText | None:
        try:
            return LogText(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._say(f"{path}: cannot be read ({error.strerror}): waiting; let the shipper's user read it")
            return None

    def _wait(self, why: str) -> None:
        self._is_waiting = True
        self._say(f"{self._path}: {why}")

    def _say(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self._notice(message)
