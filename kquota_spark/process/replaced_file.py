"""A file that is written whole or not at all: a reader meanwhile sees the old file or the new one."""

from __future__ import annotations

import os
from pathlib import Path

from kquota_spark.errors import UserError

_FOR_GROUP = 0o640


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a new file beside the one at `path`, then replace that one with it; the umask reduces `mode`.

    The new file survives a crash of the machine. Until it is whole, its name begins with a dot, so that Spark does
    not read it as input.

    Raises:
        OSError: it cannot be written; the file at `path` is unchanged.
    """
    target = path.resolve()  # a link stays a link
    new = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def replace_file(path: Path, data: bytes, *, advice: str = "give another file or folder") -> None:
    """`write_whole` for a file that the user named: a page or a list about clients, which not every user may read.

    An existing file keeps its rights: its owner may have opened it to others, or closed it.

    Args:
        path: path of the file.
        data: the whole content.
        advice: what to do if it cannot be written, for the error.

    Raises:
        UserError: it cannot be written.
    """
    try:
        before = path.stat().st_mode & 0o777 if path.is_file() else None
        write_whole(path, data, _FOR_GROUP)
        if before is not None:
            path.chmod(before)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}: {advice}") from error
