"""A snapshot of a Delta table: its rows and files, and the commits on top of it.

Each method of `StoredTable` is one call of deltalake, and raises its errors; `delta_errors` turns those into ours.
Commits that write rows flush them to a local disk. A commit of files is flushed by `flush`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from kquota_spark.config.roots import local_path
from kquota_spark.schema.columns import Table
from kquota_spark.store.delta.durable import sync_commit
from kquota_spark.store.delta.files import FileList, ReplacedFile, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import dataset as ds
    from pyarrow import fs

Options = Mapping[str, str] | None
"""Options of the store under deltalake's names; None leaves them to the environment."""
Filters = list[tuple[str, str, Any]] | None
"""Conditions that all hold, each a column, an operator and a value; None for all rows."""


def sql_text(value: str) -> str:
    """A text as a literal in a condition of `StoredTable.replace`, `delete` or `merge`."""
    return "'" + value.replace("'", "''") + "'"


def sql_texts(values: Iterable[str]) -> str:
    """Texts as the list of `in`."""
    return f"({', '.join(map(sql_text, values))})"


Once = tuple[str, int]
"""A writer and a number: a commit that carries it is refused if one of the same writer came since the snapshot."""


class StoredTable:
    """A snapshot of a table; `refresh` and our own commits move it to a newer version.

    Args:
        delta: the opened table.
    """

    __slots__ = ("_delta",)

    def __init__(self, delta: DeltaTable) -> None:
        self._delta = delta

    @classmethod
    def opened(cls, place: str, options: Options = None, version: int | None = None) -> StoredTable:
        """A table that exists.

        Args:
            place: path or URI.
            options: of the store.
            version: None for the newest.
        """
        storage = None if options is None else dict(options)
        return cls(DeltaTable(place, version=version, storage_options=storage))

    @classmethod
    def found(cls, place: str, options: Options = None) -> StoredTable | None:
        """The newest version of a table; None if it does not exist."""
        with suppress(TableNotFoundError):
            return cls.opened(place, options)
        return None

    @classmethod
    def created(
        cls,
        place: str,
        schema: pa.Schema,
        properties: Mapping[str, str],
        options: Options = None,
        *,
        partition_by: Sequence[str] = (),
        name: str | None = None,
        grain: str | None = None,
    ) -> StoredTable:
        """A table, created if it does not exist yet; one that exists stays as it is.

        Args:
            place: path or URI.
            schema: columns and types of a new table.
            properties: of a new table; names that Delta does not define are kept too.
            options: of the store.
            partition_by: columns of which each combination of values has files of its own.
            name: the table's name in its metadata; None for none.
            grain: what a row is, as the description in its metadata; None for none.
        """
        return cls(
            DeltaTable.create(
                place,
                schema,
                mode="ignore",
                partition_by=list(partition_by),
                name=name,
                description=grain,
                configuration=dict(properties),
                storage_options=None if options is None else dict(options),
                raise_if_key_not_exists=False,
            )
        )

    @property
    def place(self) -> str:
        """Path or URI."""
        return self._delta.table_uri

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties, in Delta's names and ours."""
        return self._delta.metadata().configuration

    @property
    def table_id(self) -> str:
        """The id that it got when it was created; a recreated table has another one."""
        return str(self._delta.metadata().id)

    def version(self) -> int:
        """The version of the snapshot; 0 for a new table, and one more with each commit."""
        return self._delta.version()

    def refresh(self) -> None:
        """Move to the newest version; only the log entries since are read."""
        self._delta.update_incremental()

    def may_be_older(self) -> bool:
        """Whether the table may have newer commits; on a local disk this does not list the log."""
        root, version = local_path(self.place), self.version()
        if root is None:
            return True
        own, following = (root / "_delta_log" / f"{number:020}.json" for number in (version, version + 1))
        # A log that was trimmed beyond the snapshot has neither: the oldest entries are removed first.
        return following.exists() or not own.exists()

    def move_to(self, version: int) -> None:
        """Move to a version."""
        self._delta.load_as_version(version)

    def number_of(self, writer: str) -> int | None:
        """The newest number that a commit of a writer carried; None for none. See `Once`.

        deltalake reads each log entry since the last checkpoint for that.
        """
        return self._delta.transaction_version(writer)

    def schema(self) -> pa.Schema:
        """Its columns as Arrow; Arrow has more than one name for the elements of a list, see `as_stored`."""
        return _arrow(self._delta.schema())

    def files(self) -> FileList:
        """Its files with their statistics."""
        return FileList(self._delta.get_add_actions(flatten=True))

    def paths(self) -> list[str]:
        """The paths of its files, as the log names them."""
        return self.files().column("path")

    def features_for_reading(self) -> set[str]:
        """Delta's table features that a reader has to know."""
        return set(self._delta.protocol().reader_features or ())

    def rows(self, columns: Sequence[str] | None = None, filters: Filters = None) -> pa.Table:
        """Its rows.

        Args:
            columns: None for all.
            filters: conditions on columns.
        """
        chosen = None if columns is None else list(columns)
        return self._delta.to_pyarrow_table(columns=chosen, filters=filters, filesystem=self._arrow_files())

    def dataset(self) -> ds.Dataset:
        """Its rows, read when they are asked for."""
        return self._delta.to_pyarrow_dataset(filesystem=self._arrow_files())

    def _arrow_files(self) -> fs.FileSystem | None:
        """The file system for reading a local table; None for an object store, which needs deltalake's own.

        deltalake's is written in Python. If a thread of Arrow is still in it when the process ends, the process
        aborts: in one of ten runs of a command.
        """
        from pyarrow import fs

        local = local_path(self.place)
        return None if local is None else fs.SubTreeFileSystem(str(local.absolute()), fs.LocalFileSystem())

    def append(self, rows: Any, once: Once | None = None, *, adds_columns: bool = False) -> None:
        """Add rows.

        Args:
            rows: a table, a batch or a reader of batches of Arrow.
            once: the number that the commit carries; None for none.
            adds_columns: whether columns that the table lacks are added to it; otherwise they are an error.
        """
        write_deltalake(
            self._delta,
            rows,
            mode="append",
            schema_mode="merge" if adds_columns else None,
            commit_properties=_properties(once),
        )
        self.flush()

    def replace(self, rows: Any, where: str, *, adds_columns: bool = False) -> None:
        """Replace the rows that match a condition.

        Args:
            rows: as of `append`; they have to match the condition too.
            where: SQL of deltalake.
            adds_columns: as of `append`.
        """
        write_deltalake(
            self._delta,
            rows,
            mode="overwrite",
            predicate=where,
            schema_mode="merge" if adds_columns else None,
        )
        self.flush()

    def delete(self, where: str) -> None:
        """Remove the rows that match a condition, in SQL of deltalake."""
        self._delta.delete(where)
        self.flush()

    def merge(
        self, rows: pa.Table, on: str, columns: Iterable[str], removed: str = "", once: Once | None = None
    ) -> None:
        """Update the rows that match, insert the others, and remove some.

        Args:
            rows: called `new` in conditions; the rows of the table are `old`.
            on: condition for rows that are the same.
            columns: the columns to write.
            removed: a boolean column of `rows`: a row with true removes its match. Empty for none.
            once: as of `append`.
        """
        values = {name: f"new.{name}" for name in columns}
        kept = f"not new.{removed}" if removed else None
        merger = self._delta.merge(
            rows, on, source_alias="new", target_alias="old", commit_properties=_properties(once)
        )
        if removed:
            merger = merger.when_matched_delete(f"new.{removed}")
        merger.when_matched_update(values, kept).when_not_matched_insert(values, kept).execute()
        self.flush()

    def commit(
        self,
        declared: Table,
        added: Iterable[WrittenFile] = (),
        replaced: Iterable[ReplacedFile] = (),
        *,
        once: Once | None = None,
        is_news: bool = False,
        replaced_ms: int = 0,
    ) -> None:
        """Commit written files. `refresh` and `flush` have to follow.

        Args:
            declared: the table, partitioned by event_date, or by nothing without any file.
            added: files that are written and not committed.
            replaced: files to take out. The commit is then refused if any other came since the snapshot: deltalake
                itself accepts two compactions of the same files.
            once: as of `append`.
            is_news: whether followers of the table read the rows as new ones.
            replaced_ms: when the files were replaced, epoch ms.
        """
        actions: list[Any] = [
            AddAction(
                file.path, file.size, {"event_date": file.event_date}, file.written_ms, is_news, file.stats
            )
            for file in added
        ]
        taken = [
            RemoveAction(
                file.path,
                False,
                replaced_ms,
                size=file.size,
                partition_values={"event_date": file.event_date},
            )
            for file in replaced
        ]
        self._delta.create_write_transaction(
            actions + taken,
            mode="append",
            schema=declared.arrow_schema(),
            partition_by=list(declared.partition_by),
            commit_properties=CommitProperties(max_commit_retries=0) if taken else _properties(once),
        )

    def take_number(self, schema: pa.Schema, once: Once) -> None:
        """Commit a number and no rows, on top of the snapshot; any store refuses one of two commits of a number."""
        self._delta.create_write_transaction(
            [], mode="append", schema=schema, partition_by=[], commit_properties=_properties(once)
        )
        self.refresh()
        self.flush()

    def flush(self, *, first: int | None = None, has_files: bool = True) -> None:
        """Flush its newest commits to the disk; see `sync_commit`."""
        sync_commit(self.place, self.version(), first=first, has_files=has_files)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set some of its properties."""
        self._delta.alter.set_table_properties(dict(properties), raise_if_not_exists=False)

    def add_columns(self, declared: Table) -> None:
        """Add the declared columns that it lacks; its rows have null there."""
        held = {field.name for field in self._delta.schema().fields}
        fields = Schema.from_arrow(declared.arrow_schema()).fields
        if added := [field for field in fields if field.name not in held]:
            self._delta.alter.add_columns(added)

    def count_files_of(self, day: str) -> int:
        """The number of files of an ISO date."""
        return len(self._delta.file_uris(file_pruning_predicate=[("event_date", "=", day)]))

    def compact(self, day: str = "") -> None:
        """Make few files of many. Two at the same time would both succeed, and each row would be there twice.

        Args:
            day: ISO date; empty for all rows.
        """
        filters = [("event_date", "=", day)] if day else None
        self._delta.optimize.compact(partition_filters=filters)
        self.flush()

    def remove_old_files(
        self, hours: int | None = None, *, is_dry_run: bool = False, is_full: bool = False
    ) -> list[str]:
        """Remove files that are no longer part of the table; return their paths.

        Args:
            hours: their least age; None for that of the table's properties.
            is_dry_run: only return the paths.
            is_full: also files that the log does not name.
        """
        return self._delta.vacuum(hours, dry_run=is_dry_run, enforce_retention_duration=False, full=is_full)

    def write_checkpoint(self) -> None:
        """Put the whole state into one log entry, so that the older ones are not needed."""
        self._delta.create_checkpoint()

    def remove_old_entries(self) -> None:
        """Remove log entries that are older than the retention of the table's properties."""
        self._delta.cleanup_metadata()


def is_table(place: str, options: Options = None) -> bool:
    """Whether there is a table at a path or URI."""
    return bool(DeltaTable.is_deltatable(place, None if options is None else dict(options)))


def as_stored(schema: pa.Schema) -> pa.Schema:
    """A schema of Arrow as `StoredTable.schema` returns it: with Delta's types."""
    return _arrow(Schema.from_arrow(schema))


def _properties(once: Once | None) -> CommitProperties | None:
    return None if once is None else CommitProperties(app_transactions=[Transaction(*once)])


def _arrow(schema: Schema) -> pa.Schema:
    import pyarrow as pa

    found: pa.Schema = pa.schema(schema.to_arrow())  # type: ignore[arg-type]
    return found
