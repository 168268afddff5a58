"""Makes a table old in seconds: commits of micro-batches that are long gone, and small files, as links of a few."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.schema.columns import Table
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.parts import Part, PartWriter

_CHECKPOINT_EVERY = 100
_MOST_LINKS = 50_000
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
        _linked(entry, log / f"{number:020}.json", number)
        if (number + 1) % _CHECKPOINT_EVERY == 0:
            os.link(first, log / f"{number:020}.checkpoint.parquet")
            version = number
    entry.unlink()
    last = log / "_last_checkpoint"
    last.write_text(json.dumps(json.loads(last.read_text()) | {"version": version}))
    if (first.name[:20] != f"{version:020}") and (int(first.name[:20]) + 1) % _CHECKPOINT_EVERY:
        first.unlink()


def crowd(settings: Settings, declared: Table, rows: Sequence[dict[str, Any]], files: int) -> None:
    """Fill a table with so many files of one row each, as micro-batches leave them.

    Args:
        settings: where the tables are.
        declared: the table.
        rows: what the files contain, in this order: each row has about as many files, which are links of one.
        files: how many, at least one for each row.
    """
    parts = list[Part]()
    for number, row in enumerate(rows):
        first, end = (files * each // len(rows) for each in (number, number + 1))
        parts += parts_of(settings, declared, row, end - first)
    BatchCommits(settings, declared).add(parts, MicroBatch("made", 0))


def parts_of(settings: Settings, declared: Table, row: dict[str, Any], files: int) -> Iterator[Part]:
    """Write so many files of one row, at least one, and commit none: they are links of the first."""
    writer = PartWriter(settings, declared)
    data = pa.Table.from_pylist(
        [{name: row.get(name) for name in declared.names}], schema=declared.arrow_schema()
    )
    for batch in data.to_batches():
        writer.write(batch)
    [part] = writer.close()
    yield part
    folder = Path(settings.tables) / declared.name
    for number in range(1, files):
        path = f"{part.path.removesuffix('.snappy.parquet')}-{number}.snappy.parquet"
        _linked(folder / part.path, folder / path, number)
        yield part._replace(path=path)


def _linked(file: Path, link: Path, number: int) -> None:
    """Make a link, or now and then a copy: a file of ext4 has at most 65,000 names."""
    if number % _MOST_LINKS == 0:
        copied = file.with_suffix(".copy")
        shutil.copy(file, copied)
        copied.replace(file)
    os.link(file, link)
