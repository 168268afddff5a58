"""Tests draw from one source of chance, whose seed is fixed: a run is the same as the one before."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.places import ROOT

TESTS = ROOT / "tests"
SOURCE = "tests/support/chance.py"
TOOLS = {"tests/mutants/__main__.py", "tests/bench/runs/model.py"}
"""They test nothing, and have a seed of their own."""
SECRETS = {"tests/support/spark/standalone.py"}
"""A password of servers that others could reach must not be known; no result depends on it."""
CHANCE = {"random", "secrets", "uuid"}


def _taken(tree: ast.AST) -> Iterator[str]:
    """What a file takes of the modules of chance, and sources that it makes without a seed."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.partition(".")[0] in CHANCE)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in CHANCE:
                yield module
            case ast.Attribute(attr="urandom") | ast.alias(name="urandom"):
                yield "urandom"
            case ast.Call(func=ast.Name(id="Chance"), args=[]):
                yield "Chance()"


def test_no_test_has_a_source_of_chance_of_its_own() -> None:
    found = {
        name: taken
        for file in sorted(TESTS.rglob("*.py"))
        if (name := str(file.relative_to(ROOT))) != SOURCE
        and (taken := sorted(_taken(ast.parse(file.read_bytes()))))
    }
    assert found == {name: ["random"] for name in TOOLS} | {name: ["secrets"] for name in SECRETS}


def test_a_source_of_its_own_would_be_found() -> None:
    texts = (
        "import random",
        "from random import Random",
        "import uuid",
        "from secrets import token_hex",
        "os.urandom(3)",
        "from os import urandom",
        "Chance()",
    )
    assert [text for text in texts if not list(_taken(ast.parse(text)))] == []
    assert list(_taken(ast.parse("Chance(5)"))) == []
