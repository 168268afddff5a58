"""`kquota` starts and answers alike whatever locale and time zone it finds, and without Java jobs write nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from kquota_spark.cli.main import main
from kquota_spark.errors import UserError
from kquota_spark.process.check import require_java
from tests.support.logs.log_lines import PRODUCE_V9, changed
from tests.support.places import ROOT
from tests.support.tables.audited_tables import tables

NAMES = ("größe", "日本語", "a\u2028b", "cafe\u0301", "plain")
QUOTAS = "- {user: müller, client_id: null, type: producer_byte_rate, value: 1000}\n"
# Without these two, Python takes UTF-8 in the C locale.
NO_UTF8 = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
MATRIX: dict[str, dict[str, str]] = {
    "nothing is set": {},
    "locale C": {"LC_ALL": "C"},
    "locale POSIX": {"LC_ALL": "POSIX", "LANG": "POSIX"},
    "locale C and no UTF-8 mode": {"LC_ALL": "C", **NO_UTF8},
    "an unknown locale": {"LC_ALL": "xx_XX.nowhere", "LANG": "yy"},
    "an unknown locale and no UTF-8 mode": {"LC_ALL": "xx_XX.nowhere", **NO_UTF8},
    "strict ASCII": {"PYTHONIOENCODING": "ascii:strict"},
    "an unknown time zone": {"TZ": "Nowhere/None"},
    "an empty time zone": {"TZ": ""},
    "a time zone beyond all": {"TZ": "XYZ+25:61"},
    "a far time zone": {"TZ": "Pacific/Kiritimati"},
    "no home and an odd terminal": {"HOME": "/nowhere", "TERM": "", "COLUMNS": "x"},
}
REPLAY = ("replay", "--quotas", "quotas.yaml", "--by", "request", "broker-1-größe.log")


class Said(NamedTuple):
    """What a command printed, as bytes."""

    code: int
    out: bytes
    err: bytes


_PROGRESS = re.compile(rb"^.*: \d+ lines\n", re.MULTILINE)
"""After two seconds a command says how far it is; a busy machine takes that long."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("start")
    lines = [
        changed(PRODUCE_V9, ("checkout-svc", name), ("User:checkout", "User:müller"), ("4711", str(number)))
        for number, name in enumerate(NAMES)
    ]
    (root / "broker-1-größe.log").write_bytes(b"".join(line + b"\n" for line in lines))
    (root / "quotas.yaml").write_text(QUOTAS, encoding="utf-8")
    return root


def said(folder: Path, environment: Mapping[str, str], *arguments: str) -> Said:
    done = subprocess.run(
        [sys.executable, "-m", "kquota_spark.cli.main", *arguments],
        cwd=folder, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, check=False, timeout=50,
    )  # fmt: skip
    return Said(done.returncode, done.stdout, _PROGRESS.sub(b"", done.stderr))


@pytest.fixture(scope="module")
def usual(folder: Path) -> Said:
    return said(folder, {"LC_ALL": "C.UTF-8", "TZ": "UTC"}, *REPLAY, "--output", "json")


@pytest.mark.parametrize("name", MATRIX)
def test_a_replay_prints_the_same_json_in_every_locale_and_time_zone(
    name: str, folder: Path, usual: Said
) -> None:
    answer = json.loads(usual.out)
    assert sorted({row["bucket_user"] for row in answer["requests"]}) == ["müller"]
    assert (usual.code, usual.err, answer["counted"]) == (0, b"", len(NAMES))
    found = said(folder, MATRIX[name], *REPLAY, "--output", "json")
    assert (found.code, found.err, json.loads(found.out)) == (0, b"", answer)


@pytest.mark.parametrize("name", ["locale C", "locale C and no UTF-8 mode", "strict ASCII"])
def test_help_and_tables_are_printed_in_every_locale(name: str, folder: Path) -> None:
    """Characters that the terminal does not have are shown as escapes."""
    for arguments in (("--help",), REPLAY, ("help", "faults")):
        found = said(folder, MATRIX[name], *arguments)
        assert (found.code, found.err) == (0, b""), arguments
        assert len(found.out.splitlines()) > 10
    missing = said(folder, MATRIX[name], *REPLAY[:-1], "broker-1-fehlt-ü.log")
    assert (missing.code, missing.out, len(missing.err.splitlines())) == (1, b"", 1)
    assert missing.err.endswith(b": cannot be read: No such file or directory\n")


@pytest.mark.parametrize("name", ["nothing is set", "locale C", "locale C and no UTF-8 mode"])
def test_names_are_utf_8_in_every_locale(name: str, folder: Path) -> None:
    at = ("--quotas", "quotas.yaml", "--at", "2026-01-01", "--output", "json")
    found = said(folder, MATRIX[name], "resolve", "--user", "müller", "--client-id", "größe", *at)
    assert (found.code, found.err) == (0, b"")
    answer = json.loads(found.out)
    assert (answer["user"], answer["client_id"]) == ("müller", "größe")


def test_a_file_whose_name_is_no_text_is_taken_like_any_other(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text(f"tables: {tmp_path}/tables\ncheckpoints: {tmp_path}/checkpoints\n")
    path = os.fsencode(tmp_path) + b"/gr\xf6\xdfe\xff.log"
    Path(os.fsdecode(path)).write_bytes((folder / "broker-1-größe.log").read_bytes())
    assert main(["backfill", "--config", str(config), "--file", f"1={os.fsdecode(path)}"]) == 0
    assert (
        capsys.readouterr()
        .err.splitlines()[0]
        .endswith(
            "/gr\\udcf6\\udcdfe\\udcff.log: 5 lines, 2024-11-20 12:00:00 UTC to 2024-11-20 12:00:00 UTC"
        )
    )
    assert main(["backfill", "--config", str(config), "--file", f"1={os.fsdecode(path)}"]) == 1
    assert "its beginning is that of gr\\xf6\\xdfe\\xff.log, of which 5 lines" in capsys.readouterr().err


def test_a_name_that_is_no_text_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(tables(tmp_path / "tables"))
    for command in ("decisions", "usage", "violations", "timeline"):
        assert main([command, "--tables", root, "--user", "\udcff"]) == 1
        assert capsys.readouterr() == ("", "kquota: a filter is not UTF-8 text\n")


NO_JAVA = "install a JDK or JRE 17 or later and put it on PATH, or set JAVA_HOME\n"
_CONFIG = """\
tables: tables
checkpoints: checkpoints
kafka: {bootstrap_servers: "localhost:1", topic: log}
quotas: {source: admin}
enforcement: {policy_file: policy.yaml}
"""


def _java(folder: Path, text: str) -> dict[str, str]:
    """A machine whose Java prints this."""
    java = folder / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder / "jdk")}


def _started(program: list[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *program], cwd=folder, capture_output=True, text=True, check=False, timeout=50,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("job", ["audit", "enforce"])
def test_without_java_a_job_says_so_in_one_line_and_writes_nothing(job: str, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "kquota.yaml").write_text(_CONFIG)
    before = sorted(folder.rglob("*"))
    start = [str(ROOT / "jobs" / f"{job}.py"), "--config", "kquota.yaml"]
    none = f"{job}: Java: not found, or it does not start: {NO_JAVA}"
    assert _started(start, folder, {"JAVA_HOME": "/nowhere"}) == (1, "", none)
    assert _started(start, folder, {"PATH": "/nowhere"}) == (1, "", none)
    old = f'{job}: Java: openjdk version "11.0.2" 2019-01-15, Spark needs 17: {NO_JAVA}'
    of_old = _java(tmp_path / "old", 'openjdk version "11.0.2" 2019-01-15')
    assert _started(start, folder, of_old) == (1, "", old)
    silent = f"{job}: Java: no version, Spark needs 17: {NO_JAVA}"
    assert _started(start, folder, _java(tmp_path / "odd", "")) == (1, "", silent)
    assert sorted(folder.rglob("*")) == before


def test_java_is_left_to_spark_where_spark_may_know_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    conf = tmp_path / "conf"
    conf.mkdir()
    for name, value in (
        ("PYSPARK_GATEWAY_PORT", "40000"),  # spark-submit has started the JVM
        ("SPARK_CONF_DIR", str(conf)),
        ("SPARK_HOME", str(tmp_path)),
    ):
        with pytest.raises(UserError, match="not found, or it does not start"):
            require_java()
        with monkeypatch.context() as environment:
            environment.setenv(name, value)
            (conf / "spark-env.sh").write_text("export JAVA_HOME=/opt/jdk\n")
            require_java()
        (conf / "spark-env.sh").unlink()


def test_without_java_the_demo_says_so_in_one_line_and_keeps_the_files_of_the_last_run(
    tmp_path: Path,
) -> None:
    last = tmp_path / ".kquota" / "demo" / "summary.json"
    last.parent.mkdir(parents=True)
    last.write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    told = (
        "demo: Java 17 or 21 is needed and was not found (JAVA_HOME is /nowhere): install it, e.g. apt-get install "
        "openjdk-17-jre-headless, or set JAVA_HOME\n"
    )
    demo = ["-m", "kquota_spark.embedded.demo"]
    assert _started(demo, tmp_path, {"JAVA_HOME": "/nowhere"}) == (1, "", told)
    assert sorted(tmp_path.rglob("*")) == before
