"""A file system of a few MiB, which can be filled and made read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a file system at a new directory, until the block is left.

    Only root may do so. Where CI runs, a test that cannot do it fails, because a skipped one proves nothing.
    """
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"this proof needs the right to mount: {mounted.stderr.strip()}")
        pytest.skip("only root may mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
