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


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """Each node of each file, with the file's path and line for a message."""
    for name, tree in trees().items():
        for node in ast.walk(tree):
            yield f"{name}:{getattr(node, 'lineno', 0)}", node


def outside(*allowed: str) -> Iterator[tuple[str, ast.AST]]:
    """`nodes` of all files but some."""
    return ((where, node) for where, node in nodes() if where.partition(":")[0] not in allowed)
