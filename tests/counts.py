"""Counts about the code of this checkout, from its syntax trees and imports: `python -m tests.counts`.

Rules:

* **walk**: the modules that are reached by imports from its entries, at any depth. Imports in functions count, because
  they run on the walk. Imports for types alone do not, and modules that are loaded by their name do not: the commands,
  and what a flag of a command adds, which runs only with that flag. `on the way` are those of them that reach an end
  of the walk by imports themselves, with the ends.
* **carrier of quotas**: a class with an annotated field whose type names a key of quotas, a set, a rule or a book.
* **carrier of a bucket**: a class with fields for the user, the client id and the tags of one bucket.
* **place of a column of `decisions`**: a module outside `schema`, and a column of two or more words that no other table
  has. The module names it in a text that is no docstring, as an attribute, as a keyword or as a field.
* **reading command**: a module with a `QUESTION`; its lines are those of the file.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.support.places import ROOT

_QUOTAS = frozenset({"QuotaKey", "AnyKey", "IpQuotaKey", "QuotaSet", "RulePeriod", "RuleBook"})
_TAGS = re.compile(r"(bucket_|custom_)?tags")
_WORD = re.compile(r"\w+")


class Walk(NamedTuple):
    """What happens to a thing on its way through the code; modules are named below the package."""

    name: str
    entries: tuple[str, ...]
    ends: tuple[str, ...]


WALKS = (
    Walk(
        "a log line to a row of violations",
        ("audit.job",),
        ("formats.request_log.line", "model.measure.sampled_rate", "store.commits", "audit.violations.fold"),
    ),
    Walk("kquota violations", ("cli.read.violations",), ("store.reading", "cli.text.render")),
    Walk(
        "an edit of a quota to a verdict",
        ("quotas.watch", "pipeline.judge"),
        ("zookeeper.mirror", "store.rules_tables", "model.govern.govern", "model.replay.decision"),
    ),
)


class Package:
    """The modules of a package by name below it, each with its syntax tree; `__init__` files are left out."""

    def __init__(self, folder: Path) -> None:
        """Parse every file.

        Args:
            folder: of the package.
        """
        self.name = folder.name
        self.texts = {
            ".".join(path.relative_to(folder).with_suffix("").parts): path.read_text(encoding="utf-8")
            for path in sorted(folder.rglob("*.py"))
            if path.name != "__init__.py"
        }
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}
        self.imports = {name: frozenset(self._imports(tree)) for name, tree in self.trees.items()}

    def _imports(self, tree: ast.Module) -> Iterator[str]:
        """The modules of the package that a module imports when it runs."""
        for node in _running(tree):
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                named = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            below = (name.removeprefix(f"{self.name}.") for name in named)
            yield from (name for name in below if name in self.trees)

    def reached(self, entries: Iterable[str]) -> set[str]:
        """The entries and all that they import, at any depth.

        Raises:
            KeyError: there is no such module.
        """
        found: set[str] = set()
        waiting = list(entries)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.imports[name]
        return found

    def on_the_way(self, walk: Walk) -> set[str]:
        """The modules of a walk that reach one of its ends, and the ends."""
        reached = self.reached(walk.entries)
        return {name for name in reached if self.reached([name]) & set(walk.ends)}

    def classes(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Every class as `module.Class`, with the types of its annotated fields."""
        for name, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    yield f"{name}.{node.name}", dict(_fields(node))


def _running(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes that can run: not those below `if TYPE_CHECKING`."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        waiting += node.orelse if is_for_types and isinstance(node, ast.If) else ast.iter_child_nodes(node)


def _fields(found: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.annotation)


def carriers_of_quotas(package: Package) -> list[str]:
    """Classes with a field whose type names a key of quotas, a set, a rule or a book."""
    return sorted(
        name
        for name, fields in package.classes()
        if any(_QUOTAS & set(_WORD.findall(kind)) for kind in fields.values())
    )


def carriers_of_buckets(package: Package) -> list[str]:
    """Classes with fields for the user, the client id and the tags of one bucket."""
    return sorted(
        name
        for name, fields in package.classes()
        if {"user", "bucket_user"} & fields.keys()
        and {"client_id", "bucket_client_id"} & fields.keys()
        and any(_TAGS.fullmatch(field) for field in fields)
    )


def own_columns(package: Package, table: str) -> set[str]:
    """The columns of two or more words of a table that no other table has, by the declarations in the schema."""
    of_tables: dict[str, set[str]] = {}
    for name, tree in package.trees.items():
        if name.partition(".")[0] != "schema":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) == "Table":
                of_tables[_literal(node.args[0])] = {
                    _literal(each.args[0])
                    for each in ast.walk(node)
                    if isinstance(each, ast.Call) and each is not node and each.args and _called(each)
                }
    others = Counter(column for name, columns in of_tables.items() for column in columns if name != table)
    return {column for column in of_tables[table] if column not in others and "_" in column}


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _literal(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def places_of(package: Package, columns: Collection[str]) -> dict[str, list[str]]:
    """The columns that each module outside the schema names; modules that name none are left out."""
    found = {
        name: sorted(set(columns) & set(_named(tree)))
        for name, tree in package.trees.items()
        if name.partition(".")[0] != "schema"
    }
    return {name: named for name, named in found.items() if named}


def _named(tree: ast.Module) -> Iterator[str]:
    docstrings = set(_docstrings(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield from _WORD.findall(node.value)
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.ClassDef):
            yield from (field for field, _ in _fields(node))


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    """Texts that are statements: docstrings, and notes below a constant or a field."""
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))


def reading_commands(package: Package) -> dict[str, int]:
    """Lines of each module with a `QUESTION`."""
    return {
        name: package.texts[name].count("\n")
        for name, tree in package.trees.items()
        if any("QUESTION" in _assigned(node) for node in tree.body)
    }


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def counts(package: Package, walks: Sequence[Walk] = WALKS, table: str = "decisions") -> dict[str, Any]:
    """All counts, with the names of what was counted."""
    columns, commands = own_columns(package, table), reading_commands(package)
    places = places_of(package, columns)
    return {
        "walks": [
            {
                "walk": walk.name,
                "reached": len(package.reached(walk.entries)),
                "on_the_way": len(package.on_the_way(walk)),
                "files": sorted(package.on_the_way(walk)),
            }
            for walk in walks
        ],
        "carriers_of_quotas": carriers_of_quotas(package),
        "carriers_of_a_bucket": carriers_of_buckets(package),
        "columns_of_decisions": sorted(columns),
        "places_of_columns": places,
        "lines_of_reading_commands": commands,
        "median_lines": median(commands.values()) if commands else None,
    }


def as_table(found: Mapping[str, Any]) -> str:
    """The counts as a table in Markdown."""
    places, commands = found["places_of_columns"], found["lines_of_reading_commands"]
    rows = [
        (f"files of the walk: {walk['walk']}", f"{walk['on_the_way']} on the way, {walk['reached']} reached")
        for walk in found["walks"]
    ]
    rows += [
        ("classes that hold quotas", str(len(found["carriers_of_quotas"]))),
        ("classes that hold the name of a bucket", str(len(found["carriers_of_a_bucket"]))),
        (
            "places that name a column of `decisions` outside the schema",
            f"{sum(map(len, places.values()))} in {len(places)} files; columns: {len(found['columns_of_decisions'])}",
        ),
        (
            "lines of a reading command",
            f"median {found['median_lines']:g} of {len(commands)}, {_span(commands)}",
        ),
    ]
    lines = [f"| {what} | {number} |" for what, number in rows]
    return "\n".join(["| count | today |", "| --- | --- |", *lines])


def _span(lines: Mapping[str, int]) -> str:
    return f"{min(lines.values())} to {max(lines.values())}"


def main(arguments: Sequence[str]) -> int:
    """Print counts about the code of this checkout."""
    parser = argparse.ArgumentParser(prog="python -m tests.counts", description=main.__doc__)
    parser.add_argument(
        "--output", choices=("table", "json"), default="table", help="json names all that is counted"
    )
    found = counts(Package(ROOT / "kquota_spark"))
    print(json.dumps(found) if parser.parse_args(arguments).output == "json" else as_table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
