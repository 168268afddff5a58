"""The declaration of a table, its two renderings (a Spark DDL string and an Arrow schema), and the schema version.

Types are in Spark's DDL, because the job is the main writer. Readers and the watcher run without a JVM and get the same
declaration as Arrow. Importing this needs neither pyspark nor a JVM.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


SCHEMA_VERSION = 2
"""Version of all tables; a release that adds columns increases it."""

STATE_FORM = 10
"""Version of the state of the query of the log; a state of another version cannot be read."""

VERSION_PROPERTY = "kquota.schema.version"
"""Name of the table property that holds the version.

A release adds only nullable columns. It never renames or retypes one. So the job extends tables of an older release at
its start, and refuses those of a newer one.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, Spark DDL type, and what it means (units included)."""

    name: str
    type: str
    about: str

    @property
    def is_time(self) -> bool:
        """Whether the column holds a time, in UTC."""
        return self.type == "timestamp"


@dataclass(frozen=True, slots=True)
class Table:
    """One Delta table: its name, what one row is, its columns and the columns it is partitioned by."""

    name: str
    grain: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    skip_by: tuple[str, ...] = ()
    """Columns with minimum and maximum per file in the Delta log; each costs one microsecond per row to write."""
    is_short_lived: bool = False
    """Whether old versions of the table are of no use, because the rows have a history of their own."""

    @property
    def names(self) -> list[str]:
        """Column names in table order, for the last `select` of the transform that creates the rows."""
        return [column.name for column in self.columns]

    @property
    def ddl(self) -> str:
        """The schema as Spark DDL."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    @property
    def log_properties(self) -> dict[str, str]:
        """Properties of the table about its log; every writer that creates or opens the table sets them.

        A commit does not clean the log, because Delta would list the whole log: 100 ms with 20,000 entries, 565 ms with
        120,000. `store.table_log` and `kquota maintain` clean it instead.
        """
        kept = "interval 10 minutes" if self.is_short_lived else "interval 1 days"
        properties = {
            "delta.enableExpiredLogCleanup": "false",
            "delta.logRetentionDuration": kept,
            "delta.checkpointInterval": "100",
        }
        # The files of a reader that has opened the table are kept for the same time.
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
"""Each creates a column of its type from a name and a meaning."""

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
        KeyError: no table uses this type yet.
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
