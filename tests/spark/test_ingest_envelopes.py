"""INGEST of a topic as shippers fill it: the rows are those of the bare lines, whatever was put around them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.messages.messages import MessageFormat
from kquota_spark.pipeline.ingest import IngestSettings
from tests.spark.test_ingest import MESSAGE
from tests.support.logs.envelope_samples import LINES, WRITTEN, sample
from tests.support.logs.log_lines import T0_MS
from tests.support.spark.parsed import parsed_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = IngestSettings("demo", "UTC", 60_000, 5_000, 4_096)
POSITION = {"kafka_offset", "topic"}
NAMED = MessageFormat(broker_ids={"kafka-1": 1}, topic_pattern=r"log-broker-(\d+)")


def rows_of(
    spark: SparkSession,
    messages: Sequence[tuple[str, bytes | None, bytes]],
    settings: IngestSettings,
    timestamp_ms: int = T0_MS + 10_000,
) -> list[dict[str, Any]]:
    """Rows of messages (topic, key, value), in their order."""
    moment = dt.datetime.fromtimestamp(timestamp_ms / 1_000, dt.UTC)
    written = [
        (key, value, None, topic, 0, offset, moment, 0) for offset, (topic, key, value) in enumerate(messages)
    ]
    return parsed_rows(spark.createDataFrame(written, MESSAGE), settings)


def without_position(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in POSITION}


def test_a_topic_of_mixed_envelopes_gives_the_rows_of_the_bare_lines(spark: SparkSession) -> None:
    names = [None, *(name for name, *_ in WRITTEN)]
    samples = [LINES if name is None else sample(name) for name in names]
    # Line 1 in each envelope, then line 2 in each, ...; the broker from a key, a field, a host or the topic.
    mixed = [
        (
            "log-broker-1" if name == "fluent-bit-docker.json" else "log",
            b"1" if name in {None, "rsyslog-json.json"} else None,
            values[number],
        )
        for number in range(len(LINES))
        for name, values in zip(names, samples, strict=True)
    ]
    bare = [("log", b"1", line) for line in LINES for _ in names]
    expected = [without_position(row) for row in rows_of(spark, bare, SETTINGS)]
    assert [row["kind"] for row in expected] == ["request"] * 66  # 6 lines, bare and in 10 envelopes
    assert len({row["correlation_id"] for row in expected}) == 5  # the odd client id repeats the first line's
    found = rows_of(spark, mixed, replace(SETTINGS, messages=NAMED))
    assert [without_position(row) for row in found] == expected
    assert [row["topic"] for row in found] == [topic for topic, _, _ in mixed]


def test_the_broker_of_a_message(spark: SparkSession) -> None:
    def filebeat(**fields: Any) -> bytes:
        return json.dumps({"message": LINES[0].decode(), **fields}).encode()

    messages = [
        ("log", b"4", filebeat(broker_id="7")),  # the key comes before the field,
        ("log", None, filebeat(broker_id="7", host={"name": "kafka-1"})),  # the field before the host,
        ("log-broker-9", None, filebeat(host={"name": "kafka-1"})),  # the host before the topic
        ("log-broker-9", None, filebeat(host={"name": "kafka-2"})),
        ("log", None, filebeat(host={"name": "kafka-2"})),  # never guessed
        ("log", None, filebeat(host={"name": "2"})),
        ("log", b"kafka-1", LINES[0]),  # a name may stand anywhere
        ("log", b"kafka-2", LINES[0]),
        ("log-broker-9x", None, LINES[0]),
    ]
    found = rows_of(spark, messages, replace(SETTINGS, messages=NAMED))
    assert [row["broker_id"] for row in found] == [4, 7, 1, 9, None, None, 1, None, None]
    reason = (
        "no broker id in header broker_id, key, a field of the envelope or the topic's name "
        "(expected a number, or a name in kafka.broker_ids)"
    )
    assert {row["reason"] for row in found if row["broker_id"] is None} == {reason}
    only_field = replace(SETTINGS, messages=replace(NAMED, broker_from=("field",)))
    found = rows_of(spark, messages, only_field)
    assert [row["broker_id"] for row in found] == [7, 7, 1, None, None, None, None, None, None]
    assert found[-1]["reason"] == (
        "no broker id in a field of the envelope (expected a number, or a name in kafka.broker_ids)"
    )


def test_what_cannot_be_read_keeps_the_text_of_its_line_and_never_a_secret(spark: SparkSession) -> None:
    sasl = (
        b'[2024-11-20 12:00:00,123] DEBUG Completed request:{"requestHeader":{"requestApiKey":36,"x":"canary"'
    )
    plain = b"[2024-11-20 12:00:00,123] INFO harmless"
    messages = [
        json.dumps({"log": plain.decode() + "\n", "broker_id": 1}).encode(),
        json.dumps({"log": sasl.decode(), "broker_id": 1}).encode(),
        json.dumps({"log": sasl.decode(), "broker_id": 1}).encode()[:-30],
        json.dumps({"log": {"no": "text"}, "broker_id": 1}).encode(),
        json.dumps({"log": plain.decode()}).encode(),
        b"{\x00\xff",
    ]
    found = rows_of(spark, [("log", None, value) for value in messages], SETTINGS)
    no_broker = (
        "no broker id in header broker_id, key or a field of the envelope "
        "(expected a number, or a name in kafka.broker_ids)"
    )
    broken = "envelope: not valid JSON (cut in half, or not UTF-8)"
    assert [(row["broker_id"], row["reason"], row["raw_text"]) for row in found] == [
        (1, "no 'Completed request:' near the start", plain.decode()),
        (1, "not valid JSON (cut in half, or not UTF-8)", None),
        (None, broken, None),
        (None, "envelope: no text in field message, log, msg", '{"log": {"no": "text"}, "broker_id": 1}'),
        (None, no_broker, plain.decode()),
        (None, broken, "{\ufffd\ufffd"),
    ]


BERLIN = replace(SETTINGS, log_time_zone="Europe/Berlin")


def test_a_broker_may_have_a_zone_of_its_own(spark: SparkSession) -> None:
    zones = replace(BERLIN, log_time_zones={2: "Asia/Kathmandu"})
    found = rows_of(spark, [("log", key, LINES[0]) for key in (b"1", b"2")], zones)
    # 12:00:00,123 is 11:00 UTC in Berlin in winter, 06:15 UTC in Kathmandu.
    assert [row["log_time_ms"] for row in found] == [T0_MS + 123 - 3_600_000, T0_MS + 123 - 20_700_000]


def test_the_hour_that_is_shown_twice_is_told_by_the_time_of_the_message(spark: SparkSession) -> None:
    # 2026-10-25: 03:00 CEST (01:00 UTC) becomes 02:00 CET. 02:30 is 00:30 UTC, and 01:30 UTC again.
    line = LINES[0].replace(b"2024-11-20 12:00:00,123", b"2026-10-25 02:30:00,123")
    half_past_0_utc_ms = 1_792_888_200_000
    read = {
        "read at once": ("2026-10-25T00:30:01Z", half_past_0_utc_ms + 123),
        "read at once, an hour later": ("2026-10-25T01:30:01Z", half_past_0_utc_ms + 3_600_123),
        "no time in the envelope": (None, half_past_0_utc_ms + 3_600_123),
    }
    messages = [
        json.dumps({"message": line.decode(), "@timestamp": time, "broker_id": 1}).encode()
        for time, _ in read.values()
    ]
    # The topic's own time is three hours late: Kafka was away, or it is LogAppendTime of a slow shipper.
    found = rows_of(
        spark, [("log", None, value) for value in messages], BERLIN, half_past_0_utc_ms + 10_800_000
    )
    assert dict(zip(read, (row["log_time_ms"] for row in found), strict=True)) == {
        name: log_time_ms for name, (_, log_time_ms) in read.items()
    }
    for seen_ms, later_ms in ((half_past_0_utc_ms + 1_000, 0), (half_past_0_utc_ms + 3_601_000, 3_600_000)):
        [row] = rows_of(spark, [("log", b"1", line)], BERLIN, seen_ms)
        assert row["log_time_ms"] == half_past_0_utc_ms + 123 + later_ms
