"""Commits files that workers wrote: each micro-batch once, and rows that replace others.

The table's Delta log holds the number of the newest micro-batch of each query.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa

from kquota_spark.config.roots import local_path
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.columns import Table
from kquota_spark.store.delta.errors import committed
from kquota_spark.store.delta.file_systems import table_files
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.parts import Part, dataset_of
from kquota_spark.store.storage import delta_table, file_system, log_of, place_of, storage_options

_ATTEMPTS = 5
_OVERTAKEN = (
    "another writer changed the same rows of a table five times in a row: is a second kquota maintain or restate "
    "running?"
)


class MicroBatch(NamedTuple):
    """One micro-batch of one query; a new checkpoint is a new query, with numbers from 0."""

    query_id: str
    number: int

    def is_in(self, table: StoredTable) -> bool:
        """Whether it, or a later one of the same query, is committed in a snapshot of a table."""
        number = table.number_of(self.query_id)
        return number is not None and number >= self.number


class BatchCommits:
    """The commits of micro-batches into one table."""

    def __init__(self, settings: Settings, table: Table) -> None:
        self._settings, self._declared = settings, table
        self._table: StoredTable | None = None
        self._is_seen = False
        self._synced = 0
        """The newest version that this object knows to be on disk."""
        self._own: tuple[int, MicroBatch] | None = None
        """The version that this object's last commit makes if no other commit comes in between, and its micro-batch."""

    def newest(self) -> StoredTable:
        """The table as it is now."""
        if self._table is None:
            self._table = delta_table(self._settings, self._declared.name)
            self._synced = self._table.version()
        elif self._table.may_be_older():
            self._table.refresh()
        return self._table

    def version(self) -> int:
        """The version of the newest commit."""
        return self.newest().version()

    def has(self, batch: MicroBatch) -> bool:
        """Whether this run or an earlier one has committed a micro-batch."""
        return self.is_in(self.newest(), batch)

    def is_in(self, table: StoredTable, batch: MicroBatch) -> bool:
        """Whether a micro-batch, or a later one of the same query, is committed in a snapshot of a table.

        deltalake reads each log entry since the last checkpoint for that: on an object store up to 100 requests.
        Nothing is read if the newest commit is the last one of this object.
        """
        if self._own is not None and self._own[0] == table.version():
            own = self._own[1]
            if own.query_id == batch.query_id:
                return own.number >= batch.number
        return batch.is_in(table)

    def made(self, version: int, batch: MicroBatch) -> None:
        """Remember a commit: the version that it makes if no other came in between, and its micro-batch."""
        self._own = (version, batch)

    def add(self, parts: Sequence[Part], batch: MicroBatch, *, is_news: bool = True) -> None:
        """Commit the files of a micro-batch once; if it is committed already, remove them.

        The check and the commit use the same version of the table. deltalake refuses the commit if another driver
        has committed a micro-batch of this query since. An older one is never committed after a newer one.

        deltalake treats an append as a reader of the whole table: it fails if a restatement or a compaction has
        replaced rows since. The files of this micro-batch do not depend on those rows, so the commit is retried.

        Args:
            parts: files that are written and not committed.
            batch: the micro-batch.
            is_news: whether followers of the table read the rows as new ones.

        Raises:
            CommitFailedError: other writers were faster each time.
        """
        attempts = count(1)

        def append() -> None:
            is_first, table = next(attempts) == 1, self.newest()
            following = table.version() + 1
            if self.is_in(table, batch):
                # An earlier attempt may have made the commit, and only its answer was lost.
                if is_first:
                    self.discard(parts)
                return
            table.commit(self._declared, parts, once=batch, is_news=is_news)
            self.made(following, batch)

        committed(append, _ATTEMPTS)
        self.sync(has_files=False)

    def sync(self, *, has_files: bool = True) -> None:
        """Flush the commits since the last call to the disk; for `has_files` see `sync_commit`."""
        if self._table is None or local_path(self._table.place) is None:
            return  # nothing was committed, or an object store: no unneeded requests
        table = self.newest()
        if table.version() > self._synced:
            table.flush(first=self._synced + 1, has_files=has_files)
            self._synced = table.version()

    def require_there(self, parts: Sequence[Part]) -> None:
        """Check once, before the first commit, that files of workers are where readers of the table expect them.

        They are not if a worker wrote to its own disk, or if the libraries resolve the root to different places. A
        commit would then name files that no reader finds.

        Raises:
            UserError: a file is not there; nothing was committed.
        """
        if self._is_seen or not parts:
            return
        where = self.newest().place
        is_local = local_path(where) is not None
        # On an object store each file costs a request.
        paths = [part.path for part in (parts if is_local else parts[:1])]
        found = table_files(where, storage_options(self._settings)).get_file_info(paths)
        lost = [info.path for info in found if not info.is_file]
        if lost:
            raise UserError(
                f"table {self._declared.name}: {lost[0]} is not under {self._settings.tables} as the driver sees it, "
                "though a worker wrote it there: tables: must be one place for all nodes; nothing was committed"
            )
        self._is_seen = True

    def discard(self, parts: Iterable[Part]) -> None:
        """Remove files that will not be committed."""
        files, root = self._place()
        for part in parts:
            with suppress(OSError):  # kquota maintain removes what is left
                files.delete_file(f"{root}/{part.path}")

    def rows_of(self, batch: MicroBatch) -> pa.Table | None:
        """The rows of a micro-batch, from its own commit; None if the table's log has no such commit."""
        paths = self.paths_of(batch)
        return None if paths is None else dataset_of(self._settings, self._declared, paths).to_table()

    def paths_of(self, batch: MicroBatch) -> list[str] | None:
        """The files of a micro-batch, from its own commit; None if the table's log has no such commit."""
        return log_of(self._settings, self._declared.name).paths_of(*batch)

    def _place(self) -> tuple[Any, str]:
        return file_system(self._settings, place_of(self._settings.tables, self._declared.name))


def retried(commit: Callable[[], None]) -> None:
    """Run a write that replaces rows, and retry it after a conflict; each attempt reads the rows again.

    Conflicts come from the fold into `violations`, and from restatements, compactions and appends of the same files.

    Raises:
        UserError: another writer was faster five times in a row.
    """
    committed(commit, _ATTEMPTS, _OVERTAKEN)


def replace_rows(settings: Settings, declared: Table, parts: Sequence[Part], condition: str) -> None:
    """Replace the rows that match a condition by the rows of files that workers wrote, in one commit.

    Delta's own writer for Spark checks whether a commit of that version exists, and then renames its file. That is safe
    only within one JVM: on a local file system it replaces a commit that another process makes in between. deltalake
    never replaces a log file: of two writers the second one gets an error.

    Args:
        settings: where the tables are.
        declared: the table.
        parts: files that are not committed; they are removed afterwards.
        condition: SQL of deltalake; it has to hold for the new rows too.

    Raises:
        UserError: other writers changed the same rows five times in a row.
    """
    paths = [part.path for part in parts]

    def replace() -> None:
        batches = dataset_of(settings, declared, paths).to_batches() if paths else ()
        rows = pa.RecordBatchReader.from_batches(declared.arrow_schema(), batches)
        delta_table(settings, declared.name).replace(rows, condition)

    try:
        retried(replace)
    finally:
        BatchCommits(settings, declared).discard(parts)


def add_rows(settings: Settings, declared: Table, parts: Sequence[Part]) -> None:
    """Commit written files as rows that followers of the table do not read as new ones."""
    if parts:
        once = MicroBatch(uuid.uuid4().hex, 0)
        BatchCommits(settings, declared).add(parts, once, is_news=False)
