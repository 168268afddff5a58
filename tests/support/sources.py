"""The product's own source files, parsed, for the tests of how it is built."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.support.places import ROOT


@cache
def trees() -> dict[str, ast.Module]:
    """Each Python file of the package and of the jobs, by its path below the repository."""
    files = [file for folder in ("kquota_spark", "jobs") for file in sorted((ROOT / folder).rglob("*.py"))]
    return {str(file.relative_to(ROOT)): ast.parse(file.read_bytes()) for file in files}


@cache
def _nodes() -> list[tuple[str, ast.AST]]:
    return [
        (f"{name}:{node.lineno}", node)
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.expr | ast.stmt | ast.ExceptHandler)
    ]


def outside(*allowed: str) -> Iterator[tuple[str, ast.AST]]:
    """Each expression, statement and handler with its path and line, of all files but some."""
    return ((where, node) for where, node in _nodes() if where.partition(":")[0] not in allowed)
