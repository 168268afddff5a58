"""The wall clock. No other module reads it; everything below the edges gets a time as an argument."""

from __future__ import annotations

import time


def _machine_ms() -> int:
    return time.time_ns() // 1_000_000


_read_ms = _machine_ms
"""The clock of the process. Tests set another one here, for all modules and threads at once."""


def now_ms() -> int:
    """The time of this machine, epoch milliseconds."""
    return _read_ms()


def now_s() -> float:
    """The time of this machine, epoch seconds."""
    return time.time()


def time_of_day() -> str:
    """The local time, `HH:MM:SS`."""
    return time.strftime("%H:%M:%S")
