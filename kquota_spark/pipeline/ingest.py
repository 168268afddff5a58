"""INGEST: turns messages of the log topic into rows of `requests`. The only parser, in Arrow, on the workers."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.config.settings import Settings
from kquota_spark.formats.messages.envelopes import Fields
from kquota_spark.formats.messages.messages import (
    GAP,
    HEADER,
    HEARTBEAT,
    LogMessages,
    MessageFormat,
    storable_text,
)
from kquota_spark.formats.request_log.line import Request, RequestLogParser, Unreadable
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS
from kquota_spark.pipeline.line_columns import Numbers, line_columns
from kquota_spark.schema.tables import REQUESTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """Settings of the parser; plain values, so that they can be sent to the workers."""

    cluster_id: str
    log_time_zone: str
    allowed_clock_skew_ms: int
    allowed_lateness_ms: int
    raw_text_limit_bytes: int
    messages: MessageFormat = field(default_factory=MessageFormat)
    log_time_zones: Mapping[int, str] = field(default_factory=dict)
    """Time zones by broker id, of brokers with another zone than `log_time_zone`."""


def clock_skew_ms(settings: Settings) -> int:
    """How far the time of a line may be ahead of the time when it was written, ms.

    It is half of the allowed lateness. All brokers share one watermark, and a clock that is ahead moves it forward. The
    other half keeps the seconds of the other brokers open.
    """
    return settings.stream.allowed_lateness // 2


def ingest_settings(settings: Settings, messages: MessageFormat) -> IngestSettings:
    """The settings of the parser, the same for the job and for archived files.

    Args:
        settings: the cluster, its time zones and the limits.
        messages: how the messages of the log are written.
    """
    return IngestSettings(
        cluster_id=settings.cluster_id,
        log_time_zone=settings.broker.log_time_zone,
        allowed_clock_skew_ms=clock_skew_ms(settings),
        allowed_lateness_ms=settings.stream.allowed_lateness,
        raw_text_limit_bytes=settings.stream.raw_text_limit_bytes,
        messages=messages,
        log_time_zones=settings.broker.zones_by_broker,
    )


_LOG_APPEND_TIME = 1
MESSAGE_TIME = f"least(greatest(unix_millis(timestamp), {BEGINNING_MS}), {END_MS})"
"""SQL: a message's own time, epoch ms, limited to what a table can hold: any producer may set it."""
_BY_READING = f"unix_millis(current_timestamp()) + if(timestampType = {_LOG_APPEND_TIME}, 60000, 0)"
WRITTEN_BY = f"least({MESSAGE_TIME}, {_BY_READING})"
"""SQL: the latest time at which a message can have been written: its own, or that of its micro-batch if earlier.

Spark keeps the time of a micro-batch with its offsets, so another attempt uses the same. A time that Kafka has set
itself (`LogAppendTime`) is trusted up to a minute ahead of the clock of this machine.
"""


def set_aside(skew_ms: int) -> str:
    """SQL: condition for rows of `requests` that are ahead of their message: neither the job nor `restate` judges them.

    The job also sets aside lines that are ahead of their reading. That depends on the time of reading, and on the clock
    where the job runs. So `restate` includes such lines.
    """
    is_ahead = f"coalesce(record_time_ms > kafka_timestamp_ms + {skew_ms}, true)"
    return f"(coalesce(is_out_of_time, false) and {is_ahead})"


def are_ahead_of_reading(rows: pa.RecordBatch, skew_ms: int) -> Any:
    """A mask of the rows of `requests` that were set aside, but are not ahead of their message."""
    is_beat = pc.equal(rows["kind"], pa.scalar("heartbeat"))
    # The last heartbeat has a later record time, which closes all windows.
    time_ms = pc.if_else(is_beat, rows["log_time_ms"], rows["record_time_ms"])
    latest_ms = pc.add(rows["kafka_timestamp_ms"], pa.scalar(skew_ms))
    return pc.and_kleene(rows["is_out_of_time"], pc.less_equal(time_ms, latest_ms))


class _Beat(msgspec.Struct):
    time_ms: Annotated[int, msgspec.Meta(ge=BEGINNING_MS, le=END_MS)]
    is_end: bool = False


class _Heartbeat(msgspec.Struct):
    kquota_heartbeat: _Beat


class _Lost(msgspec.Struct):
    from_ms: Annotated[int, msgspec.Meta(ge=BEGINNING_MS, le=END_MS)]
    to_ms: Annotated[int, msgspec.Meta(ge=BEGINNING_MS, le=END_MS)]


class _Gap(msgspec.Struct):
    kquota_gap: _Lost


class Line(NamedTuple):
    """The content of one message of the topic; the rest of a row of `requests` comes from the message itself."""

    kind: str
    broker_id: int | None
    is_out_of_time: bool
    reason: str | None
    raw_text: str | None
    request: Request
    """The fields of the line. A heartbeat and a gap have only the two times. An unreadable line has what could be read,
    see `Unreadable`: everything but the size, only the time, or nothing."""


def to_messages(source: DataFrame, settings: IngestSettings) -> DataFrame:
    """The columns that `parsed` takes, from the Kafka source with headers."""
    given = {"header": f"get(headers.value, array_position(headers.key, '{HEADER}') - 1)", "key": "key"}
    named = [given[source] for source in settings.messages.broker_from if source in given]
    return message_columns(source, f"coalesce({', '.join([*named, 'cast(NULL AS binary)'])})")


def message_columns(source: DataFrame, broker: str) -> DataFrame:
    """The columns that are read of a message of the Kafka source; `broker` is the SQL expression for its broker."""
    times = (f"{MESSAGE_TIME} AS timestamp_ms", f"{WRITTEN_BY} AS written_by_ms")
    return source.selectExpr("topic", "partition", "offset", *times, "value", f"{broker} AS broker")


def parsed(messages: pa.RecordBatch, reader: MessageReader) -> pa.RecordBatch:
    """Parse one batch of messages into rows of `requests`. An unreadable line becomes a row with its reason."""
    # There are tens of thousands of live tuples without cycles: garbage collection would cost 30 %.
    gc.disable()
    try:
        parts = [*_of_usual_lines(messages, reader)]
        are_others = np.ones(messages.num_rows, bool)
        for places, _ in parts:
            are_others[places] = False
        others = np.flatnonzero(are_others)
        if len(others):
            parts.append(_Part(others, parsed_one_by_one(_taken(messages, others), reader)))
        return _in_order(parts)
    finally:
        gc.enable()


_MESSAGE_COLUMNS = ("value", "broker", "topic", "written_by_ms")
_NO_FIELDS: Fields = {}
_NO_REQUEST = Request._make([None] * len(Request._fields))
_SCHEMA = REQUESTS.arrow_schema()
_NO_BROKER = -1
_ROWS_A_SLICE = 100


class _Part(NamedTuple):
    """Rows of some messages, and the places of those messages, in order."""

    places: Numbers
    rows: pa.RecordBatch


def _of_usual_lines(messages: pa.RecordBatch, reader: MessageReader) -> Iterator[_Part]:
    """Rows of the messages that are a plain line in Kafka's own layout, zone by zone."""
    broker_ids = reader.broker_ids(messages)
    beside = messages.drop_columns(["value"])
    for parser, are_of_zone in reader.zones(broker_ids):
        of_zone = np.flatnonzero(are_of_zone)
        found = line_columns(_taken(messages.select(["value"]), of_zone)["value"], parser)
        places = of_zone[found.places]
        if len(places):
            given = _taken(beside, places)
            latest_ms = pc.add(given["written_by_ms"], pa.scalar(reader.settings.allowed_clock_skew_ms))
            columns = found.columns | {
                "kind": pa.repeat("request", len(places)),
                "broker_id": pa.array(broker_ids[places]),
                "is_out_of_time": pc.greater(found.columns["record_time_ms"], latest_ms),
                "reason": pa.nulls(len(places)),
                "raw_text": pa.nulls(len(places)),
            }
            yield _Part(places, _rows(given, columns, reader.settings.cluster_id))


def parsed_one_by_one(messages: pa.RecordBatch, reader: MessageReader) -> pa.RecordBatch:
    """The same as `parsed`, for any messages; it creates an object for each line."""
    given: list[list[Any]] = [messages.column(name).to_pylist() for name in _MESSAGE_COLUMNS]
    lines = [reader.read(*message) for message in zip(*given, strict=True)]
    *heads, requests = zip(*lines, strict=True)
    columns = _request_columns(requests)
    for name, values in zip(Line._fields, heads, strict=False):
        columns[name] = pa.array(values, _SCHEMA.field(name).type)
    return _rows(messages, columns, reader.settings.cluster_id)


def _rows(messages: pa.RecordBatch, columns: dict[str, Any], cluster_id: str) -> pa.RecordBatch:
    """Rows of `requests`: the parsed columns, and those that are known of a message without parsing."""
    count = messages.num_rows
    columns |= {
        "topic": messages.column("topic"),
        "partition": messages.column("partition"),
        "kafka_offset": messages.column("offset"),
        "kafka_timestamp_ms": messages.column("timestamp_ms"),
        "cluster_id": pa.repeat(cluster_id, count),
        "lines": pa.nulls(count),
        "first_offset": pa.nulls(count),
    }
    columns["event_date"] = event_date(columns["record_time_ms"], messages.column("written_by_ms"))
    arrays = [columns[field.name].cast(field.type) for field in _SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _in_order(parts: Sequence[_Part]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0].rows
    rows = pa.Table.from_batches([part.rows for part in parts])
    order = np.argsort(np.concatenate([part.places for part in parts]))
    begins = np.flatnonzero(np.diff(order, prepend=-2) != 1)
    if len(begins) > len(order) // _ROWS_A_SLICE:
        rows = rows.take(_indices(order))
    else:
        # Few rows among many, such as heartbeats: slices take a third of the time.
        ends = np.append(begins[1:], len(order))
        slices = (rows.slice(order[begin], end - begin) for begin, end in zip(begins, ends, strict=True))
        rows = pa.concat_tables(slices)
    return rows.combine_chunks().to_batches()[0]


def _taken(messages: pa.RecordBatch, places: Numbers) -> pa.RecordBatch:
    return messages if len(places) == messages.num_rows else messages.take(_indices(places))


def _indices(places: Numbers) -> pa.Int64Array:
    return pa.array(places.tolist(), pa.int64())


def event_date(time_ms: Any, written_by_ms: Any) -> Any:
    """The partition of rows: the day of their time, but not later than the day on which they were written."""
    known_ms = pc.min_element_wise(time_ms, written_by_ms)
    return known_ms.cast(pa.timestamp("ms")).cast(pa.date32())


def request_batch(broker_id: int, requests: Sequence[Request]) -> pa.RecordBatch:
    """Rows of `requests` as `pipeline.charges` needs them, from a log that is not a topic; offsets are positions."""
    count = len(requests)
    columns = _request_columns(requests) | {
        "kind": pa.repeat("request", count),
        "is_out_of_time": pa.repeat(False, count),
        "broker_id": pa.repeat(broker_id, count),
        "kafka_offset": pa.array(range(count), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _request_columns(requests: Sequence[Request]) -> dict[str, Any]:
    fields = zip(*requests, strict=True) if requests else [()] * len(Request._fields)
    return {
        name: pa.array(values, _SCHEMA.field(name).type)
        for name, values in zip(Request._fields, fields, strict=True)
    }


class MessageReader:
    """Turns one message into a `Line`; no content of a message makes it raise."""

    def __init__(self, settings: IngestSettings) -> None:
        self.settings = settings
        self._messages = LogMessages(settings.messages)
        self._takes_lines = self._messages.takes_lines
        self._parser = RequestLogParser(settings.log_time_zone)
        self._parsers = {
            broker_id: RequestLogParser(zone) for broker_id, zone in settings.log_time_zones.items()
        }

    def broker_ids(self, messages: pa.RecordBatch) -> Numbers:
        """The broker of each message that is only a line; `_NO_BROKER` if no place of the message contains it."""
        if not self._takes_lines:
            return np.full(messages.num_rows, _NO_BROKER)
        encoded: list[Any] = [
            messages.column(name).dictionary_encode("encode") for name in ("broker", "topic")
        ]
        names, topics = (each.dictionary.to_pylist() for each in encoded)
        of_names, of_topics = (each.indices.to_numpy().astype(np.int64) for each in encoded)
        # Few differ, so the broker is found once for each pair of a name and a topic.
        pairs, of_pairs = np.unique(of_names * len(topics) + of_topics, return_inverse=True)
        asked = (divmod(pair, len(topics)) for pair in pairs.tolist())
        found = [self._messages.broker_id(names[name], _NO_FIELDS, topics[topic]) for name, topic in asked]
        ids: Numbers = np.array([_NO_BROKER if each is None else each for each in found], np.int64)[of_pairs]
        return ids

    def zones(self, broker_ids: Numbers) -> Iterator[tuple[RequestLogParser, npt.NDArray[np.bool_]]]:
        """Each parser, and a mask of the brokers that have their logs in its zone."""
        are_known = broker_ids != _NO_BROKER
        own = [*self._parsers]
        yield self._parser, are_known & ~np.isin(broker_ids, own) if own else are_known
        for broker_id, parser in self._parsers.items():
            yield parser, broker_ids == broker_id

    def read(self, value: bytes | None, broker: bytes | None, topic: str, written_by_ms: int) -> Line:
        """The content of one message.

        Args:
            value: value of the Kafka message; None counts as empty.
            broker: header or key with the broker's id, if the settings name one.
            topic: topic of the message.
            written_by_ms: latest time at which the line can have been written, epoch ms, see `WRITTEN_BY`.
        """
        value = value or b""
        line, fields = value, _NO_FIELDS
        # A line of the log begins with its time in brackets, and most messages are such lines.
        if value[:1] != b"[" or not self._takes_lines:
            if value.startswith((HEARTBEAT, GAP)):
                return self._word(value, self._messages.broker_id(broker, fields, topic), written_by_ms)
            try:
                line, fields = self._messages.opened(value)
            except Unreadable as reason:
                of_broker = self._messages.broker_id(broker, fields, topic)
                return self._unreadable(value, of_broker, reason, written_by_ms)
        broker_id = self._messages.broker_id(broker, fields, topic)
        if broker_id is None:
            return self._unreadable(line, None, Unreadable(self._messages.no_broker), written_by_ms)
        parser = self._parsers.get(broker_id, self._parser) if self._parsers else self._parser
        seen_ms = written_by_ms
        if fields and parser.is_shown_twice(line):
            seen_ms = min(written_by_ms, self._messages.read_ms(fields) or written_by_ms)
        try:
            request = parser.parse(line, seen_ms)
        except Unreadable as reason:
            return self._unreadable(line, broker_id, reason, written_by_ms)
        # Shippers stamp messages with the clock of the broker's host. A clock that is ahead would advance the watermark
        # for all brokers, so the time of reading is a bound too.
        is_out_of_time = request.record_time_ms > written_by_ms + self.settings.allowed_clock_skew_ms
        return Line("request", broker_id, is_out_of_time, None, None, request)

    def _word(self, value: bytes, broker_id: int | None, written_by_ms: int) -> Line:
        """A message of the shipper itself: a heartbeat, or a gap.

        A heartbeat means that all lines before a time have been sent, a gap that lines are lost. The last heartbeat
        closes every window.
        """
        if broker_id is None:
            return self._unreadable(value, None, Unreadable(self._messages.no_broker), written_by_ms)
        kind = "heartbeat" if value.startswith(HEARTBEAT) else "gap"
        try:
            if kind == "heartbeat":
                beat = msgspec.json.decode(value, type=_Heartbeat).kquota_heartbeat
                closing_ms = self.settings.allowed_lateness_ms + 2_000 if beat.is_end else 0
                from_ms, to_ms, latest_ms = beat.time_ms, beat.time_ms + closing_ms, beat.time_ms
            else:
                lost = msgspec.json.decode(value, type=_Gap).kquota_gap
                from_ms, to_ms, latest_ms = lost.from_ms, lost.to_ms, lost.to_ms
        except (msgspec.DecodeError, RecursionError):
            reason = Unreadable(f"{kind} that is not as kquota ship writes it")
            return self._unreadable(value, broker_id, reason, written_by_ms)
        is_out_of_time = latest_ms > written_by_ms + self.settings.allowed_clock_skew_ms
        request = _NO_REQUEST._replace(log_time_ms=from_ms, record_time_ms=to_ms)
        return Line(kind, broker_id, is_out_of_time, None, None, request)

    def _unreadable(self, line: bytes, broker_id: int | None, reason: Unreadable, written_by_ms: int) -> Line:
        text = storable_text(line, self.settings.raw_text_limit_bytes)
        request = reason.request or _NO_REQUEST
        if reason.cut_ms is not None:
            request = request._replace(log_time_ms=reason.cut_ms, record_time_ms=reason.cut_ms)
        recorded_ms = request.record_time_ms if request.record_time_ms is not None else 0
        is_out_of_time = recorded_ms > written_by_ms + self.settings.allowed_clock_skew_ms
        return Line("unreadable", broker_id, is_out_of_time, str(reason), text, request)
