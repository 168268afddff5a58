"""Reads the lines of a decision from the log topic, at the offsets that the table `requests` has.

The table has a row per line, or with `tables.requests: throttled` or `unreadable` a row with sums per second. Lines and
rows must be equal. So the table shows where to read, and a change of only one of both shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.evidence.lines import LINE_NAMES, POSITION, Line
from kquota_spark.kafka.log_messages import LogMessage, Offsets, Place, messages_at
from kquota_spark.kafka.questions import message_format
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS
from kquota_spark.pipeline.ingest import MessageReader, ingest_settings, parsed

_AT_ONCE = 10_000
_COMPARED = tuple(name for name in LINE_NAMES if name not in (*POSITION, "is_out_of_time"))
"""Columns that a line must have as in the table. The job may set a line aside by the time of its reading."""
_LINES = ("request", "unreadable")
Position = tuple[str, int, int]
"""Topic, partition and offset of a line."""


class LeftOut(NamedTuple):
    """A row of the table in place of the lines of a second: their places, how many they are, and their bytes."""

    topic: str
    partition: int
    first_offset: int
    kafka_offset: int
    broker_id: int
    quota_type: str | None
    second: int
    lines: int
    charged_bytes: int | None

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.topic, self.partition

    def has(self, line: Line) -> bool:
        """Whether a line is one of those that this row replaces, unless the line has a row of its own."""
        return (
            (line["topic"], line["partition"]) == self.place
            and self.first_offset <= line["kafka_offset"] <= self.kafka_offset
            and line["broker_id"] == self.broker_id
            and line["quota_type"] == self.quota_type
            and line["record_time_ms"] // 1_000 == self.second
        )


def lines_of_topic(
    settings: Settings, rows: Sequence[Line], left_out: Sequence[LeftOut], own: Collection[Position]
) -> list[Line]:
    """The lines of some rows of `requests`, read from the log topic anew.

    Args:
        settings: Kafka, and how lines are parsed.
        rows: rows with a line each.
        left_out: rows that replace lines.
        own: the places of all lines that have a row of their own, between those.

    Raises:
        UnreadError: the topic does not have all of them any more, or cannot be read.
        UserError: a line differs from its row.
    """
    wanted: dict[Place, list[Offsets]] = defaultdict(list)
    for row in rows:
        wanted[row["topic"], row["partition"]].append((row["kafka_offset"], row["kafka_offset"]))
    for each in left_out:
        wanted[each.place].append((each.first_offset, each.kafka_offset))
    by_position = {_position(row): row for row in rows}
    found = {_position(line): line for line in _parsed(settings, messages_at(settings, wanted))}
    for position, row in by_position.items():
        _require_equal(position, row, found.get(position))
    replaced = (line for position, line in found.items() if position not in own and line["kind"] in _LINES)
    lines: list[Line] = [
        {**found[position], "is_out_of_time": row["is_out_of_time"]} for position, row in by_position.items()
    ]
    return [*lines, *_of_left_out(left_out, replaced)]


def _position(line: Line) -> Position:
    return line["topic"], line["partition"], line["kafka_offset"]


def _parsed(settings: Settings, messages: Sequence[LogMessage]) -> Iterator[Line]:
    """The lines of messages as INGEST reads them."""
    reader = MessageReader(ingest_settings(settings, message_format(settings)))
    for start in range(0, len(messages), _AT_ONCE):
        part = messages[start : start + _AT_ONCE]
        topics, partitions, offsets, times_ms, values, brokers = zip(*part, strict=True)
        written_ms = pa.array([min(max(time_ms, BEGINNING_MS), END_MS) for time_ms in times_ms], pa.int64())
        columns: dict[str, Any] = {
            "topic": list(topics),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp_ms": written_ms,
            "written_by_ms": written_ms,
            "value": pa.array(values, pa.binary()),
            "broker": pa.array(brokers, pa.binary()),
        }
        yield from parsed(pa.RecordBatch.from_pydict(columns), reader).select([*LINE_NAMES]).to_pylist()


def _require_equal(position: Position, row: Line, line: Line | None) -> None:
    """Check that a line of the topic has what its row in the table has."""
    topic, partition, offset = position
    where = f"topic {topic}, partition {partition}, offset {offset:,}"
    if line is None:
        raise UserError(f"{where} has a row in table requests, but no message: no evidence from either")
    for name in _COMPARED:
        if line[name] != row[name]:
            raise UserError(
                f"{where} has another {name} than its row in table requests: one of both was changed, the topic was "
                "created anew, or the settings of the parser are others; --lines table takes the rows"
            )


def _of_left_out(left_out: Sequence[LeftOut], lines: Iterable[Line]) -> Iterator[Line]:
    """The lines that rows replace; each row must have their number and their bytes."""
    by_key: dict[tuple[object, ...], list[Line]] = defaultdict(list)
    for line in lines:
        if line["record_time_ms"] is not None:
            by_key[_key(line, line["record_time_ms"] // 1_000)].append(line)
    for row in left_out:
        key = row.topic, row.partition, row.broker_id, row.quota_type, row.second
        of_row = [line for line in by_key[key] if row.has(line)]
        charged = [line["charged_bytes"] for line in of_row if line["charged_bytes"] is not None]
        if (len(of_row), sum(charged)) != (row.lines, row.charged_bytes or 0):
            raise UserError(
                f"topic {row.topic}, partition {row.partition}, offsets {row.first_offset:,} to {row.kafka_offset:,} "
                f"have {len(of_row):,} lines of {sum(charged):,} bytes, and table requests has {row.lines:,} of "
                f"{row.charged_bytes or 0:,}: one of both was changed, or the settings of the parser are others"
            )
        yield from of_row


def _key(line: Mapping[str, object], second: int) -> tuple[object, ...]:
    return line["topic"], line["partition"], line["broker_id"], line["quota_type"], second
