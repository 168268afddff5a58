"""The input of the closed loop: the requests of a bucket under both quotas, and the times of the loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kquota_spark.model.loops.open_loop import Judged


class Both(NamedTuple):
    """The requests of a bucket under both quotas, in the same order.

    The loop begins at the place `start`, and counts from `counted` on.
    """

    was: Sequence[Judged]
    tried: Sequence[Judged]
    start: int
    counted: int

    def inside(self) -> Iterator[tuple[Judged, Judged]]:
        """The requests of the loop."""
        return zip(self.was[self.start :], self.tried[self.start :], strict=True)


class Times(NamedTuple):
    """The beginning of the loop, the beginning of what it counts, and the end of both; epoch ms."""

    begins_ms: int
    from_ms: int
    until_ms: int

    @property
    def has_settling(self) -> bool:
        """Whether the loop begins before it counts."""
        return self.begins_ms < self.from_ms

    @property
    def counts_from_ms(self) -> int:
        """The time from which it counts; 0 if that is the beginning."""
        return self.from_ms if self.has_settling else 0
