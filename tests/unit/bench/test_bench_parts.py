"""`make bench` names parts that are there, and each tells how it is run again."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from typing import Any

import pytest

from tests.bench.__main__ import LONG, PARTS, command_of
from tests.bench.runs import age, driver
from tests.bench.runs.reading import COMMANDS, shown_command
from tests.support.places import ROOT

RUNS = ROOT / "tests" / "bench" / "runs"


def test_every_module_with_a_main_of_its_own_is_a_part() -> None:
    found = {
        file.stem for file in RUNS.glob("*.py") if "`python -m tests.bench.runs." in file.read_text()[:60]
    }
    found |= {file.parent.name for file in RUNS.glob("*/__main__.py")}
    assert found == {*PARTS, *LONG}


@pytest.mark.parametrize("part", [*PARTS, *LONG])
def test_the_command_of_a_part_names_a_module(part: str) -> None:
    *_, option, module = command_of(part)
    assert option == "-m"
    assert importlib.util.find_spec(module) is not None


def rows_of(part: str, **sizes: str) -> list[dict[str, Any]]:
    """The rows that the command of a part prints."""
    done = subprocess.run(
        command_of(part),
        cwd=ROOT,
        env={**os.environ, **sizes},
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    assert f"`python -m tests.bench.runs.{part}`: " in done.stdout
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_stages_measures_each_one_at_two_numbers_of_client_ids() -> None:
    few, many = rows_of("stages", STAGES_LINES="4000")
    assert (few["client_ids"], many["client_ids"]) == (1_000, 100_000)
    # Nine of ten lines count. In this time few of 100,000 clients have two.
    assert 0 < few["seconds"] <= many["seconds"] <= 0.9 < many["seconds"] + 0.05
    for row in (few, many):
        parts = (row[name] for name in ("parse", "charge", "measure", "govern", "judge", "decide"))
        assert all(us > 0 for us in parts)


def test_model_measures_the_parser_and_the_model() -> None:
    rows = rows_of("model", MODEL_POINTS="2000", MODEL_BUCKETS="20", MODEL_ROUNDS="2")
    assert [row["work"] for row in rows] == [
        "`json.loads` of the standard library, lines",
        "the parser, exact bytes included, lines",
        "replay of one hot bucket, points",
        "replay over 20 buckets, points",
        "judging of one hot bucket, points",
        "judging over 20 buckets, points",
    ]
    assert all(row["per_s"]["low"] > 0 for row in rows)


@pytest.mark.timeout(300)
def test_reading_times_every_command_of_its_list() -> None:
    rows = rows_of(
        "reading", BENCH_DECISIONS="5000", BENCH_RUNS="1", BENCH_BUSY_S="60", BENCH_LOG_LINES="2000"
    )
    assert [row["command"] for row in rows] == [f"`kquota {shown_command(name)}`" for name in COMMANDS]
    assert all(0 < row["first_line_s"]["low"] <= row["whole_s"]["high"] for row in rows)


@pytest.mark.timeout(180)
def test_age_measures_tables_after_the_upkeep_and_fails_where_one_costs_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # 1,300 commits with checkpoints at 99, 199, ...: the newest one with 500 after it is that of 799.
    for name, value in {
        "CASES": ((100, 2), (1_300, 62)),
        "ROUNDS": 2,
        "COMMANDS": 1,
        "MOST_TIMES": 0.0,
    }.items():
        monkeypatch.setattr(age, name, value)
    assert age.main() == 1
    printed = capsys.readouterr()
    young, old = [json.loads(line) for line in printed.out.splitlines() if line.startswith("{")]
    assert (young["entries"], young["files"], young["packed"]) == (100, 2, 2)
    assert (old["entries"], old["files"], old["packed"]) == (1_300, 62, 1)
    # The packing is a commit too.
    assert (young["kept"], old["kept"]) == (101, 1_301 - 799 + 1)
    assert all(0 < old[name]["low"] <= old[name]["high"] for name in age.JUDGED)
    assert "1,300 commits, 62 files: commit_ms is " in printed.err


def test_driver_measures_more_tasks_and_brokers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "CASES", ((2, 3), (8, 3)))
    monkeypatch.setattr(driver, "ROUNDS", 1)
    assert driver.main() == 0
    few, many = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert (few["tasks"], few["brokers"], many["tasks"]) == ("2", "3", "8")
    # Four times the tasks have four times the files, and a commit names each one.
    assert 3 < many["log_kb"] / few["log_kb"] < 4
    assert 0 < few["cpu_ms"]["low"] <= few["cpu_ms"]["high"]
