"""Flushes written files to a local disk: after a power failure no file that a table names is empty or missing.

Neither Arrow nor deltalake does that. An object store has stored an object when it answers, so it needs no flush.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from kquota_spark.config.roots import local_path

_LAST_CHECKPOINT = "_last_checkpoint"


def sync_files(files: Iterable[Path], *also: Path) -> None:
    """Flush files to the disk, then the folders that contain them, then further folders.

    Raises:
        OSError: the disk cannot store them.
    """
    written = list(files)
    for path in dict.fromkeys([*written, *(file.parent for file in written), *also]):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_commit(place: str, newest: int, *, first: int | None = None, has_files: bool = True) -> None:
    """Flush the newest commits of a table to the disk: the files that they name, and then their log entries.

    This follows every commit of ours, so that nothing is reported that a power failure can undo.

    Args:
        place: path or URI of the table.
        newest: its version after the commit.
        first: the first version to flush; None for the newest alone.
        has_files: False if the writers of the files have flushed them.

    Raises:
        OSError: the disk cannot store them.
    """
    root = local_path(place)
    if root is None:
        return
    log, versions = root / "_delta_log", range(newest if first is None else first, newest + 1)
    # Another process may have trimmed the log since.
    entries = [path for version in versions if (path := log / f"{version:020}.json").exists()]
    checkpoints = [path for each in versions if (path := log / f"{each:020}.checkpoint.parquet").exists()]
    if has_files:
        # The folder of a date may be new.
        sync_files([file for entry in entries for file in _added(root, entry)], root)
    # The checkpoint comes first: old entries that it holds may be removed already.
    sync_files([*checkpoints, *([log / _LAST_CHECKPOINT] if checkpoints else []), *entries])
    if newest == 0:  # the folders of a new table
        sync_files([log, root])


def _added(root: Path, entry: Path) -> list[Path]:
    """The files that a commit added, without those that have been removed since."""
    actions = map(json.loads, entry.read_text(encoding="utf-8").splitlines())
    paths = (root / unquote(action["add"]["path"]) for action in actions if "add" in action)
    return [path for path in paths if path.exists()]
