"""A plugin of pytest that records which test executes each line, and how long each test takes.

It runs under coverage and names the running test to it. The cases of a parametrised test count as one test. A fixture
that several tests share has its own name, because only the first of these tests executes it. Caches of the package are
emptied before each test; otherwise only the first test that asks a question would execute the lines of its answer.
"""

from __future__ import annotations

import functools
import json
import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import pytest

FIXTURE = "fixture "
"""What the name of a shared fixture begins with."""


class Recorder:
    """Names the running test to coverage, and collects seconds, failures and the users of shared fixtures."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._running = ""
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._failed: set[str] = set()
        self._users: defaultdict[str, set[str]] = defaultdict(set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Called around each test."""
        self._running = test_of(item.nodeid)
        for name in getattr(item, "fixturenames", ()):
            self._users[FIXTURE + name].add(self._running)
        _empty_caches()
        _switch_to(self._running)
        try:
            return (yield)
        finally:
            _switch_to("")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Called around the making of each fixture."""
        if fixturedef.scope == "function":
            return (yield)
        _switch_to(FIXTURE + fixturedef.argname)
        try:
            return (yield)
        finally:
            _switch_to(self._running)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of each test."""
        self._seconds[test_of(report.nodeid)] += report.duration
        if report.failed:
            self._failed.add(test_of(report.nodeid))

    def pytest_sessionfinish(self) -> None:
        """Write all of it."""
        found = {
            "seconds": self._seconds,
            "failed": sorted(self._failed),
            "users": {name: sorted(users) for name, users in self._users.items()},
        }
        self._target.write_text(json.dumps(found, indent=1), encoding="utf-8")


def test_of(node_id: str) -> str:
    """The test of a case: its node id without parameters."""
    return node_id.partition("[")[0]


def _switch_to(name: str) -> None:
    measuring = coverage.Coverage.current()
    assert measuring is not None, "this plugin runs under coverage"
    measuring.switch_context(name)


def _empty_caches() -> None:
    modules = [module for name, module in sys.modules.items() if name.startswith("kquota_spark.")]
    for value in [value for module in modules for value in vars(module).values()]:
        if isinstance(value, functools._lru_cache_wrapper):
            value.cache_clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--record FILE`."""
    parser.addoption("--record", type=Path, required=True, help="write seconds and failures of the tests")


def pytest_configure(config: pytest.Config) -> None:
    """Record from the first test on."""
    config.pluginmanager.register(Recorder(config.getoption("--record")))
