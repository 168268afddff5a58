"""`kquota tables`: the declared tables and columns, for people who query them."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Sequence

from kquota_spark.cli.options import add_form_option, add_settings_options, settings_of
from kquota_spark.cli.text.page import columns_of
from kquota_spark.cli.text.render import Report, show
from kquota_spark.config.settings import Settings
from kquota_spark.schema.columns import Table
from kquota_spark.schema.tables import TABLES

COMMANDS = {
    "tables": (
        "look",
        "the tables and their columns: name, type, meaning",
        "kquota tables",
        "kquota tables decisions",
    ),
}

_COLUMNS = ("table", "column", "type", "is_partition", "about")
_STATEMENTS = {
    # Columns and comments are in the Delta log, so the statements need not repeat them.
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
}
_FIELDS = re.compile(r"struct<.*?>")


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tables`."""
    parser = subparsers.add_parser("tables")
    names = [table.name for table in TABLES]
    parser.add_argument("name", nargs="?", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    add_form_option(parser)
    parser.add_argument(
        "--sql", choices=tuple(_STATEMENTS), help="statements that make the tables known to a SQL engine"
    )
    add_settings_options(parser)
    parser.set_defaults(run=run_tables)


def run_tables(options: argparse.Namespace) -> int:
    """Show the declaration of all tables, or of one."""
    tables = [table for table in TABLES if options.name in (None, table.name)]
    if options.sql is not None:
        print("\n".join(_statements(options.sql, settings_of(options), tables)))
        return 0
    if options.output == "table":
        print("\n\n".join(_described(table, columns_of()) for table in tables))
    else:
        show(Report("kquota tables", _COLUMNS, _rows(tables), shown=()), options.output)
    return 0


def _rows(tables: Sequence[Table]) -> list[dict[str, object]]:
    return [
        {
            "table": table.name,
            "column": column.name,
            "type": column.type,
            "is_partition": column.name in table.partition_by,
            "about": column.about,
        }
        for table in tables
        for column in table.columns
    ]


def _statements(engine: str, settings: Settings, tables: Sequence[Table]) -> Iterator[str]:
    """SQL statements to run once in the engine; a comment replaces a table that the job has not written yet."""
    from kquota_spark.store.reading import Tables

    before, statement = _STATEMENTS[engine]
    yield before
    with Tables(settings) as found:
        for table in tables:
            where = found.location(table.name)
            if where is None:
                yield f"-- {table.name}: not there yet"
            else:
                yield statement.format(name=table.name, where=where.replace("'", "''"))


def _described(table: Table, columns: int) -> str:
    """The table's grain, then one or more lines per column; meanings are wrapped, never cut."""
    types = [_FIELDS.sub("struct<...>", column.type) for column in table.columns]
    name_columns, type_columns = max(map(len, table.names)), max(map(len, types))
    lines = textwrap.wrap(f"{table.name}: {table.grain}", columns)
    for column, type_ in zip(table.columns, types, strict=True):
        head = f"  {column.name:<{name_columns}}  {type_:<{type_columns}}  "
        partition = " (partition)" if column.name in table.partition_by else ""
        wrapped = textwrap.wrap(column.about + partition, columns - len(head))
        lines += [(head if index == 0 else " " * len(head)) + text for index, text in enumerate(wrapped)]
    return "\n".join(lines)
