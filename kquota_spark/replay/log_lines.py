"""Reads the lines of archived request logs with little memory, whatever the files contain."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kquota_spark.errors import UserError
from kquota_spark.formats.request_log.line import MAX_LINE_BYTES
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.ship.log_text import open_regular_file

_LINES_AT_ONCE = 10_000
_BYTES_AT_ONCE = 16 << 20
"""Maximum bytes of lines in memory together; the last line may exceed it by its own length."""
_KEPT_BYTES = MAX_LINE_BYTES + len("\r\n")
_SKIPPED_AT_ONCE = 1 << 20
_END_BYTES = 16 << 10


def log_lines(path: Path) -> Iterator[bytes]:
    """The lines of a regular file, plain or .gz, without line ends.

    A line that is too long for the parser comes once, shortened but still too long: both ends without the middle.
    Skipped bytes take no memory. A .gz expands to at most a thousand times its size, and may be a single line.

    Raises:
        UserError: the file cannot be read.
    """
    name = terminal_text(str(path))
    try:
        with _opened(path) as file:
            while line := file.readline(_KEPT_BYTES):
                if len(line) < _KEPT_BYTES or line.endswith(b"\n"):
                    yield line.rstrip(b"\r\n")
                else:
                    yield line + _end_of_line(file)
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror or error}") from error
    except EOFError as error:
        raise UserError(f"{name}: the compressed file ends in the middle: fetch it again") from error
    except zlib.error as error:
        raise UserError(f"{name}: the compressed file is damaged: fetch it again") from error


def line_parts(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    """The lines in lists that fit into memory: many short lines or a few long ones."""
    part: list[bytes] = []
    part_bytes = 0
    for line in lines:
        part.append(line)
        part_bytes += len(line)
        if len(part) == _LINES_AT_ONCE or part_bytes >= _BYTES_AT_ONCE:
            yield part
            part, part_bytes = [], 0
    if part:
        yield part


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    with os.fdopen(open_regular_file(path), "rb") as file:
        if path.suffix != ".gz":
            yield file
        else:
            with gzip.GzipFile(fileobj=file) as packed:
                yield packed


def _end_of_line(file: IO[bytes] | gzip.GzipFile) -> bytes:
    """The last bytes of the current line; reads to its end."""
    before = b""
    while rest := file.readline(_SKIPPED_AT_ONCE):
        before = (before + rest)[-_END_BYTES:]
        if rest.endswith(b"\n"):
            break
    return before.rstrip(b"\r\n")
