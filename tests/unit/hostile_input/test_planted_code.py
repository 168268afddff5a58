"""Code that lies in folders of logs, tables and checkpoints never runs, and the package has nothing to run it with."""

from __future__ import annotations

import ast
import gzip
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from kquota_spark.checkpoints.checkpoints import require_whole
from kquota_spark.checkpoints.lineage import require_lineage, stored_lineage
from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.errors import UserError
from kquota_spark.store.creation import create_tables
from tests.support.logs.followed_log import all_lines, tail_of
from tests.support.logs.log_lines import PRODUCE_V9
from tests.support.places import DATA, ROOT
from tests.support.tables.audited_tables import tables

QUOTAS = ("--quotas", str(DATA / "jmx-telegraf" / "quotas.yaml"))
# Names that Python imports by itself, or that the commands import.
MODULES = ("sitecustomize", "usercustomize", "canary", "json", "msgspec", "kquota_spark", "yaml", "deltalake")
# As the script that pip installs: the folder of the script is searched for modules, not the working directory.
_SCRIPT = "import sys\nfrom kquota_spark.cli.main import main\nsys.exit(main())\n"
_ALL = """\
import json, sys
from kquota_spark.cli.main import main
for words in json.load(sys.stdin):
    try:
        code = main(words)
    except SystemExit as ended:
        code = ended.code
    print(" ".join(words), "->", code, file=sys.stderr)
"""


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._marker,)


def canary_module(marker: Path) -> str:
    return f"open({str(marker)!r}, 'w').close()\n"


def plant(folder: Path, markers: Path) -> None:
    """A pickle, modules that shadow others, and a .pth file whose line is run by `site`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("broker-1.pkl", "broker-1.pickle", "broker-1.marshal"):
        (folder / name).write_bytes(pickle.dumps(Canary(markers / "pickle")))
    for name in MODULES:
        (folder / f"{name}.py").write_text(canary_module(markers / f"py-{name}"))
    line = f"import sys; {canary_module(markers / 'pth').strip()}\n"
    (folder / "canary.pth").write_text(line)


@pytest.fixture
def markers(tmp_path: Path) -> Path:
    folder = tmp_path / "markers"
    folder.mkdir()
    return folder


def run_there(folder: Path, *commands: list[str]) -> subprocess.CompletedProcess[str]:
    """Run commands in a process of their own whose working directory is the folder."""
    program = folder.parent / "bin" / "kquota"
    program.parent.mkdir(exist_ok=True)
    program.write_text(_ALL)
    return subprocess.run(
        [sys.executable, str(program)], input=json.dumps(commands), cwd=folder, env={"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False, timeout=50,
    )  # fmt: skip


def codes(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return [line.rpartition(" -> ")[2] for line in done.stderr.splitlines() if " -> " in line]


def test_each_canary_makes_its_file_when_it_is_run(tmp_path: Path, markers: Path) -> None:
    folder = tmp_path / "logs"
    plant(folder, markers)
    pickle.loads((folder / "broker-1.pkl").read_bytes())
    asked = f"import site; site.addsitedir({str(folder)!r}); import canary"
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=folder, capture_output=True, check=False, timeout=50
    )
    assert done.returncode == 0
    made = {path.name for path in markers.iterdir()}
    assert {"pickle", "pth", "py-canary"} <= made


def test_code_in_the_folder_of_logs_does_not_run(tmp_path: Path, markers: Path) -> None:
    folder = tmp_path / "logs"
    plant(folder, markers)
    canary = pickle.dumps(Canary(markers / "log"))
    log = folder / "broker-1.log"
    log.write_bytes(canary + b"\n" + PRODUCE_V9 + b"\n")
    (folder / "broker-1.log.gz").write_bytes(gzip.compress(canary))
    (folder / "quotas.yaml").write_bytes(canary)
    (folder / "settings.yaml").write_bytes(canary)
    config = tmp_path / "kquota.yaml"
    config.write_text(f"tables: {tmp_path}/tables\ncheckpoints: {tmp_path}/checkpoints\n")
    files = sorted(path.name for path in folder.iterdir() if path.name.startswith("broker-1."))
    done = run_there(
        folder,
        *(["replay", *QUOTAS, name] for name in files),
        ["replay", "--quotas", "quotas.yaml", "broker-1.log"],
        ["replay", "--config", "settings.yaml", "broker-1.log"],
        ["explain", "--user", "alice", "--quotas", "broker-1.pkl"],
        ["backfill", "--config", str(config), "--file", "1=broker-1.log", "--file", "2=broker-1.pkl"],
        ["backfill", "--config", str(config), "--file", "1=canary.py", "--file", "2=canary.pth"],
    )
    # Only the log has a request.
    assert codes(done) == ["0", *["1"] * (len(files) - 1), "1", "1", "1", "0", "0"]
    assert files == ["broker-1.log", "broker-1.log.gz", "broker-1.marshal", "broker-1.pickle", "broker-1.pkl"]
    assert all_lines(tail_of(log))[-1] == PRODUCE_V9
    assert list(markers.iterdir()) == []


def test_code_in_the_folder_of_tables_does_not_run(tmp_path: Path, markers: Path) -> None:
    root = tables(tmp_path / "tables")
    for folder in (root, *root.iterdir(), *root.glob("*/_delta_log")):
        if folder.is_dir():
            plant(folder, markers)
    (root / "quota_rules" / "_delta_log" / "_last_checkpoint").write_bytes(
        pickle.dumps(Canary(markers / "log"))
    )
    at = ["--tables", str(root)]
    done = run_there(
        root,
        ["tables", *at],
        *(
            [name, *at]
            for name in ("decisions", "usage", "violations", "agreement", "findings", "doctor", "top")
        ),
        ["report", *at, "--output", "json"],
        ["explain", "--user", "alice", *at],
        ["decisions", "--tables", str(root / "nothing")],
    )
    assert len(codes(done)) == 11
    assert "alice" in done.stdout
    assert list(markers.iterdir()) == []


STATE = ("state/0/0/1.changelog", "state/1/0/1.changelog")
LINEAGE = "../log.lineage.json"
"""A damaged one is rebuilt from the tables."""
CUT = "cannot be read"


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("metadata", ""),
        ("offsets/0", CUT),
        ("commits/0", ""),
        *((name, "") for name in STATE),
        (LINEAGE, ""),
    ],
)
def test_code_in_a_checkpoint_does_not_run(place: str, problem: str, tmp_path: Path, markers: Path) -> None:
    settings = Settings(
        cluster_id="demo", tables=f"{tmp_path}/tables", checkpoints=f"{tmp_path}/checkpoints", kafka=Kafka(topic="log")
    )  # fmt: skip
    create_tables(settings)
    root = tmp_path / "checkpoints" / "log"
    conf, read = {"conf": {"spark.sql.shuffle.partitions": "1"}}, {"log": {"0": 5}}
    texts = {
        "metadata": '{"id":"1"}',
        "offsets/0": f"v1\n{json.dumps(conf)}\n{json.dumps(read)}\n{{}}",
        "commits/0": "v1\n{}",
        **dict.fromkeys(STATE, "x"),
        LINEAGE: '{"state_shards": 64}',
    }
    for name, text in texts.items():
        path = root / name
        plant(path.parent, markers)
        path.write_text(text)
    assert (_problem(settings), require_whole(settings, "log")) == ("", True)
    (root / place).write_bytes(pickle.dumps(Canary(markers / "checkpoint")))
    told = _problem(settings)
    assert (problem in told, "\n" in told, bool(told)) == (True, False, bool(problem))
    assert list(markers.iterdir()) == []


def _problem(settings: Settings) -> str:
    """What a start of the job says of the checkpoint before Spark begins."""
    try:
        require_whole(settings, "log")
        require_lineage(settings, ["log"], is_new=False)
        stored_lineage(settings)
    except UserError as error:
        return str(error)
    return ""


# What makes code of bytes or of text.
FORBIDDEN_MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "runpy",
    "imp",
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
FORBIDDEN_ATTRIBUTES = {"read_pickle", "to_pickle", "unsafe_load", "full_load", "addsitedir", "exec_module"}
SOURCES = sorted([*(ROOT / "kquota_spark").rglob("*.py"), *(ROOT / "jobs").rglob("*.py")])


def offences(code: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
            found += sorted(names & FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").partition(".")[0]
            names = {alias.name for alias in node.names}
            found += sorted(({module} & FORBIDDEN_MODULES) | (names & FORBIDDEN_ATTRIBUTES))
        elif isinstance(node, ast.Name):
            found += sorted({node.id} & FORBIDDEN_CALLS)
        elif isinstance(node, ast.Attribute):
            is_builtin = isinstance(node.value, ast.Name) and node.value.id == "builtins"
            found += sorted({node.attr} & (FORBIDDEN_ATTRIBUTES | (FORBIDDEN_CALLS if is_builtin else set())))
    return found


@pytest.mark.parametrize(
    "code",
    [
        "import pickle", "import os, marshal as m", "from shelve import open", "from pickle import loads",
        "eval('1')", "run = exec", "import builtins; builtins.eval('1')", "pd.read_pickle('x')",
        "yaml.unsafe_load('x')", "def f():\n    import cloudpickle.loads", "__import__('os')",
    ],
)  # fmt: skip
def test_what_would_run_code_is_seen(code: str) -> None:
    assert len(offences(code)) == 1


def test_no_module_of_the_package_unpickles_or_evaluates() -> None:
    assert len(SOURCES) > 300
    assert {
        str(file): found for file in SOURCES if (found := offences(file.read_text(encoding="utf-8")))
    } == {}
    assert offences("re.compile('x')\njson.loads('1')\nast.literal_eval('1')") == []
