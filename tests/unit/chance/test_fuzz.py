"""The fuzz driver on a file of its own: which tests it runs, with which seeds, and what it says of a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import fuzz
from tests.support.places import ROOT

TESTS = """
import os

import pytest


@pytest.mark.random
def test_of_seeds_below_100():
    assert int(os.environ["KQUOTA_SEED"]) < 100, "a large seed"


@pytest.mark.random
@pytest.mark.parametrize("name", ["a b"])
def test_with_a_name(name):
    assert os.environ["KQUOTA_SEED"] == os.environ["PYTHONHASHSEED"] == "7"


def test_that_draws_nothing():
    raise AssertionError("not asked for")
"""


def run(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", "0", *arguments, str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "test_of_seeds.py"
    path.write_text(TESTS)
    return path


def test_a_round_in_which_all_pass_ends_with_0(file: Path) -> None:
    done = run(file, "--seed", "7")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "fuzz: 1 rounds, 0 tests failed")
    assert done.stdout.startswith("fuzz: seed 7: 2 passed, 1 deselected")


def test_failures_are_shown_with_the_commands_that_repeat_them_and_end_with_1(file: Path) -> None:
    done = run(file, "--seed", "735624")
    assert done.returncode == 1
    assert "a large seed" in done.stdout
    last, *commands = done.stdout.splitlines()[-3:]
    assert last == "fuzz: 1 rounds, 2 tests failed"
    begins = "fuzz: 1 of 1: KQUOTA_SEED=735624 PYTHONHASHSEED=735624 python -m pytest "
    assert [command.startswith(begins) for command in commands] == [True, True]
    # A name with a blank is quoted for the shell.
    assert commands[0].endswith("test_of_seeds.py::test_of_seeds_below_100")
    assert commands[1].endswith("test_of_seeds.py::test_with_a_name[a b]'")


def test_without_a_random_test_it_ends_with_1(tmp_path: Path) -> None:
    path = tmp_path / "test_nothing.py"
    path.write_text("def test_that_draws_nothing():\n    pass\n")
    done = run(path)
    assert done.returncode == 1
    assert "1 deselected" in done.stdout


def test_rounds_follow_each_other_with_new_seeds_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds: list[int] = []

    def passed(seed: int, places: list[str]) -> fuzz.Round:
        assert places == ["tests/unit", "tests/property"]
        seeds.append(seed)
        return fuzz.Round(seed, 0, f"{len(seeds)} passed")

    monkeypatch.setattr(fuzz, "run", passed)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--minutes", "0.0005"])
    assert fuzz.main() == 0
    assert len(set(seeds)) > 2
    assert capsys.readouterr().out.splitlines()[-1] == f"fuzz: {len(seeds)} rounds, 0 tests failed"
