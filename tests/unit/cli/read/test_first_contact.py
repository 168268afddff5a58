"""What a person meets first: no settings, a misspelt name, a pipe, a locale without UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.programs.command_output import run
from tests.support.tables.table_rows import decision, usage, violation, write_table

LONG = "CN=" + "a-very-long-name-" * 6 + "end"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("tables")
    write_table(
        root, "usage", usage(0, user="alice", client_id="Etl"), usage(0, user="zo\xeb", client_id="b")
    )
    write_table(root, "decisions", decision(0, bucket_user="zo\xeb", users=["zo\xeb"]))
    write_table(root, "violations", violation(0, bucket_user=LONG, users=[LONG]))
    return str(root)


@pytest.mark.parametrize(
    "command", ["violations", "decisions", "usage", "findings", "agreement", "report", "top --once"]
)
def test_without_settings_the_first_sentence_names_the_file(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*command.split())
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("kquota: no conf/kquota.yaml here and no --config, so defaults hold: table")
    # Control: a place that is named has nothing to do with that file.
    assert run(*command.split(), "--tables", "x")[2].startswith("kquota: table")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("violations --user alcie", "; did you mean --user alice?"),
        ("decisions --user ALICE", "; did you mean --user alice?"),
        ("usage --client etl --since 2020-01-01", "; did you mean --client Etl?"),
        ("timeline --user alic --client-id Et", "; did you mean --user alice --client Etl?"),
        ("violations --user alice", ""),
        ("violations --user xyzzy", ""),
    ],
)
def test_a_misspelt_name_is_told_with_the_one_that_was_meant(words: str, hint: str, tables: str) -> None:
    code, out, _ = run(*words.split(), "--tables", tables)
    told = " ".join(out.split())
    assert (code, told.partition("; did you mean")[2]) == (0, hint.removeprefix("; did you mean"))


def kquota(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command in a pipe, without COLUMNS unless it is given."""
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    program = [sys.executable, "-m", "kquota_spark.cli.main", *words]
    return subprocess.run(
        program, capture_output=True, check=True, env={**inherited, "PYTHONPATH": str(ROOT), **environment}
    )


def test_a_table_in_a_pipe_is_whole_unless_columns_are_asked_for(tables: str) -> None:
    whole = kquota("violations", "--tables", tables).stdout.decode()
    assert LONG in whole and "longest throttle" in whole.splitlines()[0] and "not shown" not in whole
    narrow = kquota("violations", "--tables", tables, COLUMNS="80").stdout.decode()
    assert max(map(len, narrow.splitlines())) <= 80 and LONG not in narrow


def test_the_page_of_metrics_is_utf_8_whatever_the_locale(tables: str, tmp_path: Path) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text(f"cluster_id: demo\ntables: {tables}\n")
    shown = kquota(
        "exporter", "--once", "--config", str(config), LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert 'user="zo\xeb"'.encode() in shown.stdout
