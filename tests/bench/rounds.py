"""One measured round: its lines per second, and the CPU that a line took in the same seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from tests.bench.report import Cell, Spread, spread

CPU_COLUMNS = {
    "cpu_us": "CPU per line, us (range)",
    "jvm_us": "of them JVM",
    "workers_us": "Python workers",
    "driver_us": "Python driver",
    "process_us": "plain process",
    "broker_us": "broker",
    "cores": "busy cores (range)",
}
"""Headings of `cpu_cells`."""


class Round(NamedTuple):
    """What one round took.

    Attributes:
        lines: that were worked through.
        seconds: from the start to the end.
        cpu_s: CPU seconds of the same time, by kind of process; the broker is one.
    """

    lines: int
    seconds: float
    cpu_s: Mapping[str, float]

    @property
    def lines_per_s(self) -> float:
        """The rate."""
        return self.lines / self.seconds

    @property
    def cores(self) -> float:
        """Busy cores, the broker's included."""
        return sum(self.cpu_s.values()) / self.seconds

    def cpu_us(self, *kinds: str) -> float:
        """CPU microseconds per line of some kinds of processes; of all without one."""
        return sum(self.cpu_s[kind] for kind in kinds or self.cpu_s) / self.lines * 1e6


def lines_per_s(rounds: Sequence[Round]) -> Spread:
    """Median and range of the rates."""
    return spread([each.lines_per_s for each in rounds])


def cpu_cells(rounds: Sequence[Round]) -> dict[str, Cell]:
    """CPU per line, of it each kind's, and busy cores: medians of the rounds."""
    kinds = {f"{kind}_us": median(each.cpu_us(kind) for each in rounds) for kind in rounds[0].cpu_s}
    total = spread([each.cpu_us() for each in rounds])
    return {"cpu_us": total, **kinds, "cores": spread([each.cores for each in rounds])}
