"""`python -m tests.fuzz --minutes n`: all random tests again and again, each time with a new seed.

Random tests draw from the fixture `chance` or are those of Hypothesis; tests/conftest.py marks them. Only those that
need neither Spark nor servers run here. The round under way ends after the time is over, so there is one at least.
Exits with 1 if a test failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

from tests.support.chance import VARIABLE, new_seed
from tests.support.places import ROOT

_PLACES = ("tests/unit", "tests/property")
_WITHIN_S = 900
"""Limit per test: one that takes minutes on a busy machine has found nothing."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)


class Round(NamedTuple):
    """One run of all random tests."""

    seed: int
    code: int
    output: str

    @property
    def failed(self) -> list[str]:
        """The names of the tests that failed."""
        return _FAILED.findall(self.output)


def run(seed: int, places: list[str]) -> Round:
    """Run all random tests once."""
    options = ("-q", "-rfE", "--disable-warnings", f"--timeout={_WITHIN_S}", "-p", "no:cacheprovider")
    environment = {**os.environ, VARIABLE: str(seed), "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-m", "random", *places],
        cwd=ROOT,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Round(seed, done.returncode, done.stdout)


def repeating(seed: int, test: str) -> str:
    """The command that repeats a failure."""
    return f"{VARIABLE}={seed} PYTHONHASHSEED={seed} python -m pytest {shlex.quote(test)}"


def _print(found: Round, known: set[str]) -> None:
    """How a round ended; its output where none ran, or a test failed for the first time."""
    print(f"fuzz: seed {found.seed}: {found.output.rstrip().rpartition(chr(10))[2]}", flush=True)
    is_new = not known.issuperset(found.failed)
    if is_new or found.code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        print(found.output, flush=True)
    for test in found.failed:
        print(f"fuzz: {repeating(found.seed, test)}", flush=True)


def main() -> int:
    """Run rounds until the time is over; 1 if a test failed, or none ran."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("--minutes", type=float, default=10.0, help="no round begins later (default: 10)")
    options.add_argument(
        "--seed", type=int, default=new_seed(), help="of the first round (default: a new one)"
    )
    options.add_argument("places", nargs="*", default=_PLACES, help=f"default: {' '.join(_PLACES)}")
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # it ends the round too
    until_s = time.monotonic() + chosen.minutes * 60
    seed, rounds = chosen.seed, 0
    failures: dict[str, list[int]] = {}
    while rounds == 0 or time.monotonic() < until_s:
        found = run(seed, [*chosen.places])
        rounds += 1
        _print(found, set(failures))
        if found.code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return 1
        for test in found.failed:
            failures.setdefault(test, []).append(seed)
        seed = new_seed()
    print(f"fuzz: {rounds} rounds, {len(failures)} tests failed")
    for test, seeds in failures.items():
        print(f"fuzz: {len(seeds)} of {rounds}: {repeating(seeds[0], test)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
