"""`kquota tables`: the declared tables and columns, for people who query them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from kquota_spark.cli.options import add_form_option
from kquota_spark.cli.own_options import option
from kquota_spark.cli.question import Asked, Found, Question
from kquota_spark.cli.text.page import columns_of
from kquota_spark.schema.columns import Table
from kquota_spark.schema.figures import figure_of
from kquota_spark.schema.sql_engines import STATEMENTS, statements_of
from kquota_spark.schema.tables import TABLES

COMMANDS = {
    "tables": (
        "help",
        "the tables and their columns: name, type, meaning",
        "kquota tables",
        "kquota tables decisions",
    ),
}

_COLUMNS = ("table", "column", "type", "is_partition", "about")
_FIELDS = re.compile(r"struct<.*?>")


_NAMES = [table.name for table in TABLES]


@dataclass(frozen=True, slots=True)
class _Own:
    name: str | None = option(
        "name", f"one of {', '.join(_NAMES)}", nargs="?", choices=_NAMES, metavar="NAME"
    )
    engine: str | None = option(
        "--sql", "statements that make the tables known to a SQL engine", choices=tuple(STATEMENTS)
    )


def _find(asked: Asked) -> Found:
    """The declaration of all tables, or of one; with --sql the statements."""
    tables = [table for table in TABLES if asked.own.name in (None, table.name)]
    if asked.own.engine is not None:
        places = {table.name: asked.tables.location(table.name) for table in tables}
        statements = list(statements_of(asked.own.engine, places))
        return Found(("statement",), [{"statement": one} for one in statements], text="\n".join(statements))
    described = "\n\n".join(_described(table, columns_of()) for table in tables)
    return Found(_COLUMNS, _rows(tables), text=described)


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


def _described(table: Table, columns: int) -> str:
    """The table's grain, then one or more lines per column; meanings are wrapped, never cut."""
    types = [_FIELDS.sub("struct<...>", column.type) for column in table.columns]
    name_columns, type_columns = max(map(len, table.names)), max(map(len, types))
    lines = textwrap.wrap(f"{table.name}: {table.grain}", columns)
    for column, type_ in zip(table.columns, types, strict=True):
        head = f"  {column.name:<{name_columns}}  {type_:<{type_columns}}  "
        partition = " (partition)" if column.name in table.partition_by else ""
        figure = figure_of(table, column.name)
        named = f" (JSON and CSV: {figure})" if figure != column.name else ""
        wrapped = textwrap.wrap(f"{column.about}{named}{partition}", columns - len(head))
        lines += [(head if index == 0 else " " * len(head)) + text for index, text in enumerate(wrapped)]
    return "\n".join(lines)


QUESTION = Question(
    command="tables",
    table=None,
    find=_find,
    options=None,
    declared=_Own,
    period=None,
    has_agreement=False,
    form=add_form_option,
)
add_commands = QUESTION.add_to
