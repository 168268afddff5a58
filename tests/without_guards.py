"""`python -m tests.without_guards`: takes one guard away at a time, and shows that a test fails without it.

The product has no way to leave a guard out; this replaces the tuple that holds them, in this process only. The tests
of the guards run, then some scenarios of the closed loop, whose invariants know nothing of guards. Exit code 1 if
there is a guard that no test needs.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest

from kquota_spark.enforce import guards
from tests.closed_loop import closed_loop

SEED = 20261122
SCENARIOS = 60
_UNIT = Path(__file__).parent / "unit" / "enforce"
_TESTS = [str(_UNIT / name) for name in ("test_enforce_guards.py", "test_enforce_limits.py")]


class Failures:
    """A plugin of pytest that collects the names of what fails."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of each test."""
        if report.failed:
            self.names.append(report.nodeid.partition("::")[2])


@contextmanager
def without(name: str) -> Iterator[None]:
    """Everything but one guard."""
    all_guards = guards.GUARDS
    guards.GUARDS = tuple(guard for guard in all_guards if guard[0] != name)
    try:
        yield
    finally:
        guards.GUARDS = all_guards


def failing_tests() -> list[str]:
    """The tests of the guards that fail now."""
    failures = Failures()
    with redirect_stdout(io.StringIO()):
        pytest.main(["-p", "no:cacheprovider", "-q", *_TESTS], plugins=[failures])
    return failures.names


def broken_invariants() -> int:
    """What the closed loop finds broken now; a scenario that ends in an error counts as one."""
    try:
        return closed_loop.run(SCENARIOS, SEED, lambda _: None).broken
    except Exception:  # a way back that is not there, for one: without a guard anything may happen
        return 1


def main() -> int:
    """Print a row for each guard."""
    if names := failing_tests():
        print(f"with all guards there are failures already: {', '.join(names)}")
        return 1
    print(f"{'without':<12}{'failing tests':>14}{'broken invariants':>19}  the first test that fails")
    is_each_needed = True
    for name, _ in guards.GUARDS:
        with without(name):
            failing, broken = failing_tests(), broken_invariants()
        print(f"{name:<12}{len(failing):>14}{broken:>19}  {failing[0] if failing else 'NONE'}", flush=True)
        is_each_needed = is_each_needed and bool(failing)
    print(f"invariants broken in {SCENARIOS} scenarios of seed {SEED}; none with all guards")
    return 0 if is_each_needed else 1


if __name__ == "__main__":
    sys.exit(main())
