"""Merges small files of a table: the same rows in fewer files, in a commit that followers skip.

deltalake's own `optimize.compact` takes whole partitions. It accepts two compactions at the same time, and then each
row is there twice. Here the caller chooses the files, and the commit is refused if any other came since the table was
read. Then the table is read again: a file that another writer has replaced is never put back.

Files are packed by number and not by the hour, so that neither a clock nor the trigger matters. Files of one level
become a file of the next one. Each level rewrites a row once. Besides large files, a date has about `_MANY` files of
each level at most.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow.compute as pc

from kquota_spark.config.settings import Settings
from kquota_spark.process.clock import now_ms
from kquota_spark.schema.columns import Table
from kquota_spark.store.commits import BatchCommits
from kquota_spark.store.dated_files import digest_of
from kquota_spark.store.delta.errors import committed
from kquota_spark.store.delta.files import ReplacedFile
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.parts import Part, PartWriter, dataset_of
from kquota_spark.store.storage import delta_table

_MANY = 60
"""Files of one level and date that become one: those of five minutes with the default trigger."""
_MOST_FILES = 500
_MOST_BYTES = 128 << 20
_LARGE_BYTES = 64 << 20
"""Size from which a file is left as it is."""
_ATTEMPTS = 20
_ROWS_AT_ONCE = 10_000
_OPEN = "null_count.end_time"
_LEVEL = re.compile(r".*/pack(\d+)-[^/]*")


class File(NamedTuple):
    """A file of a snapshot."""

    path: str
    event_date: str
    size: int
    written_ms: int
    rows: int | None
    """None if the log does not contain it."""

    @property
    def level(self) -> int:
        """How often its rows were packed: 0 for a new file, or one that another program packed."""
        match = _LEVEL.fullmatch(self.path)
        return int(match[1]) if match else 0


def small_files(table: StoredTable) -> list[File]:
    """The files of a table with event dates that are not large, oldest first.

    Files with open episodes are left out: each micro-batch that continues such an episode rewrites its file.
    """
    actions = table.files().as_arrow()
    names = actions.schema.names
    if "partition.event_date" not in names:
        return []
    is_small: Any = (pc.field("size_bytes") < _LARGE_BYTES) & pc.field("partition.event_date").is_valid()
    if _OPEN in names:
        is_small &= pc.field(_OPEN) == 0
    actions = actions.filter(is_small)
    rows = actions["num_records"].to_pylist() if "num_records" in names else [None] * actions.num_rows
    columns = ("path", "partition.event_date", "size_bytes", "modification_time")
    found = [
        File(path, str(day), *of_file)
        for path, day, *of_file in zip(*(actions[name].to_pylist() for name in columns), rows, strict=True)
    ]
    return sorted(found, key=lambda file: (file.written_ms, file.path))


def due(files: Iterable[File]) -> list[File]:
    """The files of one date and level that should be packed now, oldest first; none if no level has enough."""
    by_level: dict[tuple[str, int], list[File]] = defaultdict(list)
    for file in files:
        by_level[file.event_date, file.level].append(file)
    # The newest date first: the job writes to it, and most queries read it.
    for _, found in sorted(by_level.items(), key=lambda item: (item[0][0], -item[0][1]), reverse=True):
        if len(found) >= _MANY:
            return next(bins(found, _MOST_FILES))
    return []


def bins(files: Sequence[File], most: int) -> Iterator[list[File]]:
    """The files in their order, in groups to pack into one file each; a group of one is left out.

    A group has at most `most` files and `_MOST_BYTES` bytes.
    """
    group, size = list[File](), 0
    for file in files:
        if group and (len(group) == most or size + file.size > _MOST_BYTES):
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if len(group) > 1:
        yield group


def pack(settings: Settings, declared: Table, files: Sequence[File]) -> bool:
    """Pack files of one date into one; return False if another writer has replaced one of them meanwhile.

    Raises:
        OSError: a file cannot be read or written.
        CommitFailedError: other writers were faster each time; nothing has changed.
    """
    parts = _written(settings, declared, files)
    is_done = _replaced(settings, declared, files, parts)
    if not is_done:
        # After an error this is not reached: they may have been committed, so they stay.
        BatchCommits(settings, declared).discard(parts)
    return is_done


def _written(settings: Settings, declared: Table, files: Sequence[File]) -> list[Part]:
    level = 1 + max(file.level for file in files)
    name = f"pack{level}-{digest_of(file.path for file in files)}"
    writer = PartWriter(settings, declared, name=name)
    rows = dataset_of(settings, declared, [file.path for file in files]).scanner(
        batch_size=_ROWS_AT_ONCE, batch_readahead=2, fragment_readahead=4
    )
    for batch in rows.to_batches():
        if batch.num_rows:
            writer.write(batch)
    parts = list(writer.close())
    expected = [file.rows for file in files]
    if None not in expected and sum(map(int, filter(None, expected))) != sum(part.rows for part in parts):
        BatchCommits(settings, declared).discard(parts)
        raise OSError(f"{files[0].path} and others: another number of rows than the log of the table has")
    return parts


def _replaced(settings: Settings, declared: Table, files: Sequence[File], parts: Sequence[Part]) -> bool:
    """Commit, unless one of the old files is not in the table any more; return whether the commit was made."""
    at_ms, table = now_ms(), delta_table(settings, declared.name)
    replaced = [ReplacedFile(file.path, file.size, file.event_date) for file in files]
    old, new, before = {file.path for file in files}, {part.path for part in parts}, table.version()

    def replace() -> bool:
        table.refresh()
        held = set(table.paths())
        if not old <= held:
            # An earlier attempt may have made the commit, and only its answer was lost.
            return new <= held
        table.commit(declared, parts, replaced, replaced_ms=at_ms)
        return True

    is_done = committed(replace, _ATTEMPTS)
    table.refresh()
    table.flush(first=before + 1, has_files=False)
    return is_done
