"""The files of a Delta table's snapshot, and the SQL for DuckDB to read them with the declared schema."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from kquota_spark.schema.columns import Column, Table

if TYPE_CHECKING:
    from kquota_spark.store.delta.table import StoredTable

ValueT = TypeVar("ValueT", int, str, datetime)
_SQL_TYPES = {
    "string": "VARCHAR",
    "binary": "BLOB",
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
}

_READABLE_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a snapshot; its path as the Delta log names it."""

    path: str
    newest_ms: int | None
    """The newest time in it, epoch ms, from the statistics of the Delta log; None without statistics."""


def files_of(delta: StoredTable, time_column: str | None) -> list[TableFile]:
    """The files of a snapshot, each with its newest time in `time_column`; None for no such column."""
    actions = delta.files()
    paths = actions.column("path")
    statistic = f"max.{time_column}"
    if time_column is None or statistic not in actions.names:
        return [TableFile(path, None) for path in paths]
    newest = actions.column(statistic)
    return [TableFile(path, _epoch_ms(time)) for path, time in zip(paths, newest, strict=True)]


def paths_within(delta: StoredTable, column: str, low: ValueT, high: ValueT) -> list[str]:
    """The files of a snapshot that may hold rows with a value in a range, by their statistics.

    Args:
        delta: the snapshot.
        column: a column with statistics; without them all files are returned.
        low: the least value, of the column's own type: a number, a text or a time in UTC.
        high: the end of the range, exclusive.
    """
    actions = delta.files()
    paths: list[str] = actions.column("path")
    if f"min.{column}" not in actions.names:
        return paths
    bounds: Iterator[Any] = (actions.column(f"{end}.{column}") for end in ("min", "max"))
    return [
        path
        for path, least, most in zip(paths, *bounds, strict=True)
        if least is None or most is None or (least < high and most >= low)
    ]


def dataset_of(where: str, storage: dict[str, str] | None, table: Table, paths: Collection[str]) -> Any:
    """The pyarrow dataset of some files of a table, also of files that a compaction has replaced since.

    Args:
        where: path or URI of the table.
        storage: deltalake's options.
        table: its declaration.
        paths: as the Delta log names them.
    """
    import pyarrow as pa
    from pyarrow import dataset

    from kquota_spark.store.delta.file_systems import table_files

    schema = table.arrow_schema()
    partitioned = pa.schema([field for field in schema if field.name in table.partition_by])
    return dataset.dataset(
        [unquote(path) for path in paths],
        schema=schema,
        filesystem=table_files(where, storage),
        format="parquet",
        partitioning=dataset.partitioning(partitioned, flavor="hive"),
    )


def unreadable_features(delta: StoredTable) -> str:
    """The table features that only Spark can read, separated by commas; empty for none."""
    unknown = delta.features_for_reading() - _READABLE_FEATURES
    if not unknown and "delta.columnMapping.mode" in delta.properties:
        return "columnMapping"
    return ", ".join(sorted(unknown))


def _epoch_ms(time: datetime | int | None) -> int | None:
    if time is None or isinstance(time, int):
        return time
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)


def file_path(table: Path, path: str) -> str:
    """The path of a file that the Delta log names: URL-encoded, and relative to the table unless it is a clone."""
    return unquote(urlsplit(path).path) if path.startswith("file:") else str(table / unquote(path))


def glob_escaped(path: str) -> str:
    """A path with its wildcards escaped, so that DuckDB takes it literally."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)


def _flat(columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if "struct<" not in column.type]


def _sql_type(ddl: str) -> str:
    if ddl.startswith("array<"):
        return _sql_type(ddl[len("array<") : -1]) + "[]"
    return _SQL_TYPES[ddl]


def empty_sql(table: Table) -> str:
    """SQL for no rows, with the columns of the table."""
    columns = [f'null::{_sql_type(column.type)} as "{column.name}"' for column in _flat(table.columns)]
    return f"select {', '.join(columns)} where false"


def dataset_sql(table: Table) -> str:
    """SQL that reads `dataset_NAME`, a dataset of pyarrow."""
    columns = ", ".join(f'"{column.name}"' for column in _flat(table.columns))
    return f"select {columns} from dataset_{table.name}"  # noqa: S608 - names of the schema


def files_sql(table: Table) -> str:
    """SQL that reads the files of the variable `files_NAME`.

    Partition columns are only in the path, which Spark and delta-rs write alike.
    """
    schema, selected = [], []
    for column in _flat(table.columns):
        name, sql_type = column.name, _sql_type(column.type)
        if name in table.partition_by:
            value = f"regexp_extract(filename, '.*/{name}=([^/]*)/', 1)"
            selected.append(f'try_cast({value} as {sql_type}) as "{name}"')
        else:
            schema.append(f"'{name}': {{'name': '{name}', 'type': '{sql_type}', 'default_value': NULL}}")
            selected.append(f'"{name}"')
    files = f"getvariable('files_{table.name}')"
    source = f"read_parquet({files}, filename = true, schema = MAP {{{', '.join(schema)}}})"
    return f"select {', '.join(selected)} from {source}"  # noqa: S608 - names of the schema


def points_sql(is_local: bool) -> str:
    """SQL that reads `usage` with its points, from the variable `files_usage` or from `dataset_usage`.

    Args:
        is_local: whether the files are on a local disk.
    """
    # By name: files of older versions have fewer fields in a point.
    files = "read_parquet(getvariable('files_usage'), union_by_name = true)" if is_local else "dataset_usage"
    return f"select * from {files}"  # noqa: S608 - names of ours
