"""Reading commands start at once: importing them loads no Spark, and nothing slow that may not be needed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kquota_spark.cli.command_groups import all_commands
from tests.support.places import ROOT

PACKAGE = ROOT / "kquota_spark"
MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(PACKAGE.rglob("*.py"))
}
CLI = [name for name in MODULES if name.startswith("kquota_spark.cli")]
MAY_BE_SLOW = {
    f"kquota_spark.cli.{name}"
    for name in (
        "check.replay",
        "check.replay_results",
        "check.window_comparison",
        "jobs.audit",
        "serve.app",
        "status.of_job",
        "status.of_lease",
        "status.of_tables",
        "top.screen",
    )
}
"""Modules that need Arrow, Flask or Textual for all that they do; commands import most of them where they use them."""
NOTHING_SLOW = ("kquota_spark", *(name for name in CLI if name not in MAY_BE_SLOW))
NO_SPARK = ("kquota_spark.enforcement.input", "kquota_spark.reports.pages.gathering", *CLI)
COMMANDS_WITH_SPARK = {"kquota_spark.cli.jobs.audit", "kquota_spark.cli.jobs.past"}
RUNS_THE_ENFORCER = "kquota_spark.cli.enforce.run"
"""`kquota enforce run`: a subcommand beside those that read plans, and the one that hears of decisions by Spark."""
ASKS_FOR_A_SESSION_FIRST = "kquota_spark.process.graceful_stop"
"""It imports Spark only if its caller has a Spark session to stop."""
SPARK = {"pyspark", "delta", "py4j"}
SLOW = SPARK | {
    "pyarrow",
    "pandas",
    "numpy",
    "duckdb",
    "deltalake",
    "kafka",
    "confluent_kafka",
    "kazoo",
    "rich",
}


def _run(code: str, *arguments: str) -> str:
    """What a fresh interpreter prints that runs the code."""
    program = f"import json, sys\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _loaded_by(code: str, *arguments: str) -> set[str]:
    """Top-level modules in `sys.modules` of a fresh interpreter after running the code."""
    last = _run(f"{code}\nprint(json.dumps(sorted(sys.modules)))", *arguments).splitlines()[-1]
    return {name.partition(".")[0] for name in json.loads(last)}


@pytest.fixture(scope="module")
def newly_loaded() -> dict[str, list[str]]:
    """What each module loads that none before it has; one clean interpreter, those that must load least first."""
    code = """
import importlib
loaded = {}
for module in sys.argv[1:]:
    before = set(sys.modules)
    importlib.import_module(module)
    loaded[module] = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
print(json.dumps(loaded))
"""
    done = _run(code, *dict.fromkeys((*NOTHING_SLOW, *NO_SPARK)))
    found: dict[str, list[str]] = json.loads(done.splitlines()[0])
    return found


def test_the_module_of_every_command_is_among_the_modules_that_are_tried() -> None:
    declared = [f"kquota_spark.cli.{command.module}" for command in all_commands()]
    assert [name for name in declared if name not in CLI] == []
    added = re.compile(r"^(?:def add_commands\(|add_commands = )", re.MULTILINE)
    adding = [name for name in CLI if added.search(MODULES[name].read_text(encoding="utf-8"))]
    assert sorted(adding) == sorted(set(declared))
    assert len(declared) > 40


def test_no_command_loads_spark(newly_loaded: dict[str, list[str]]) -> None:
    assert {*NO_SPARK, *NOTHING_SLOW} == set(newly_loaded)
    assert {module: bad for module, names in newly_loaded.items() if (bad := SPARK & {*names})} == {}


def test_reading_commands_load_nothing_slow_before_they_need_it(newly_loaded: dict[str, list[str]]) -> None:
    assert {module: bad for module in NOTHING_SLOW if (bad := SLOW & {*newly_loaded[module]})} == {}


def _imports(file: Path) -> set[str]:
    """What a file imports when it runs, anywhere in it: modules, and what may be modules below them."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(file.read_bytes())]
    while waiting:
        match waiting.pop():
            case ast.If(test=condition, orelse=otherwise) if ast.unparse(condition) == "TYPE_CHECKING":
                waiting.extend(otherwise)
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names):
                found |= {module, *(f"{module}.{alias.name}" for alias in names)}
            case node:
                waiting.extend(ast.iter_child_nodes(node))
    return found


def test_no_other_command_can_come_to_spark_while_it_runs() -> None:
    imports = {name: _imports(file) for name, file in MODULES.items()}
    of_spark = {
        name for name, found in imports.items() if SPARK & {imported.partition(".")[0] for imported in found}
    }
    assert ASKS_FOR_A_SESSION_FIRST in of_spark
    coming = set()
    for command in {f"kquota_spark.cli.{command.module}" for command in all_commands()}:
        reached, waiting = set[str](), [command]
        while waiting:
            reached.add(module := waiting.pop())
            waiting += [name for name in imports[module] if name in MODULES and name not in reached]
            waiting = [name for name in waiting if name != RUNS_THE_ENFORCER]
        if (reached & of_spark) - {ASKS_FOR_A_SESSION_FIRST}:
            coming.add(command)
    assert coming == COMMANDS_WITH_SPARK


def test_a_query_needs_duckdb_and_deltalake_only(tmp_path: Path) -> None:
    code = """
import argparse
from kquota_spark.cli.read import decisions
parser = argparse.ArgumentParser()
decisions.add_commands(parser.add_subparsers())
options = parser.parse_args(sys.argv[1:])
assert options.run(options) == 0
"""
    write = """
import pyarrow as pa
from deltalake import write_deltalake
from kquota_spark.schema.tables import DECISIONS
row = {"second": 0, "event_date": 0, "requests": 1, "bucket_user": "u", "bucket_client_id": ""}
data = pa.Table.from_pylist([row], schema=DECISIONS.arrow_schema())
write_deltalake(sys.argv[1] + "/decisions", data, partition_by=["event_date"])
"""
    _loaded_by(write, str(tmp_path))
    loaded = _loaded_by(code, "decisions", "--tables", str(tmp_path), "--output", "csv")
    assert loaded & SLOW == {"duckdb", "deltalake"}
