"""Imports go down only, rooms stay small, and no file is called after nothing in particular."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT

PACKAGE = ROOT / "kquota_spark"
FILES = sorted(PACKAGE.rglob("*.py"))
JOBS = sorted((ROOT / "jobs").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MOST_FILE_LINES, MOST_FUNCTION_LINES = 400, 50
NAMELESS = {"utils", "helpers", "common", "base", "manager"}

ROOMS = (
    *("errors", "bounded_yaml", "name_patterns"),
    # The law and what follows from it, without any input or output.
    *("model", "findings", "schema", "config", "formats", "enforce", "pipeline"),
    # The edges.
    *("process", "store", "kafka", "zookeeper"),
    # The programs.
    *(
        "quotas",
        "checkpoints",
        "ship",
        "collect",
        "replay",
        "evidence",
        "rightsize",
        "audit",
        "doctor",
        "gateway",
        "enforcement",
    ),
    # What people look at, and what tries all of it out.
    *("reports", "notify", "embedded", "cli"),
)
"""Rooms in reading order: each imports only from those before it."""
THIRD_PARTY = {"model": set[str](), "formats": {"msgspec", "rich", "yaml"}}
"""Libraries of the rooms that have to run anywhere."""


def _room(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _at_module_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Statements that run on import: not in functions, not under TYPE_CHECKING."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting.extend(node.orelse)
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def _line_count(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def _functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        node for node in ast.walk(_tree(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_imports_go_down_only() -> None:
    offenders = {}
    for file in FILES:
        room = _room(file)
        if room == "__init__":
            continue
        parts = [name.split(".") for name in _imports(ast.walk(_tree(file)))]
        rooms = {part[1] for part in parts if part[0] == "kquota_spark" and len(part) > 1}
        if upwards := rooms - set(ROOMS[: ROOMS.index(room) + 1]) - {"__version__"}:
            offenders[_name(file)] = upwards
    assert offenders == {}


def test_one_folder_imports_deltalake() -> None:
    """The files that another format of tables replaces."""
    knowing = {
        _name(file)
        for file in (*FILES, *JOBS)
        for name in _imports(ast.walk(_tree(file)))
        if name.partition(".")[0] == "deltalake"
    }
    assert knowing == {
        "kquota_spark/store/delta/errors.py",
        "kquota_spark/store/delta/file_systems.py",
        "kquota_spark/store/delta/table.py",
    }


def test_model_and_formats_run_anywhere() -> None:
    offenders = {}
    for file in FILES:
        if _room(file) in THIRD_PARTY:
            libraries = {name.partition(".")[0] for name in _imports(ast.walk(_tree(file)))}
            libraries -= sys.stdlib_module_names | {"kquota_spark"} | THIRD_PARTY[_room(file)]
            if libraries:
                offenders[_name(file)] = libraries
    assert offenders == {}


def test_no_command_imports_spark_at_module_level() -> None:
    of_spark = {"pyspark", "delta"}
    offenders = [
        f"{_name(file)}: {name}"
        for file in FILES
        if _room(file) == "cli"
        for name in _imports(_at_module_level(_tree(file)))
        if name.partition(".")[0] in of_spark
    ]
    assert offenders == []


def test_files_are_named_after_their_question() -> None:
    assert [_name(file) for file in (*FILES, *JOBS, *TESTS) if file.stem in NAMELESS] == []


def test_files_are_short() -> None:
    lengths = {_name(file): _line_count(file) for file in (*FILES, *JOBS, *TESTS)}
    assert {name: length for name, length in lengths.items() if length > MOST_FILE_LINES} == {}


def test_functions_are_short() -> None:
    offenders = [
        f"{_name(file)}: {function.name}, {length} lines"
        for file in (*FILES, *JOBS)
        for function in _functions(file)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > MOST_FUNCTION_LINES
    ]
    assert offenders == []


def test_every_room_is_known() -> None:
    assert {_room(file) for file in FILES} - {"__init__"} == set(ROOMS)


def test_spark_commits_to_no_table() -> None:
    """Delta's log store of Spark can replace a commit of another process on a local disk: deltalake commits all."""
    written = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in (*FILES, *JOBS)
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.Attribute) and node.attr in ("save", "saveAsTable", "insertInto", "writeTo")
    ]
    assert written == []
