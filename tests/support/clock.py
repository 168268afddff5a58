"""The one clock of the product, set by a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kquota_spark.process import clock


def set_clock(monkeypatch: pytest.MonkeyPatch, read_ms: Callable[[], int]) -> None:
    """Let `now_ms` return these times, in all modules and threads, until the test ends."""
    monkeypatch.setattr(clock, "_read_ms", read_ms)
