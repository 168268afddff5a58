"""Lines of archived request logs in little memory, whatever the files hold."""

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
"""Lines that are in memory together; the last one of them may go beyond it by its own length."""
_KEPT_BYTES = MAX_LINE_BYTES + len("\r\n")
_SKIPPED_AT_ONCE = 1 << 20
_END_BYTES = 16 << 10


def log_lines(path: Path) -> Iterator[bytes]:
    """Lines of a regular file, plain or .gz, without their ends.

    A line that is too long for the parser comes once, still too long, with both of its ends and without its middle.
    What is skipped takes no memory: a .gz unpacks to at most a thousand times its size, and all of it may be one line.

    Raises:
        UserError: it cannot be read.
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
    """The lines in lists that fit into memory: many short ones or a few long ones."""
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
    """The last bytes of a line that is read on to its end."""
    before = b""
    while rest := file.readline(_SKIPPED_AT_ONCE):
        before = (before + rest)[-_END_BYTES:]
        if rest.endswith(b"\n"):
            break
    return before.rstrip(b"\r\n")
