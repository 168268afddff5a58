"""What tasks tell the driver of what they have written: by an accumulator, so that no row is needed for it.

Spark adds up what successful tasks tell. A task whose output was lost on the way runs again, and tells again: of two
that wrote the same partition of the same table one counts. Both hold the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark import AccumulatorParam, TaskContext

from kquota_spark.store.parts import Part

if TYPE_CHECKING:
    from pyspark import SparkContext


class Span(NamedTuple):
    """Offsets of a partition that a task has read."""

    topic: str
    partition: int
    first: int
    last: int
    lines: int


class Told(msgspec.Struct, frozen=True):
    """What one task has written into one table."""

    table: str
    parts: list[Part]
    counts: dict[str, int]
    """Sums for the job's own metrics; `newest_ms` is a maximum."""
    brokers: list[int] = []
    """Whose lines they are."""
    spans: list[Span] = []
    violated: bytes = b""
    """Violated seconds as an Arrow stream."""
    newest: list[tuple[str, int, str, int]] = []
    """See `audit.violations.seconds_by_place`."""


_encoded = msgspec.msgpack.Encoder().encode
_decoded = msgspec.msgpack.Decoder(Told).decode


_Heard = list[tuple[str, int, bytes]]
"""Table, partition, and what was told."""


class _Listed(AccumulatorParam[_Heard]):
    def zero(self, value: _Heard) -> _Heard:
        return []

    def addInPlace(self, value1: _Heard, value2: _Heard) -> _Heard:  # noqa: N802
        value1 += value2
        return value1


class Teller:
    """Carries the word of the tasks of one query; made on the driver, used on the workers."""

    def __init__(self, context: SparkContext) -> None:
        self._heard = context.accumulator(_Heard(), _Listed())

    def tell(self, told: Told) -> None:
        """On a worker, once a task and table."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        self._heard.add([(told.table, partition, _encoded(told))])

    def heard(self) -> list[Told]:
        """On the driver, after a micro-batch: what its tasks told, one a table and partition."""
        found = {(table, partition): text for table, partition, text in self._heard.value}
        self._heard.value = []
        return [_decoded(text) for text in found.values()]
