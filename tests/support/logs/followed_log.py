"""A log that grows and is compressed, and its tail read to the end."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from kquota_spark.ship.rotated_files import Position
from kquota_spark.ship.tail import Tail

MIB = 1 << 20


def tail_of(log: Path, position: Position | None = None, said: list[str] | None = None) -> Tail:
    return Tail(log, position, notice=(said if said is not None else []).append)


def all_lines(tail: Tail) -> list[bytes]:
    lines: list[bytes] = []
    while True:
        batch = tail.read()
        lines += batch.lines
        if not batch.lines and (batch.is_at_end or tail.is_waiting_for_file):
            return lines


def append(path: Path, data: bytes, mtime_s: float | None = None) -> None:
    with path.open("ab") as file:
        file.write(data)
    if mtime_s is not None:
        os.utime(path, (mtime_s, mtime_s))


def compress(path: Path, mtime_s: float | None = None) -> None:
    """As gzip does: the .gz keeps the mtime of the file and takes its place."""
    when = path.stat().st_mtime if mtime_s is None else mtime_s
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(target, (when, when))
    path.unlink()
