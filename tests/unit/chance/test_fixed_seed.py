"""Two runs draw the same, whatever else they import and however sets are ordered; another seed draws anew."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.places import ROOT

RANDOM = "tests/unit/model/quotas/test_names.py::test_sanitiser_round_trip"
ANOTHER = "tests/unit/pipeline/test_known.py"
"""Imports far more modules."""
CHOSEN = {"KQUOTA_SEED", "PYTHONHASHSEED"}


def drawn(*files: str, **environment: str) -> list[str]:
    """Every example that Hypothesis tries in a run of its own."""
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider"]
    inherited = {name: value for name, value in os.environ.items() if name not in CHOSEN}
    done = subprocess.run(
        [*command, "--hypothesis-verbosity=verbose", *files],
        capture_output=True, text=True, check=False, cwd=ROOT, env=inherited | environment, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    examples = done.stdout.split("Test case: test_sanitiser_round_trip(")[1:]
    return [example.partition("\n)")[0] for example in examples]


@pytest.mark.timeout(180)
def test_every_run_draws_the_same_unless_it_is_given_another_seed() -> None:
    first = drawn(RANDOM, PYTHONHASHSEED="1")
    assert len(first) > 50
    assert drawn(ANOTHER, RANDOM, PYTHONHASHSEED="2") == first
    assert drawn(RANDOM, KQUOTA_SEED="735624") != first
