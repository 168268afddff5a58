"""The request log of an embedded broker, as far as it is written."""

from __future__ import annotations

from pathlib import Path


def logged_lines(log: Path) -> list[bytes]:
    """All whole lines, old to new: what follows the last line end is still being written."""
    return log.read_bytes().rpartition(b"\n")[0].splitlines()
