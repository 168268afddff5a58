"""SQL by which DuckDB sees the declared columns of a table, whatever release wrote its files."""

from __future__ import annotations

from collections.abc import Iterable

from kquota_spark.schema.columns import Column, Table

_SQL_TYPES = {
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
}


def _flat(columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if "struct<" not in column.type]


def _sql_type(ddl: str) -> str:
    if ddl.startswith("array<"):
        return _sql_type(ddl[len("array<") : -1]) + "[]"
    return _SQL_TYPES[ddl]


def empty_sql(table: Table) -> str:
    """A table that is not there, or has no files."""
    columns = [f'null::{_sql_type(column.type)} as "{column.name}"' for column in _flat(table.columns)]
    return f"select {', '.join(columns)} where false"


def dataset_sql(table: Table) -> str:
    """Reads what was registered as `dataset_NAME`."""
    columns = ", ".join(f'"{column.name}"' for column in _flat(table.columns))
    return f"select {columns} from dataset_{table.name}"  # noqa: S608 - names of the schema


def files_sql(table: Table) -> str:
    """Reads `files_NAME`; partition columns stand in the path only, which Spark and delta-rs write alike."""
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
