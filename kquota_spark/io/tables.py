"""Reads the Delta tables without Spark or a JVM: deltalake lists the files of a snapshot, DuckDB reads them.

DuckDB opens the parquet files itself and not through pyarrow's dataset: on 2,000 small files (a table that
nobody optimised) that is 0.3 s against 3.5 s. It is told the declared schema by column name, so that files
of an older release without a column read as null, and Spark's INT96 times as UTC. Queries return times as
epoch milliseconds (`epoch_ms(second)`): DuckDB's own values with a zone need pytz, which we do not install.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.storage import local_path, storage_options
from kquota_spark.io.table_views import dataset_sql, empty_sql, files_sql
from kquota_spark.schema.columns import Table
from kquota_spark.schema.tables import TABLES

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from deltalake import DeltaTable

_DECLARED = {table.name: table for table in TABLES}
_TIME_COLUMN = {
    "requests": "record_time_ms",
    "usage": "second",
    "decisions": "second",
    "jmx_samples": "sample_time_ms",
}
"""Tables that are append-only in time: whole files older than asked for are left out by their statistics."""
_MEMORY_LIMIT = "2GB"
_READABLE_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
_RUN_FIRST = (
    "run the audit first (spark-submit jobs/audit.py --config conf/kquota.yaml) "
    "or check tables: in conf/kquota.yaml"
)


@dataclass(frozen=True, slots=True)
class Result:
    """What a query returned."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def dicts(self) -> list[dict[str, Any]]:
        """The rows by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Tables:
    """Opened tables, each a view of the same name for `query`; a snapshot, so later commits are not seen.

    Columns of structs (`usage.points`) are left out. Use `open_tables`.
    """

    def __init__(self, settings: Settings) -> None:
        import duckdb

        self._root = settings.tables.rstrip("/") or "/"
        self._storage = storage_options(settings)
        self._newest_ms: dict[str, int | None] = {}
        # Queries that do not fit into memory spill here instead of into the current directory.
        self._spill = tempfile.TemporaryDirectory(prefix="kquota-")
        self._duckdb = duckdb.connect(
            config={
                "memory_limit": _MEMORY_LIMIT,
                "temp_directory": self._spill.name,
                # Nothing is ever fetched from the network on the side.
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
        )
        self._duckdb.execute("set TimeZone = 'UTC'")

    def open(self, name: str, newer_than_ms: int | None = None) -> None:
        """Make a table visible to `query`.

        Args:
            name: a table of `schema.tables`.
            newer_than_ms: files that hold only older rows may be left out (requests, usage and decisions); the
                query still has to filter.

        Raises:
            UserError: the table is missing or cannot be read.
        """
        table = _DECLARED[name]
        delta = self._delta_table(name)
        files = _files(delta, _TIME_COLUMN.get(name))
        self._newest_ms[name] = max((f.newest_ms for f in files if f.newest_ms is not None), default=None)
        if newer_than_ms is not None:
            files = [f for f in files if f.newest_ms is None or f.newest_ms >= newer_than_ms]
        if files and local_path(self._root) is None:
            # Object stores: slower, but with deltalake's own credentials and file system.
            self._duckdb.register(f"dataset_{name}", delta.to_pyarrow_dataset())
            self._duckdb.execute(f'create view "{name}" as {dataset_sql(table)}')
        else:
            self._open_local(table, [f.path for f in files])

    def open_files(self, name: str, paths: Collection[str]) -> None:
        """Make some files of a table visible to `query`, under its name.

        Args:
            name: a table of `schema.tables`.
            paths: as the Delta log names them; one that is not there any more is an error of the query, or, on an
                object store, left out.

        Raises:
            UserError: the table is missing or cannot be read.
        """
        table = _DECLARED[name]
        if not paths or local_path(self._root) is not None:
            self._open_local(table, paths)
            return
        from pyarrow.dataset import FileSystemDataset

        whole: Any = self._delta_table(name).to_pyarrow_dataset()
        wanted = {unquote(path) for path in paths}
        parts = [part for part in whole.get_fragments() if unquote(part.path) in wanted]
        dataset = FileSystemDataset(parts, whole.schema, whole.format, whole.filesystem)
        self._duckdb.register(f"dataset_{name}", dataset)
        self._duckdb.execute(f'create view "{name}" as {dataset_sql(table)}')

    def _open_local(self, table: Table, paths: Collection[str]) -> None:
        local = local_path(self._root)
        if not paths or local is None:
            self._duckdb.execute(f'create view "{table.name}" as {empty_sql(table)}')
            return
        files = [_glob_escaped(_file_path(local / table.name, path)) for path in paths]
        self._duckdb.execute(f'set variable "files_{table.name}" = ?', [files])
        self._duckdb.execute(f'create view "{table.name}" as {files_sql(table)}')

    def open_if_there(self, name: str, newer_than_ms: int | None = None) -> bool:
        """`open`, unless it was opened before; without the table an empty view, and False."""
        if name in self._newest_ms:
            return True
        if self.location(name) is not None:
            self.open(name, newer_than_ms)
            return True
        self._duckdb.execute(f'create or replace view "{name}" as {empty_sql(_DECLARED[name])}')
        return False

    def query(self, sql: str, parameters: Sequence[object] = ()) -> Result:
        """Run SQL on the opened tables.

        Args:
            sql: text of ours, never of a user; times as `epoch_ms(...)`.
            parameters: values for its `?`.

        Raises:
            UserError: the files cannot be read, or a parameter is not valid text.
        """
        import duckdb

        try:
            cursor = self._duckdb.execute(sql, list(parameters))
            columns = tuple(str(column[0]) for column in cursor.description or ())
            return Result(columns, cursor.fetchall())
        except UnicodeEncodeError as error:
            raise UserError("a filter is not UTF-8 text") from error
        except (duckdb.IOException, duckdb.InvalidInputException, duckdb.OutOfMemoryException) as error:
            reason = str(error).splitlines()[0]
            msg = (
                f"tables under {self._root} cannot be read ({reason}): if kquota maintain or VACUUM has just "
                "removed old files, run the command again"
            )
            raise UserError(msg) from error

    def newest_ms(self, name: str) -> int | None:
        """Newest event time of an opened table that is append-only in time, epoch ms; None if it holds nothing."""
        newest_ms = self._newest_ms.get(name)
        if newest_ms is not None:
            return newest_ms
        column = _TIME_COLUMN[name]
        newest = f'max("{column}")' if column.endswith("_ms") else f'epoch_ms(max("{column}"))'
        sql = f'select {newest} from "{name}"'  # noqa: S608 - names of ours
        found = self.query(sql).rows[0][0]
        return None if found is None else int(found)

    def close(self) -> None:
        """Free memory and temporary files."""
        self._duckdb.close()
        self._spill.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def location(self, name: str) -> str | None:
        """The path or URI of a table; None where there is none."""
        from deltalake import DeltaTable

        where = self._where(name)
        return where if DeltaTable.is_deltatable(where, self._storage) else None

    def _where(self, name: str) -> str:
        local = local_path(self._root)
        return f"{self._root}/{name}" if local is None else str((local / name).absolute())

    def _delta_table(self, name: str) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        local = local_path(self._root)
        if local is not None and not local.is_dir():
            raise UserError(f"tables path {self._root} does not exist: {_RUN_FIRST}")
        try:
            delta = DeltaTable(self._where(name), storage_options=self._storage)
        except TableNotFoundError as error:
            raise UserError(f"table {name} is missing under {self._root}: {_RUN_FIRST}") from error
        except (DeltaError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"table {name} under {self._root} cannot be opened: {reason}") from error
        unknown = set(delta.protocol().reader_features or ()) - _READABLE_FEATURES
        if unknown or "delta.columnMapping.mode" in delta.metadata().configuration:
            features = ", ".join(sorted(unknown)) or "columnMapping"
            raise UserError(
                f"table {name} under {self._root} uses {features}, which only Spark can read: "
                "keep these table features off, and rewrite the table without them"
            )
        return delta


def open_tables(settings: Settings, *names: str, newer_than_ms: int | None = None) -> Tables:
    """Open tables for `query`; see `Tables.open` for arguments and errors."""
    tables = Tables(settings)
    try:
        for name in names:
            tables.open(name, newer_than_ms)
    except BaseException:
        tables.close()
        raise
    return tables


def query(settings: Settings, names: Iterable[str], sql: str, parameters: Sequence[object] = ()) -> Result:
    """Open the named tables, run one query, close; see `Tables.query`."""
    with open_tables(settings, *names) as tables:
        return tables.query(sql, parameters)


def utc_text(time_ms: int) -> str:
    """`2026-11-21 05:40:48 UTC`, for messages."""
    return datetime.fromtimestamp(time_ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    newest_ms: int | None
    """From the statistics of the Delta log; None where they are missing."""


def _files(delta: DeltaTable, time_column: str | None) -> list[_File]:
    actions = delta.get_add_actions(flatten=True)
    paths = actions.column("path").to_pylist()
    statistic = f"max.{time_column}"
    if time_column is None or statistic not in actions.schema.names:
        return [_File(path, None) for path in paths]
    newest = actions.column(statistic).to_pylist()
    return [_File(path, _epoch_ms(time)) for path, time in zip(paths, newest, strict=True)]


def _epoch_ms(time: datetime | int | None) -> int | None:
    if time is None or isinstance(time, int):
        return time
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)


def _file_path(table: Path, path: str) -> str:
    """Delta writes paths URL-encoded, relative to the table unless it is a clone."""
    return unquote(urlsplit(path).path) if path.startswith("file:") else str(table / unquote(path))


def _glob_escaped(path: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)
