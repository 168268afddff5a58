"""`python -m tests.tiers test|ci|test-all`: the phases of a tier, one after the other, whatever fails in them.

A phase is a run of pytest. Most tests run in three workers; those that judge the times of a broker run alone. A test
that failed beside others is run once more with the machine for itself, if no more than three failed: what fails again
has failed, what passes is named. The last line counts the tests of all phases. `--seconds FILE` writes where the
seconds went, see `tests.support.seconds`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from tests.support.chance import SEED
from tests.support.places import ROOT
from tests.support.seconds import merged


class Phase(NamedTuple):
    """One run of pytest."""

    name: str
    arguments: tuple[str, ...]


_WORKERS = ("-n", "3", "--dist", "loadscope", "--no-loadscope-reorder")
"""What takes longest comes first; tests/conftest.py says which tests share a worker.

Two workers leave two cores idle for a third of the time, while servers start.
"""
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM of brokers that live for seconds: compiling costs more than it gives. Tests that run alone have production's."""
_AT_MOST_AGAIN = 3
"""More failures than this are not those of a busy machine."""
_PURE = ("tests/unit", "tests/property", "tests/programs")
"""`make check` has run tests/architecture before."""
_SERVERS = ("tests/fault", "tests/integration", "tests/spark", "tests/stream")
_EVERY_CHANGE = (
    "tests/fault/test_once.py",
    "tests/integration/enforcement/test_enforcement_zookeeper.py",
    "tests/integration/quotas/test_describe_alter.py",
    "tests/integration/test_benchmark_parts.py",
    "tests/stream/test_full_disk.py",
    "tests/stream/test_restart.py",
    "tests/stream/test_stream_equals_replay.py",
)
"""Tests with servers that guard what most changes touch: whole queries over restarts, two drivers, each part of the
benchmark, quotas on a broker. All of them with the others take more than an hour, which is too long for each change."""
_SMOKE = Phase("alone", ("tests/smoke",))
TIERS = {
    "test": (
        Phase("workers", ("tests/spark", *_PURE, *_WORKERS)),
        _SMOKE,
    ),
    "ci": (
        Phase(
            "workers", (*_EVERY_CHANGE, "tests/spark", *_PURE, "-m", "not alone and not by_hand", *_WORKERS)
        ),
        _SMOKE,
    ),
    "test-all": (
        Phase("workers", (*_SERVERS, *_PURE, "-m", "not alone and not by_hand", *_WORKERS)),
        Phase("alone", ("tests/smoke", "tests/integration", "-m", "alone")),
    ),
}


class Counts(NamedTuple):
    """How the tests of a phase ended."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    passed_again: int = 0
    """Those of `passed` that failed beside others first."""

    @classmethod
    def of(cls, report: Path) -> Counts:
        """Those of a JUnit report."""
        suites = ElementTree.parse(report).getroot().iter("testsuite")
        names = ("tests", "failures", "errors", "skipped")
        found = [{name: int(suite.get(name, "0")) for name in names} for suite in suites]
        failed = sum(one["failures"] + one["errors"] for one in found)
        skipped = sum(one["skipped"] for one in found)
        return cls(sum(one["tests"] for one in found) - failed - skipped, failed, skipped)


def run(phase: Phase, directory: Path) -> tuple[Counts, bool]:
    """Run a phase; what it counted, and whether it ended well."""
    began_s = time.monotonic()
    print(f"tests: {phase.name}: pytest {' '.join(phase.arguments)}", flush=True)
    counts, code = _pytest(phase.name, phase.arguments, directory, cache=directory / phase.name)
    is_rerun = code == pytest.ExitCode.TESTS_FAILED and 0 < counts.failed <= _AT_MOST_AGAIN
    if "-n" in phase.arguments and is_rerun:
        counts, code = _again(phase, counts, directory)
    print(f"tests: {phase.name}: {time.monotonic() - began_s:.0f} s", flush=True)
    return counts, code == pytest.ExitCode.OK


def _again(phase: Phase, counts: Counts, directory: Path) -> tuple[Counts, int]:
    """The failures of a phase once more, alone; the counts of both runs as one."""
    print(f"tests: {phase.name}: {counts.failed} failed beside others, once more alone", flush=True)
    places = [argument for argument in phase.arguments if argument.startswith("tests/")]
    arguments = (*places, "--last-failed", "--last-failed-no-failures", "none", "-rA")
    second, code = _pytest(f"{phase.name}-again", arguments, directory, cache=directory / phase.name)
    return Counts(counts.passed + second.passed, second.failed, counts.skipped, second.passed), code


def _pytest(name: str, arguments: Sequence[str], directory: Path, cache: Path) -> tuple[Counts, int]:
    report = directory / f"{name}.xml"
    written = (f"--junitxml={report}", f"--seconds={directory / name}.json", "-o", f"cache_dir={cache}")
    # The same seed in all runs: what fails because of what was drawn fails again.
    environment = {**os.environ, "KQUOTA_SEED": str(SEED)}
    if "-n" in arguments:
        environment.setdefault("KAFKA_JVM_PERFORMANCE_OPTS", _SHORT_LIVED)
    command = [sys.executable, "-m", "pytest", *arguments, *written]
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    return (Counts.of(report) if report.is_file() else Counts()), code


def _again_text(count: int) -> str:
    return f"; {count} of them failed beside others and passed alone" if count else ""


def main() -> int:
    """Run a tier; 1 if anything in it failed."""
    options = argparse.ArgumentParser(prog="python -m tests.tiers", description=__doc__)
    options.add_argument("tier", choices=TIERS)
    options.add_argument("--seconds", type=Path, help="write where the seconds went, as JSON")
    chosen = options.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        ended = [run(phase, directory) for phase in TIERS[chosen.tier]]
        if chosen.seconds is not None:
            merged(sorted(directory.glob("*.json")), chosen.seconds)
    total = Counts(*map(sum, zip(*(counts for counts, _ in ended), strict=True)))
    print(f"tests: {chosen.tier}: {time.monotonic() - began_s:.0f} s")
    print(
        f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped"
        + _again_text(total.passed_again)
    )
    return 0 if all(is_well for _, is_well in ended) else 1


if __name__ == "__main__":
    sys.exit(main())
