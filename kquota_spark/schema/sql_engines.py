"""SQL that makes the tables known to an engine; columns and comments are in the Delta log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

STATEMENTS: Mapping[str, tuple[str, str]] = MappingProxyType({
    "spark": (
        "CREATE SCHEMA IF NOT EXISTS kquota;",
        "CREATE TABLE IF NOT EXISTS kquota.{name} USING DELTA LOCATION '{where}';",
    ),
    "trino": (
        "CREATE SCHEMA IF NOT EXISTS delta.kquota;",
        (
            "CALL delta.system.register_table(schema_name => 'kquota', table_name => '{name}', "
            "table_location => '{where}');"
        ),
    ),
    "duckdb": (
        "INSTALL delta; LOAD delta; CREATE SCHEMA IF NOT EXISTS kquota;",
        "CREATE OR REPLACE VIEW kquota.{name} AS SELECT * FROM delta_scan('{where}');",
    ),
})  # fmt: skip
"""For each engine, what to run once, and the statement of one table."""


def statements_of(engine: str, places: Mapping[str, str | None]) -> Iterator[str]:
    """SQL statements to run once in an engine; a comment replaces a table that the job has not written yet.

    Args:
        engine: of `STATEMENTS`.
        places: the URI of each table by name; None if it does not exist.
    """
    before, statement = STATEMENTS[engine]
    yield before
    for name, where in places.items():
        if where is None:
            yield f"-- {name}: not there yet"
        else:
            yield statement.format(name=name, where=where.replace("'", "''"))
