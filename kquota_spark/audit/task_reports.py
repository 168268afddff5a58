"""What tasks report to the driver of what they have written: by an accumulator, so that no row is needed for it.

Spark adds up the reports of successful tasks. A task whose output was lost on the way runs again, and reports again: of
two that wrote the same partition of the same table one counts. Both hold the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark import AccumulatorParam, TaskContext

from kquota_spark.audit.violations.judged import Seconds
from kquota_spark.model.replay.log_beginning import BrokerLines
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


class Ahead(NamedTuple):
    """Lines of a broker that are ahead of their reading, though not of their messages; record times, epoch ms."""

    broker_id: int
    from_ms: int
    to_ms: int


class TaskReport(msgspec.Struct, frozen=True):
    """What one task has written into one table."""

    table: str
    parts: list[Part]
    counts: dict[str, int]
    """Sums for the job's own metrics; `newest_ms` is a maximum."""
    brokers: list[int] = []
    """Whose requests they are, those out of time left out."""
    beating: list[int] = []
    """Whose heartbeats, likewise."""
    heard: list[int] = []
    """Brokers of which there is a line or a heartbeat."""
    ahead: list[Ahead] = []
    spans: list[Span] = []
    lines: list[BrokerLines] = []
    """What they tell of restarts."""
    pieces: bytes = b""
    """Of episodes, see `episodes.pieces_of`, as an Arrow stream."""
    seconds: list[Seconds] = []
    """Of the decisions."""


_encoded = msgspec.msgpack.Encoder().encode
_decoded = msgspec.msgpack.Decoder(TaskReport).decode


_Reported = list[tuple[str, int, bytes]]
"""Table, partition, and the report."""


class _Listed(AccumulatorParam[_Reported]):
    def zero(self, value: _Reported) -> _Reported:
        return []

    def addInPlace(self, value1: _Reported, value2: _Reported) -> _Reported:  # noqa: N802
        value1 += value2
        return value1


class TaskReports:
    """Carries the reports of the tasks of one query; made on the driver, used on the workers."""

    def __init__(self, context: SparkContext) -> None:
        self._reported = context.accumulator(_Reported(), _Listed())

    def add(self, report: TaskReport) -> None:
        """On a worker, once a task and table."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        self._reported.add([(report.table, partition, _encoded(report))])

    def take(self) -> list[TaskReport]:
        """On the driver, after a micro-batch: the reports of its tasks, one a table and partition."""
        found = {(table, partition): text for table, partition, text in self._reported.value}
        self._reported.value = []
        return [_decoded(text) for text in found.values()]
