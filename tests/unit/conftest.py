"""Fixtures of more than one file: a log, the clock of the doctor, the captures replayed once, and no progress."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import set_clock
from tests.support.logs.replayed_captures import CAPTURES, found
from tests.support.tables.audited_tables import NOW_MS


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "kafka-request.log"


@pytest.fixture
def doctors_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Now is `NOW_MS`."""
    set_clock(monkeypatch, lambda: NOW_MS)


@pytest.fixture(scope="package")
def answers() -> dict[str, dict[str, Any]]:
    """Each capture replayed once, with the list of what is wrong."""
    return {capture.name: found(capture.arguments("--show", "wrong")) for capture in CAPTURES}


@pytest.fixture(autouse=True, scope="session")
def _no_progress() -> Iterator[None]:
    """Commands called in this process say nothing of their progress: the speed of the machine is no part of a claim."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kquota_spark.cli.check.findings._PATIENCE_S", math.inf)
        patched.setattr("kquota_spark.replay.files._REPORT_S", math.inf)
        yield
