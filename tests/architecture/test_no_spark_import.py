"""Reading commands start at once: importing them loads no Spark, and nothing slow that may not be needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

PACKAGE = ROOT / "kquota_spark"
ALL_COMMANDS = sorted(f"kquota_spark.cli.{file.stem}" for file in (PACKAGE / "cli").glob("[!_]*.py"))
READING = (
    "judge.agreement",
    "quotas.alter",
    "chosen.cluster_choice",
    "quotas.context",
    "look.declared_tables",
    "quotas.describe",
    "quotas.diff",
    "judge.doctor",
    "quotas.drift",
    "enforce.plans",
    "enforce.status",
    "enforce.quotas",
    "enforce.exempt",
    "quotas.exchange",
    "judge.findings",
    "enforce.freeze",
    "status.command",
    "quotas.kfk",
    "quotas.kfk_selection",
    "options",
    "enforce.override",
    "enforce.plan_page",
    "quotas.quota_edits",
    "look.read",
    "run.notify",
    "text.render",
    "look.report",
    "run.topics",
    "quotas.tree",
    "look.usage",
    "judge.whatif",
)
NO_SPARK = ("kquota_spark.enforcement.input", "kquota_spark.reports.gathered.gathering", *ALL_COMMANDS)
NOTHING_SLOW = ("kquota_spark", *(f"kquota_spark.cli.{name}" for name in READING))
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


def test_no_command_loads_spark(newly_loaded: dict[str, list[str]]) -> None:
    assert {*NO_SPARK, *NOTHING_SLOW} == set(newly_loaded)
    assert {module: bad for module, names in newly_loaded.items() if (bad := SPARK & {*names})} == {}


def test_reading_commands_load_nothing_slow_before_they_need_it(newly_loaded: dict[str, list[str]]) -> None:
    assert {module: bad for module in NOTHING_SLOW if (bad := SLOW & {*newly_loaded[module]})} == {}


def test_a_query_needs_duckdb_and_deltalake_only(tmp_path: Path) -> None:
    code = """
import argparse
from kquota_spark.cli.look import read
parser = argparse.ArgumentParser()
read.add_commands(parser.add_subparsers())
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
