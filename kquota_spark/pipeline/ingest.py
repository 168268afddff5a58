"""INGEST: messages of the log topic to rows of `requests`. The one parser, in Arrow, on the workers."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.formats.request_log import Request, RequestLogParser, Unreadable
from kquota_spark.formats.stored_text import storable_text
from kquota_spark.model.rules import BEGINNING_MS, END_MS
from kquota_spark.schema.tables import REQUESTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEARTBEAT = b'{"kquota_heartbeat":'
_BROKER_ID = re.compile(rb"\d{1,9}")


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """What the parser needs to know; plain values, so that it travels to the workers."""

    cluster_id: str
    log_time_zone: str
    allowed_clock_skew_ms: int
    allowed_lateness_ms: int
    raw_text_limit_bytes: int


class _Beat(msgspec.Struct):
    time_ms: Annotated[int, msgspec.Meta(ge=BEGINNING_MS, le=END_MS)]
    is_end: bool = False


class _Heartbeat(msgspec.Struct):
    kquota_heartbeat: _Beat


def to_requests(messages: DataFrame, settings: IngestSettings) -> DataFrame:
    """Rows of `requests`, one a message.

    Args:
        messages: the Kafka source with headers: key, value, headers, topic, partition, offset, timestamp.
        settings: see `IngestSettings`.
    """
    picked = messages.selectExpr(
        "topic",
        "partition",
        "offset",
        "unix_millis(timestamp) AS timestamp_ms",
        "value",
        "coalesce(get(headers.value, array_position(headers.key, 'broker_id') - 1), key) AS broker",
    )
    return picked.mapInArrow(_parser(settings), REQUESTS.ddl).select(*REQUESTS.names)


def _parser(settings: IngestSettings) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parser = RequestLogParser(settings.log_time_zone)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            # Tens of thousands of live tuples and no cycles among them: looking for some costs 30 %.
            gc.disable()
            try:
                parsed = parsed_batch(batch, parser, settings)
            finally:
                gc.enable()
            yield parsed

    return parse


_LINE_COLUMNS = ("kind", "broker_id", "is_out_of_time", "reason", "raw_text", *Request._fields)
"""What a line gives, in the order of the tuples that `_line` makes; the rest comes from the message."""

_NO_REQUEST = (None,) * len(Request._fields)


def parsed_batch(batch: pa.RecordBatch, parser: RequestLogParser, settings: IngestSettings) -> pa.RecordBatch:
    """Parse one batch of messages; a line that cannot be read becomes a row with its reason."""
    lines = [
        _line(value or b"", broker, timestamp_ms, parser, settings)
        for value, broker, timestamp_ms in zip(
            batch.column("value").to_pylist(),
            batch.column("broker").to_pylist(),
            batch.column("timestamp_ms").to_pylist(),
            strict=True,
        )
    ]
    schema = REQUESTS.arrow_schema()
    columns: dict[str, Any] = {
        name: pa.array(values, schema.field(name).type)
        for name, values in zip(_LINE_COLUMNS, zip(*lines, strict=True), strict=False)
    }
    columns |= {
        "topic": batch.column("topic"),
        "partition": batch.column("partition"),
        "kafka_offset": batch.column("offset"),
        "kafka_timestamp_ms": batch.column("timestamp_ms"),
        "cluster_id": pa.repeat(settings.cluster_id, len(lines)),
    }
    time_ms = pc.coalesce(columns["record_time_ms"], columns["kafka_timestamp_ms"])
    columns["event_date"] = time_ms.cast(pa.timestamp("ms")).cast(pa.date32())
    return pa.RecordBatch.from_arrays(
        [columns[field.name].cast(field.type) for field in schema], schema=schema
    )


def _line(
    value: bytes, broker: bytes | None, timestamp_ms: Any, parser: RequestLogParser, settings: IngestSettings
) -> tuple[Any, ...]:
    if broker is None or _BROKER_ID.fullmatch(broker) is None:
        reason = "no broker id in header broker_id or key (expected a number)"
        return _unreadable(value, None, reason, settings)
    broker_id = int(broker)
    if value.startswith(HEARTBEAT):
        return _heartbeat(value, broker_id, timestamp_ms, settings)
    try:
        request = parser.parse(value)
    except Unreadable as reason:
        return _unreadable(value, broker_id, str(reason), settings)
    # Compared with the message's own time, never with now(): a re-run gives the same answer.
    is_out_of_time = request.record_time_ms > timestamp_ms + settings.allowed_clock_skew_ms
    return ("request", broker_id, is_out_of_time, None, None, *request)


def _heartbeat(value: bytes, broker_id: int, timestamp_ms: int, settings: IngestSettings) -> tuple[Any, ...]:
    """A shipper's word that all lines before a time have been sent; the last one closes every window."""
    try:
        beat = msgspec.json.decode(value, type=_Heartbeat).kquota_heartbeat
    except msgspec.DecodeError:
        return _unreadable(value, broker_id, "heartbeat that is not as kquota ship writes it", settings)
    is_out_of_time = beat.time_ms > timestamp_ms + settings.allowed_clock_skew_ms
    closing_ms = settings.allowed_lateness_ms + 2_000 if beat.is_end else 0
    times = (beat.time_ms, beat.time_ms + closing_ms)
    return ("heartbeat", broker_id, is_out_of_time, None, None, *times, *_NO_REQUEST[2:])


def _unreadable(
    value: bytes, broker_id: int | None, reason: str, settings: IngestSettings
) -> tuple[Any, ...]:
    text = storable_text(value, settings.raw_text_limit_bytes)
    return ("unreadable", broker_id, False, reason, text, *_NO_REQUEST)
