"""Converts rows between Python values and the Arrow columns of a table; times are epoch milliseconds in Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, Name
from kquota_spark.schema.columns import Table

_AT_ONCE = 10_000
"""Rows held as Python values at a time: 200,000 of them would take a quarter of a gigabyte."""


def arrow_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as the table's Arrow columns; times come in epoch milliseconds."""
    schema, given = table.arrow_schema(), iter(rows)
    parts = [schema.empty_table()]
    while part := list(islice(given, _AT_ONCE)):
        parts.append(_part(schema, part))
    return pa.concat_tables(parts)


def _part(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    arrays = []
    for column in schema:
        values = [row.get(column.name) for row in rows]
        if pa.types.is_timestamp(column.type):
            values = [None if time_ms is None else time_ms * 1_000 for time_ms in values]
        arrays.append(pa.array(values, column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def rows_in_ms(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of Arrow columns as Python values; times in epoch milliseconds."""
    for index, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            as_ms = table.column(index).cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
            table = table.set_column(index, column.name, as_ms)
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def entity_columns(entity: AnyEntity) -> dict[str, Any]:
    """The columns of `schema.quota_tables.ENTITY` for one entity."""
    columns = {"entity": str(entity), "level": entity.level}
    if isinstance(entity, Entity):
        columns |= {"user": _name_or_none(entity.user), "client_id": _name_or_none(entity.client_id)}
    return columns


def _name_or_none(name: Name) -> str | None:
    return None if name is DEFAULT or name is None else str(name)
