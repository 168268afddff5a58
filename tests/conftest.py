"""How all tests run: one seed that can be repeated, and for each folder its time limit and its workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, core, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.chance import SEED, Chance, drawn

# Captured outputs are as wide as those of the pages; a width that this shell exports would be theirs.
os.environ["COLUMNS"] = "100"

pytest_plugins = [
    "tests.support.clusters.shared",
    "tests.support.clusters.roads",
    "tests.support.seconds",
    "tests.support.spark.session",
]

# By default 200 ms an example, and a second for making the first ones: on a machine that pauses, they fail.
# Without its database: what another run has found would be tried in this one too. Where the variable CI is set,
# Hypothesis derives what it draws from the test instead of the seed: a run of CI could not be repeated elsewhere.
settings.register_profile(
    "kquota",
    database=None,
    deadline=None,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("kquota")
core.global_force_seed = SEED  # type: ignore[assignment]
# By default it also draws numbers and texts that stand in our modules, of those that happen to be imported by then.
providers._get_local_constants = lambda: providers._local_constants


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> Chance:
    """The source of chance of one test, the same in each run with the same seed."""
    return drawn(request.node.name)


class Folder(NamedTuple):
    """What holds for the tests of a folder."""

    timeout_s: int
    """Time limit per test: many times what the slowest needs, and short enough to wait for."""
    is_alone: bool = False
    """Whether its tests need the machine for themselves, because they judge the times of a broker."""
    group: str = ""
    """Tests of one group share a worker, because they share servers; empty: each file is a group of its own."""


FOLDERS = {
    "architecture": Folder(60),
    "unit": Folder(60),
    "property": Folder(60),
    "programs": Folder(180),
    "spark": Folder(600, group="spark"),
    "stream": Folder(600, group="stream"),
    "smoke": Folder(1_200, is_alone=True),
    "integration": Folder(900, group="clusters"),
    "fault": Folder(1_800, group="fault"),
}
_APART = ("tests/fault/test_memory.py",)
"""Tests of minutes that share nothing with others of their folder: the others need not wait for them."""
_HERE = Path(__file__).parent


def pytest_itemcollected(item: pytest.Item) -> None:
    """Each test gets what its folder says."""
    folder = FOLDERS[item.path.relative_to(_HERE).parts[0]]
    if item.get_closest_marker("timeout") is None and item.config.getoption("timeout") is None:
        item.add_marker(pytest.mark.timeout(folder.timeout_s))
    if folder.is_alone:
        item.add_marker(pytest.mark.alone)
    if "chance" in getattr(item, "fixturenames", ()) or is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker(pytest.mark.random)


class SharedServers(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a group of files to one worker, and every other file as a whole to any."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in _APART:
            return file
        return FOLDERS[file.split("/")[1]].group or file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """With several workers, tests of one group share one."""
    return SharedServers(config, log)


def pytest_report_header() -> str:
    """The seed stands above the tests, so that a run can be repeated whatever failed."""
    return f"KQUOTA_SEED={SEED} repeats what is drawn"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """And below them, where the failures are."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"KQUOTA_SEED={SEED} repeats what was drawn")
