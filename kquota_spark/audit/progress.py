"""The progress of a streaming query, from its own reports, and the reason of its failure in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kquota_spark.checkpoints.checkpoints import LOG
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.store.storage import place_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


Report = Mapping[str, Any]
"""A progress report as Spark writes it in JSON (`StreamingQueryProgress.json`)."""


@dataclass(slots=True)
class Progress:
    """Rows read and time spent; the first micro-batch is also counted alone, because it compiles the plan."""

    rows: int = 0
    batch_s: float = 0.0
    first_rows: int = 0
    first_s: float = 0.0
    reported: str = ""
    """Timestamp of the newest report. A batch number is no substitute: a waiting query reports that of the next one."""
    batches: int = 0
    last_batch_s: float = 0.0
    last_seen_s: float | None = None
    """Time at which the query last ended a batch or waited for rows, epoch seconds."""
    watermark_s: float | None = None
    dropped: int = 0
    """Rows behind the watermark, as Spark counts them: groups of a micro-batch, not lines."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """Sums of what the query has written, by name. The sink adds to them."""
    backward_batches: int = 0
    """Number of micro-batches in which a Kafka partition ended before the offset that had been read."""
    end_offset: Mapping[str, Any] = field(default_factory=dict)
    """Offsets up to which the query has read its source, in the form of the source."""
    latest_offset: Mapping[str, Any] = field(default_factory=dict)
    """Newest offsets of the source at the last report, if the source reports them (Kafka does)."""

    def update(self, query: StreamingQuery, now_s: float) -> None:
        """Add the reports that have not been counted yet."""
        for report in _reports_after(query, self.reported):
            self.add(report)
        if self.reported and not query.status["isTriggerActive"]:
            self.last_seen_s = now_s

    def add(self, report: Report) -> None:
        """Add one report."""
        self.reported = report["timestamp"]
        rows, seconds = report["numInputRows"], report["durationMs"].get("triggerExecution", 0) / 1_000
        if self.rows == 0 and rows:
            self.first_rows, self.first_s = rows, seconds
        self.rows += rows
        self.batch_s += seconds
        if "addBatch" in report["durationMs"]:
            self.batches += 1
            self.last_batch_s = seconds
        self.last_seen_s = _epoch_s(report["timestamp"]) + seconds
        if watermark := report.get("eventTime", {}).get("watermark"):
            self.watermark_s = _epoch_s(watermark)
        self.dropped += sum(state["numRowsDroppedByWatermark"] for state in report.get("stateOperators", ()))
        source = report["sources"][0]
        self.backward_batches += _is_backward(source)
        self.end_offset = _mapping(source.get("endOffset"))
        self.latest_offset = _mapping(source.get("latestOffset"))

    @property
    def offsets_behind(self) -> int | None:
        """Number of Kafka offsets that are not read yet, over all partitions; None without a Kafka source."""
        if not self.latest_offset:
            return None
        return sum(
            max(0, int(latest) - int(self.end_offset.get(topic, {}).get(partition, 0)))
            for topic, partitions in self.latest_offset.items()
            for partition, latest in partitions.items()
        )

    @property
    def warm_rows_per_s(self) -> float | None:
        """Rows per second after the first micro-batch that had any; None if there was no other."""
        rows, seconds = self.rows - self.first_rows, self.batch_s - self.first_s
        return rows / seconds if rows and seconds else None

    def __str__(self) -> str:
        """Rows read, seconds spent, and rows per second after the first micro-batch, in one line."""
        warm = self.warm_rows_per_s
        tail = "" if warm is None else f" ({warm:,.0f} a second after the first batch)"
        return f"{self.rows:,} rows read in {self.batch_s:.1f} s{tail}"


def read_text(progress: Mapping[str, Progress]) -> str:
    """`messages read: 7,968 of the log, 120 of jmx`, by query."""
    return "messages read: " + ", ".join(
        f"{done.rows:,} of {'the log' if name == LOG else name}" for name, done in progress.items()
    )


def _reports_after(query: StreamingQuery, timestamp: str) -> Iterator[Report]:
    """Reports after a timestamp, oldest first.

    They are read as JSON, from the newest back. `query.recentProgress` would make some fifty calls into the JVM for
    each of up to a hundred reports.
    """
    found: list[Report] = []
    for report in reversed(query._jsq.recentProgress()):
        if report.timestamp() <= timestamp:
            break
        found.append(json.loads(report.json()))
    return reversed(found)


def _is_backward(source: Mapping[str, Any]) -> bool:
    starts, ends = _mapping(source.get("startOffset")), _mapping(source.get("endOffset"))
    return any(
        ends.get(topic, {}).get(partition, -1) < start
        for topic, partitions in starts.items()
        for partition, start in partitions.items()
    )


def _mapping(offset: Any) -> Mapping[str, Any]:
    """An offset as a mapping; sources may give it as text, or not at all."""
    if isinstance(offset, str):
        offset = json.loads(offset)
    return offset if isinstance(offset, dict) else {}


def _epoch_s(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


_REASON_LENGTH = 400
_DAMAGED_STATE = "[CANNOT_LOAD_STATE_STORE"
"""Spark's error class for files of the state that are missing or fail their checksum."""
_OVERFLOW = re.compile(
    r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value \S+ that overflows"
)
_PYTHON_ERROR = re.compile(r"^[A-Za-z_][\w.]*: .*|^[A-Za-z_][\w.]*(?:Error|Exception)$", re.MULTILINE)


def raise_failure(settings: Settings, query: StreamingQuery) -> None:
    """Raise the failure of a query as one line, if it has failed.

    Raises:
        UserError: the query failed.
    """
    failure = query.exception()
    if failure is None:
        return
    checkpoint = place_of(settings.checkpoints, query.name)
    if _DAMAGED_STATE in str(failure):
        raise UserError(
            f"query {query.name} stopped: the state in its checkpoint {checkpoint} is damaged. Restore it, or move "
            "it away and start once with --new-lineage"
        )
    raise UserError(
        f"query {query.name} failed and the job was stopped; nothing is lost, the next start resumes at its "
        f"checkpoint {checkpoint}: {reason_of(str(failure))}"
    )


def reason_of(failure: str) -> str:
    """The line with the reason of a query's failure: what a Python worker raised, or the innermost Java cause."""
    overflow = _OVERFLOW.search(failure)
    if overflow is not None:
        topic, partition, offset = overflow.groups()
        # Spark's source cannot skip such a message.
        return (
            f"topic {topic} partition {partition} offset {offset} has a time that Spark cannot hold. Set "
            "message.timestamp.type=LogAppendTime on the topic, and remove the message with kafka-delete-records.sh "
            f"(offset {int(offset) + 1}); lines before it that were not read are then gaps"
        )
    _, traceback, raised = failure.rpartition("Traceback (most recent call last):")
    found = _PYTHON_ERROR.search(raised) if traceback else None
    if found:
        return found.group()[:_REASON_LENGTH]
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by", "org.", "java.", "pyspark."))]
    return (causes or lines or ["unknown"])[-1 if causes else 0][:_REASON_LENGTH]
