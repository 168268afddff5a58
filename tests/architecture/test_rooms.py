"""A room is seen at a glance: few files, each named in its room's own words, in the order in which one reads them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.support.places import ROOT

PACKAGE = ROOT / "kquota_spark"
MOST_FILES = 15
_ORDER = re.compile(r"In reading order: ([\w,\s]+)\.")


def _modules() -> dict[str, Path]:
    """Every module but the `__init__` files, by its dotted name."""
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): file
        for file in PACKAGE.rglob("*.py")
        if file.stem != "__init__"
    }


MODULES = _modules()


def _imported(file: Path) -> Iterator[str]:
    """Modules of ours that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield from (name for name in (full, node.module) if name in MODULES)


IMPORTS = {name: set(_imported(file)) - {name} for name, file in MODULES.items()}


def _folder(module: str) -> str:
    return module.rpartition(".")[0]


def _circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_folder_has_15_files_at_most() -> None:
    files = Counter(file.parent for top in (PACKAGE, ROOT / "tests") for file in top.rglob("*.py"))
    crowded = {str(folder.relative_to(ROOT)): count for folder, count in files.items() if count > MOST_FILES}
    assert crowded == {}


def test_no_files_import_each_other() -> None:
    assert _circle(IMPORTS) == []


def test_no_folders_import_each_other() -> None:
    folders: dict[str, set[str]] = {}
    for name, imported in IMPORTS.items():
        folders.setdefault(_folder(name), set()).update(map(_folder, imported))
    assert _circle({folder: imported - {folder} for folder, imported in folders.items()}) == []


def test_each_room_names_its_files_in_reading_order() -> None:
    wrong = {}
    for folder in {_folder(name) for name in MODULES}:
        path = ROOT.joinpath(*folder.split("."), "__init__.py")
        found = _ORDER.search(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
        named = re.split(r",\s+", found[1]) if found else []
        there = [name.rpartition(".")[2] for name in MODULES if _folder(name) == folder]
        if sorted(named) != sorted(set(there) - {"__main__"}):
            wrong[folder] = sorted(set(there) ^ set(named))
            continue
        backwards = [
            (name, later)
            for place, name in enumerate(named)
            for later in named[place + 1 :]
            if f"{folder}.{later}" in IMPORTS[f"{folder}.{name}"]
        ]
        if backwards:
            wrong[folder] = [f"{name} imports {later}" for name, later in backwards]
    assert wrong == {}
