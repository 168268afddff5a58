"""What a local disk surely holds after a power failure: what was synced, and nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest


class SureDisk:
    """Follows `os.fsync`: of a file the bytes at that moment, of a folder the names in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        fsync = os.fsync

        def followed(descriptor: int) -> None:
            fsync(descriptor)
            number, path = os.fstat(descriptor).st_ino, Path(f"/proc/self/fd/{descriptor}").readlink()
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                self._names[number] = {each.name: each.stat().st_ino for each in path.iterdir()}
            else:
                self._bytes[number] = path.read_bytes()

        monkeypatch.setattr(os, "fsync", followed)

    def left(self, folder: Path, target: Path) -> Path:
        """Put into a new folder what a power failure now would leave of one: names without bytes are empty files."""
        target.mkdir(parents=True)
        for name, number in self._names.get(folder.stat().st_ino, {}).items():
            if not (folder / name).exists():
                continue  # removed since
            if (folder / name).is_dir():
                self.left(folder / name, target / name)
            else:
                (target / name).write_bytes(self._bytes.get(number, b""))
        return target
