"""How a table is declared, and its two renderings: a Spark DDL string and an Arrow schema; the version of them all.

Types are written in Spark's DDL because the job is the main writer; readers and the watcher, which run
without a JVM, get the same declaration as Arrow. Neither pyspark nor a JVM is needed to import this.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


SCHEMA_VERSION = 2
"""Raised by a release that adds columns."""

STATE_FORM = 10
"""Form of the state of the query of the log: another form cannot be read."""

VERSION_PROPERTY = "kquota.schema.version"
"""The property of a table that carries the version.

A release adds columns, nullable ones. It never renames or retypes one. So tables of an older release are extended when
the job starts, and those of a newer one are refused.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, Spark DDL type, and what it means (units included)."""

    name: str
    type: str
    about: str

    @property
    def is_time(self) -> bool:
        """Whether it holds a moment, in UTC."""
        return self.type == "timestamp"


@dataclass(frozen=True, slots=True)
class Table:
    """One Delta table: its name, what one row is, its columns and the columns it is partitioned by."""

    name: str
    grain: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    skip_by: tuple[str, ...] = ()
    """Columns with minimum and maximum per file in the Delta log; each costs a microsecond a row to write."""
    is_short_lived: bool = False
    """Whether old versions are of no use to anybody: the rows have a history of their own."""

    @property
    def names(self) -> list[str]:
        """Column names in table order; the last `select` of the transform that makes this table."""
        return [column.name for column in self.columns]

    @property
    def ddl(self) -> str:
        """The schema as Spark DDL."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    @property
    def log_properties(self) -> dict[str, str]:
        """Properties of the table about its log; whoever creates or opens it for writing sets them.

        A commit does not clean the log. To clean, Delta lists the whole log: 100 ms with 20,000 entries, 565 ms with
        120,000. `store.table_log` and `kquota maintain` clean instead.
        """
        kept = "interval 10 minutes" if self.is_short_lived else "interval 1 days"
        properties = {
            "delta.enableExpiredLogCleanup": "false",
            "delta.logRetentionDuration": kept,
            "delta.checkpointInterval": "100",
        }
        # A reader that opened the table keeps its files for as long.
        return properties | ({"delta.deletedFileRetentionDuration": kept} if self.is_short_lived else {})

    def arrow_schema(self) -> pa.Schema:
        """The schema as Arrow, for the parser's batches and for deltalake."""
        import pyarrow as pa

        return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in self.columns])


def _of_type(ddl: str) -> Callable[[str, str], Column]:
    return lambda name, about: Column(name, ddl, about)


string, strings, boolean, integer, bigint, double, timestamp = map(
    _of_type, ("string", "array<string>", "boolean", "int", "bigint", "double", "timestamp")
)
"""Each makes a column of this type from its name and what it means."""

_FIELD = re.compile(r"\s*(\w+)\s*:\s*")


def _split_top_level(text: str) -> list[str]:
    """Split `a:int,b:array<struct<c:int,d:int>>` at the commas outside angle brackets."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def arrow_type(ddl: str) -> pa.DataType:
    """The Arrow type of a Spark DDL type, for the types that our tables use.

    Raises:
        KeyError: for a type that no table uses yet.
    """
    import pyarrow as pa

    simple: dict[str, pa.DataType] = {
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    ddl = ddl.strip()
    if ddl.startswith("array<"):
        return pa.list_(arrow_type(ddl[len("array<") : -1]))
    if ddl.startswith("struct<"):
        fields = []
        for part in _split_top_level(ddl[len("struct<") : -1]):
            match = _FIELD.match(part)
            if match is None:
                raise KeyError(ddl)
            fields.append(pa.field(match.group(1), arrow_type(part[match.end() :])))
        return pa.struct(fields)
    return simple[ddl]
