"""A file written whole or not at all: whoever reads it meanwhile sees the old one or the new one."""

from __future__ import annotations

import os
from pathlib import Path

from kquota_spark.errors import UserError

_FOR_GROUP = 0o640


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file beside the one of that name and put it in its place; the umask takes away of its rights.

    It is still there after the machine has stopped. Until it is whole its name begins with a dot, which Spark takes for
    no input.

    Raises:
        OSError: it cannot be written; the one of that name is as it was.
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

    A file that is there keeps its rights: its owner may have opened it to others, or closed it.

    Args:
        path: of the file.
        data: all of it.
        advice: what to do if it cannot be written.

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
