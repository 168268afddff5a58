"""The request log of an embedded broker as one text, whatever the broker has rolled away."""

from __future__ import annotations

from pathlib import Path

from kquota_spark.io.rotated_files import identity, rotated_files


def logged_lines(log: Path) -> list[bytes]:
    """All whole lines, old to new; at each full hour a broker gives its log another name and begins a new one."""
    while True:
        rotated = rotated_files(log)
        began = [identity(path) for path in (*(file.path for file in rotated), log)]
        text = b"".join(_text(path) for path in (*(file.path for file in rotated), log))
        ended = [identity(path) for path in (*(file.path for file in rotated_files(log)), log)]
        if began == ended:  # else it was rolled while it was read
            return text.rpartition(b"\n")[0].splitlines()


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
