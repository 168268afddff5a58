"""`python -m tests.tiers test|test-all`: the phases of a tier, one after the other, whatever fails in them.

A phase is a run of pytest. Most tests run in three workers; those that judge the times of a broker run alone. The last
line counts the tests of all phases. `--seconds FILE` writes where the seconds went, see `tests.support.seconds`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

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
_PURE = ("tests/architecture", "tests/unit", "tests/property", "tests/programs")
_SERVERS = ("tests/fault", "tests/integration", "tests/spark", "tests/stream")
TIERS = {
    "test": (
        Phase("workers", ("tests/spark", *_PURE, *_WORKERS)),
        Phase("alone", ("tests/smoke",)),
    ),
    "test-all": (
        Phase("workers", (*_SERVERS, *_PURE, "-m", "not alone", *_WORKERS)),
        Phase("alone", ("tests/smoke", "tests/integration", "-m", "alone")),
    ),
}


class Counts(NamedTuple):
    """How the tests of a phase ended."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

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
    report = directory / f"{phase.name}.xml"
    command = [sys.executable, "-m", "pytest", *phase.arguments]
    began_s = time.monotonic()
    print(f"tests: {phase.name}: pytest {' '.join(phase.arguments)}", flush=True)
    done = subprocess.run(
        [*command, f"--junitxml={report}", f"--seconds={directory / phase.name}.json"], cwd=ROOT, check=False
    )
    print(f"tests: {phase.name}: {time.monotonic() - began_s:.0f} s", flush=True)
    return (Counts.of(report) if report.is_file() else Counts()), done.returncode == 0


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
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 0 if all(is_well for _, is_well in ended) else 1


if __name__ == "__main__":
    sys.exit(main())
