"""Reports of tasks to the driver about what they have written; an accumulator carries them, so no rows are needed.

Spark adds up the reports of successful tasks. If the output of a task is lost on the way, the task runs again and
reports again. If two tasks wrote the same partition of the same table, one report counts. Both hold the same rows.
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
    """Record times (epoch ms) of a broker's lines that are ahead of their reading, but not of their messages."""

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
    """Brokers with a request among the rows, not counting requests out of time."""
    beating: list[int] = []
    """Brokers with a heartbeat among the rows, not counting heartbeats out of time."""
    heard: list[int] = []
    """Brokers with any line or heartbeat among the rows."""
    ahead: list[Ahead] = []
    spans: list[Span] = []
    lines: list[BrokerLines] = []
    """Signs of restarts in the rows."""
    pieces: bytes = b""
    """Pieces of episodes as an Arrow stream, see `episodes.pieces_of`."""
    seconds: list[Seconds] = []
    """First and newest seconds of the decisions."""


encoded = msgspec.msgpack.Encoder().encode
"""A report as the accumulator carries it."""
decoded = msgspec.msgpack.Decoder(TaskReport).decode


_Reported = list[tuple[str, int, bytes]]
"""Table, partition, and the report."""


class _Listed(AccumulatorParam[_Reported]):
    def zero(self, value: _Reported) -> _Reported:
        return []

    def addInPlace(self, value1: _Reported, value2: _Reported) -> _Reported:  # noqa: N802
        value1 += value2
        return value1


class TaskReports:
    """Carries the reports of the tasks of one query; the driver creates it, the workers use it."""

    def __init__(self, context: SparkContext) -> None:
        self._reported = context.accumulator(_Reported(), _Listed())

    def add(self, report: TaskReport) -> None:
        """Add the report of a task about one table; call it on a worker, once for each."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        self._reported.add([(report.table, partition, encoded(report))])

    def take(self) -> list[TaskReport]:
        """The reports of a micro-batch, one per table and partition; call it on the driver, after the micro-batch."""
        found = {(table, partition): text for table, partition, text in self._reported.value}
        self._reported.value = []
        return [decoded(text) for text in found.values()]
