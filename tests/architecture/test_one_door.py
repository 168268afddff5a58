"""What has one place has no second one: paths of tables, the clock, clients of brokers, errors of libraries."""

from __future__ import annotations

import ast
import re
from itertools import pairwise

from tests.support.sources import outside

_ROOT = re.compile(r"\b(tables|checkpoints|local_path)\b(?!\.(?!rstrip))|\broot\.rstrip")
"""An expression for the root of the tables or of the checkpoints."""


def _continues_a_root(node: ast.AST) -> bool:
    """Whether `node` puts a name behind the root of the tables or of the checkpoints."""
    match node:
        case ast.JoinedStr(values=values):
            return any(
                isinstance(root, ast.FormattedValue)
                and _ROOT.search(ast.unparse(root.value)) is not None
                and isinstance(rest, ast.Constant)
                and str(rest.value).startswith("/")
                for root, rest in pairwise(values)
            )
        case ast.BinOp(left=root, op=ast.Div()):
            return _ROOT.search(ast.unparse(root)) is not None
    return False


def test_paths_of_tables_and_checkpoints_are_built_in_one_place() -> None:
    assert [where for where, node in outside("kquota_spark/store/places.py") if _continues_a_root(node)] == []


def test_a_path_built_elsewhere_would_be_found() -> None:
    texts = (
        "f\"{settings.tables.rstrip('/')}/usage\"",
        "f'{self._settings.checkpoints}/log'",
        "f\"{root.rstrip('/')}/{table.name}\"",
        "Path(settings.tables) / 'usage'",
        "local_path(settings.checkpoints) / name",
    )
    assert [text for text in texts if not _continues_a_root(ast.parse(text, mode="eval").body)] == []
