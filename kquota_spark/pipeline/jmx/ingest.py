"""INGEST of JMX: turns messages of any collector into rows of `jmx_samples`. In Arrow, on the workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kquota_spark.formats.jmx.messages import read_jmx_message
from kquota_spark.formats.jmx.sample import JmxSample, Origin
from kquota_spark.formats.messages.messages import storable_text
from kquota_spark.pipeline.ingest import event_date, message_columns
from kquota_spark.schema.broker_tables import JMX_SAMPLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BROKER_ID = re.compile(rb"\d{1,9}")
_MESSAGE_COLUMNS = {
    "topic": "topic",
    "partition": "partition",
    "kafka_offset": "offset",
    "kafka_timestamp_ms": "timestamp_ms",
}
_ROW_COLUMNS = ("kind", "reason", "raw_text", *JmxSample._fields)
_NO_SAMPLE = (None,) * len(JmxSample._fields)


@dataclass(frozen=True, slots=True)
class JmxSettings:
    """Settings of the parsers; plain values, so that they can be sent to the workers.

    Attributes:
        cluster_id: name of the cluster, for every row.
        brokers: broker ids by the addresses of their agents, in every form of `formats.jmx.sample.addresses`.
        types: MBean types by metric name.
        raw_text_limit_bytes: maximum bytes that are kept of an unreadable message.
        allowed_clock_skew_ms: maximum time that a sample may be ahead of its message or of its reading, ms.
    """

    cluster_id: str
    brokers: Mapping[str, int]
    types: Mapping[str, str]
    raw_text_limit_bytes: int
    allowed_clock_skew_ms: int


def to_jmx_messages(source: DataFrame) -> DataFrame:
    """The columns that `sampled_batch` takes, from the Kafka source with headers."""
    header = "get(headers.value, array_position(headers.key, 'broker_id') - 1)"
    return message_columns(source, f"coalesce({header}, key)")


def sampled_batch(batch: pa.RecordBatch, settings: JmxSettings) -> pa.RecordBatch:
    """Read one batch of messages: a row for each sample, and a row with the reason for what cannot be read."""
    rows: list[tuple[Any, ...]] = []
    places: list[int] = []
    given = [batch.column(name).to_pylist() for name in ("value", "broker", "written_by_ms")]
    for place, (value, broker, written_by_ms) in enumerate(zip(*given, strict=True)):
        found = _rows(value or b"", broker, written_by_ms + settings.allowed_clock_skew_ms, settings)
        rows += found
        places += [place] * len(found)
    schema = JMX_SAMPLES.arrow_schema()
    columns: dict[str, Any] = {
        name: pa.array(of_column, schema.field(name).type)
        for name, of_column in zip(_ROW_COLUMNS, zip(*rows, strict=True), strict=True)
    }
    of_message = pa.array(places, pa.int64())
    for name, source in _MESSAGE_COLUMNS.items():
        columns[name] = batch.column(source).take(of_message)
    columns["cluster_id"] = pa.repeat(settings.cluster_id, len(rows))
    written_by_ms = batch.column("written_by_ms").take(of_message)
    columns["event_date"] = event_date(columns["sample_time_ms"], written_by_ms)
    return pa.RecordBatch.from_arrays(
        [columns[field.name].cast(field.type) for field in schema], schema=schema
    )


def _rows(value: bytes, broker: bytes | None, latest_ms: int, settings: JmxSettings) -> list[tuple[Any, ...]]:
    is_number = broker is not None and _BROKER_ID.fullmatch(broker) is not None
    origin = Origin(int(broker) if is_number and broker else None, settings.brokers, settings.types)
    reading = read_jmx_message(value, origin)
    samples = [sample for sample in reading.samples if sample.sample_time_ms <= latest_ms]
    reasons = list(reading.reasons)
    if len(samples) < len(reading.samples):
        reasons.append("sample time ahead of the message or of this machine: the collector's clock is wrong")
    rows: list[tuple[Any, ...]] = [("sample", None, None, *sample) for sample in samples]
    if reasons:
        text = storable_text(value, settings.raw_text_limit_bytes)
        rows += [("unreadable", reason, text, *_NO_SAMPLE) for reason in reasons]
    return rows or [("other", None, None, *_NO_SAMPLE)]
