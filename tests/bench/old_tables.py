"""Makes a table old in seconds: commits of micro-batches that are long gone, and small files, as links of a few."""

from __future__ import annotations

import json
import os
from pathlib import Path

from deltalake import DeltaTable

from kquota_spark.config.settings import Settings

_CHECKPOINT_EVERY = 100
_TEXT = '{"commitInfo":{"timestamp":%d,"operation":"WRITE"}}\n{"txn":{"appId":"made","version":1}}\n'


def age(settings: Settings, name: str, *, to_version: int) -> None:
    """Add commits to the log of a table until it has this version, with the checkpoints that deltalake would have made.

    The commits hold a number of a micro-batch and no files: so every checkpoint is equal to the first one.
    """
    log = Path(settings.tables) / name / "_delta_log"
    table = DeltaTable(f"{settings.tables}/{name}")
    version = table.version()
    table.create_checkpoint()
    first = log / f"{version:020}.checkpoint.parquet"
    entry = log / "made"
    entry.write_text(_TEXT % (first.stat().st_mtime_ns // 1_000_000))
    for number in range(version + 1, to_version + 1):
        os.link(entry, log / f"{number:020}.json")
        if (number + 1) % _CHECKPOINT_EVERY == 0:
            os.link(first, log / f"{number:020}.checkpoint.parquet")
            version = number
    entry.unlink()
    last = log / "_last_checkpoint"
    last.write_text(json.dumps(json.loads(last.read_text()) | {"version": version}))
    if (first.name[:20] != f"{version:020}") and (int(first.name[:20]) + 1) % _CHECKPOINT_EVERY:
        first.unlink()
