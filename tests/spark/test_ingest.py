"""INGEST: a message in, a row of `requests` out; nothing is dropped, nothing stops the batch."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.formats.request_log.line import MAX_LINE_BYTES
from kquota_spark.model.quotas.rules import END_MS
from kquota_spark.pipeline.ingest import IngestSettings
from kquota_spark.schema.tables import REQUESTS
from tests.support.spark.parsed import parsed_rows
from tests.support.tables.table_rows import T0_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = IngestSettings(
    cluster_id="demo",
    log_time_zone="UTC",
    allowed_clock_skew_ms=60_000,
    allowed_lateness_ms=5_000,
    raw_text_limit_bytes=40,
)
LOG_MS = T0_MS + 48_390  # 05:40:48,390
DAY = dt.date(2026, 11, 21)
MESSAGE = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string, partition int, "
    "offset bigint, timestamp timestamp, timestampType int"
)
# requestTime 1.25 ms, then 0.5 (no wait, acks=1) + 0.25 + 0.25 ms until the line was written.
LINE = (
    b'[2026-11-21 05:40:48,390] DEBUG Completed request:{"isForwarded":false,"requestHeader":{'
    b'"requestApiKey":0,"requestApiVersion":9,"correlationId":7,"clientId":"etl",'
    b'"requestApiKeyName":"PRODUCE"},"request":{"transactionalId":null,"acks":1,"timeoutMs":30000,'
    b'"topicData":[{"name":"orders","partitionData":[{"index":0,"recordsSizeInBytes":1000}]}]},'
    b'"response":{"responses":[],"throttleTimeMs":12},"connection":"10.0.0.1:9092-10.1.0.1:40000-3",'
    b'"totalTimeMs":2.5,"requestQueueTimeMs":0.25,"localTimeMs":1.25,"remoteTimeMs":0.5,'
    b'"throttleTimeMs":12,"responseQueueTimeMs":0.25,"sendTimeMs":0.25,"securityProtocol":"SSL",'
    b'"principal":"User:alice","listener":"SSL","clientInformation":{"softwareName":'
    b'"apache-kafka-java","softwareVersion":"3.9.1"}} (kafka.request.logger)'
)
SASL = (
    b'[2026-11-21 05:40:48,390] DEBUG Completed request:{"isForwarded":false,"requestHeader":{'
    b'"requestApiKey":36,"requestApiVersion":2,"correlationId":1,"clientId":"x","requestApiKeyName":'
    b'"SASL_AUTHENTICATE"},"request":{"authBytes":"AGFsaWNlAHMzY3JldA=="'  # cut: not readable
)
REQUEST = {
    "cluster_id": "demo",
    "event_date": DAY,
    "kind": "request",
    "topic": "log",
    "partition": 2,
    "kafka_timestamp_ms": LOG_MS + 5,
    "broker_id": 3,
    "log_time_ms": LOG_MS,
    "record_time_ms": LOG_MS - 1,
    "is_out_of_time": False,
    "principal_type": "User",
    "user": "alice",
    "client_id": "etl",
    "api_key": 0,
    "api_version": 9,
    "api_name": "PRODUCE",
    "quota_type": "produce",
    "point_kind": 0,
    # 11 + "etl" + (1 + 6 + 1 + 1) + ("orders" + 1 + 2) + (5 + 2 + 1000): header v2 and a produce v9
    "charged_bytes": 14 + 9 + 9 + 1_007,
    "request_time_percent": 0.125,
    "observed_throttle_ms": 12,
    "is_from_follower": False,
    "is_forwarded": False,
    "connection": "10.0.0.1:9092-10.1.0.1:40000-3",
    "correlation_id": 7,
    "software_name": "apache-kafka-java",
    "software_version": "3.9.1",
    "network_time_us": 250,
    "topics": ["orders"],
}
EMPTY: dict[str, Any] = dict.fromkeys(REQUESTS.names) | {
    "cluster_id": "demo",
    "event_date": DAY,
    "topic": "log",
    "partition": 2,
    "kafka_timestamp_ms": LOG_MS + 5,
    "broker_id": 3,
    "is_out_of_time": False,
}


def ingested(
    spark: SparkSession,
    *values: bytes | None,
    key: bytes | None = b"3",
    header: bytes | None = None,
    timestamp_ms: int = LOG_MS + 5,
) -> list[dict[str, Any]]:
    """Messages of these values, at the offsets 0, 1, ...; their rows in that order."""
    headers = None if header is None else [("kind", b"x"), ("broker_id", header)]
    moment = dt.datetime.fromtimestamp(timestamp_ms / 1_000, dt.UTC)
    messages = [(key, value, headers, "log", 2, offset, moment, 0) for offset, value in enumerate(values)]
    return parsed_rows(spark.createDataFrame(messages, MESSAGE), SETTINGS)


def beat(**told: Any) -> bytes:
    return json.dumps({"kquota_heartbeat": told}, separators=(",", ":")).encode()


def test_every_kind_of_message_is_one_row(spark: SparkSession) -> None:
    heartbeat = {"broker_id": 3, "time_ms": T0_MS, "lines": 5, "excluded": 0}
    assert ingested(
        spark,
        LINE,
        b"INFO no request log",
        beat(**heartbeat, is_end=False),
        beat(**heartbeat, is_end=True),
        None,
        SASL,
        LINE[:600],
    ) == [
        {**EMPTY, **REQUEST, "kafka_offset": 0},
        {
            **EMPTY,
            "kafka_offset": 1,
            "kind": "unreadable",
            "reason": "no 'Completed request:' near the start",
            "raw_text": "INFO no request log",
        },
        {**EMPTY, "kafka_offset": 2, "kind": "heartbeat", "log_time_ms": T0_MS, "record_time_ms": T0_MS},
        {
            **EMPTY,
            "kafka_offset": 3,
            "kind": "heartbeat",
            "log_time_ms": T0_MS,
            # later than any line by the lateness, and by the second that is still open: closes every window
            "record_time_ms": T0_MS + 5_000 + 2_000,
        },
        {
            **EMPTY,
            "kafka_offset": 4,
            "kind": "unreadable",
            "reason": "no 'Completed request:' near the start",
            "raw_text": "",
        },
        {
            **EMPTY,
            "kafka_offset": 5,
            "kind": "unreadable",
            "reason": "not valid JSON (cut in half, or not UTF-8)",
            "raw_text": None,
        },
        {
            **EMPTY,
            "kafka_offset": 6,
            "kind": "unreadable",
            # Nobody knows whose request it was: its broker lacks one from this time on.
            "log_time_ms": LOG_MS,
            "record_time_ms": LOG_MS,
            "reason": "not valid JSON (cut in half, or not UTF-8)",
            "raw_text": LINE[:40].decode(),
        },
    ]


def test_the_broker_is_the_header_or_the_key_and_nobody_else(spark: SparkSession) -> None:
    assert [row["broker_id"] for row in ingested(spark, LINE, header=b"17")] == [17]
    assert [row["broker_id"] for row in ingested(spark, LINE, key=None, header=b"17")] == [17]
    for broker in (None, b"", b"-1", b"one", b"3 ", b"9999999999"):
        [row] = ingested(spark, LINE, key=broker)
        assert row == {
            **EMPTY,
            "broker_id": None,
            "kafka_offset": 0,
            "kind": "unreadable",
            "reason": "no broker id in header broker_id, key or a field of the envelope "
            "(expected a number, or a name in kafka.broker_ids)",
            "raw_text": LINE[:40].decode(),
        }


def test_a_line_ahead_of_its_message_is_kept_and_marked(spark: SparkSession) -> None:
    # Recorded at LOG_MS - 1: one ms more than the 60 s of allowed skew before it, then exactly 60 s.
    ahead, at_the_limit = (
        ingested(spark, LINE, timestamp_ms=LOG_MS - 1 - 60_000 + extra_ms)[0] for extra_ms in (-1, 0)
    )
    assert ahead == {
        **EMPTY,
        **REQUEST,
        "kafka_offset": 0,
        "kafka_timestamp_ms": LOG_MS - 60_002,
        "is_out_of_time": True,
    }
    assert not at_the_limit["is_out_of_time"]
    [heartbeat] = ingested(spark, beat(time_ms=LOG_MS + 60_006))
    assert heartbeat["is_out_of_time"]


def test_a_line_ahead_of_its_reading_is_marked_whatever_its_message_says(spark: SparkSession) -> None:
    # Line and message have one clock, that of the host. It is a century ahead.
    line = LINE.replace(b"[2026", b"[2126")
    [row] = ingested(spark, line, timestamp_ms=LOG_MS + 100 * 365 * 86_400_000 + 30 * 86_400_000)
    assert (row["kind"], row["is_out_of_time"], row["user"]) == ("request", True, "alice")
    # Its partition is the day on which it was read: maintenance meets no partition of the future.
    assert row["event_date"] <= dt.datetime.now(dt.UTC).date()


@pytest.mark.parametrize(("time_ms", "kept_ms"), [(10**15, END_MS), (-1, 0), (9_223_372_036_854_775, END_MS)])
def test_a_time_that_no_table_can_hold_is_clamped(spark: SparkSession, time_ms: int, kept_ms: int) -> None:
    messages = spark.createDataFrame([(b"3", b"no line", None, "log", 2, 0, None, 0)], MESSAGE)
    at = F.timestamp_millis(F.lit(time_ms))
    [row] = parsed_rows(messages.withColumn("timestamp", at), SETTINGS)
    assert (row["kind"], row["kafka_timestamp_ms"]) == ("unreadable", kept_ms)
    assert dt.date(1970, 1, 1) <= row["event_date"] <= dt.datetime.now(dt.UTC).date()


def test_a_line_of_5_mb_is_refused_and_only_its_start_kept(spark: SparkSession) -> None:
    huge = LINE.replace(b'"clientId":"etl"', b'"clientId":"' + b"a" * (5 << 20) + b'"')
    assert len(huge) > MAX_LINE_BYTES
    before, found, after = ingested(spark, LINE, huge, LINE)
    assert found == {
        **EMPTY,
        "kafka_offset": 1,
        "kind": "unreadable",
        "log_time_ms": LOG_MS,
        "record_time_ms": LOG_MS,
        "reason": "line longer than 4194304 bytes",
        "raw_text": LINE[:40].decode(),
    }
    assert before == {**EMPTY, **REQUEST, "kafka_offset": 0}
    assert after == {**EMPTY, **REQUEST, "kafka_offset": 2}


POISON = {
    "a time of 10^300 ms": LINE.replace(b'"sendTimeMs":0.25', b'"sendTimeMs":1e300'),
    "a time of 10^17 ms": LINE.replace(b'"sendTimeMs":0.25', b'"sendTimeMs":1e17'),
    "a negative time": LINE.replace(b'"sendTimeMs":0.25', b'"sendTimeMs":-1e17'),
    "a time beyond a double": LINE.replace(b'"sendTimeMs":0.25', b'"sendTimeMs":1e999'),
    "the year 1": LINE.replace(b"[2026", b"[0001"),
    "a lone surrogate": LINE.replace(b'"clientId":"etl"', rb'"clientId":"a\ud800"'),
    "bytes that are no UTF-8": LINE.replace(b'"clientId":"etl"', b'"clientId":"a\xff"'),
    "deep nesting": LINE.replace(b'"responses":[]', b'"x":' + b"[" * 100_000 + b',"responses":[]'),
    "a size beyond 2^31": LINE.replace(b'SizeInBytes":1000', b'SizeInBytes":2147483648'),
    "a size beyond 2^64": LINE.replace(b'SizeInBytes":1000', b'SizeInBytes":1' + b"0" * 400),
    "a negative throttle": LINE.replace(b'"throttleTimeMs":12', b'"throttleTimeMs":-12'),
    "a heartbeat of 10^30": beat(time_ms=10**30),
    "a heartbeat of 2^63 - 1": beat(time_ms=2**63 - 1, is_end=True),
    "a heartbeat before 1970": beat(time_ms=-(2**62)),
    "a heartbeat without a time": beat(),
    "a heartbeat that is cut": b'{"kquota_heartbeat":{"time_ms":17',
    "a truth as time": beat(time_ms=True),
}


def test_no_line_stops_its_batch(spark: SparkSession) -> None:
    rows = ingested(spark, *POISON.values(), LINE)
    found = dict(zip(POISON, rows, strict=False))
    assert {name: row["kind"] for name, row in found.items()} == dict.fromkeys(POISON, "unreadable")
    assert all(row["reason"] and row["event_date"] == DAY for row in found.values())
    assert rows[-1] == {**EMPTY, **REQUEST, "kafka_offset": len(POISON)}


def test_a_reason_never_quotes_the_line(spark: SparkSession) -> None:
    secret = b"s3cret-canary"
    lines = [
        LINE.replace(b'"acks":1', b'"acks":"' + secret + b'"'),
        LINE.replace(b'"User:alice"', b'["' + secret + b'"]'),
        beat(time_ms=secret.decode()),
        secret,
    ]
    rows = ingested(spark, *lines)
    assert [row["kind"] for row in rows] == ["unreadable"] * 4
    assert not [row for row in rows if secret.decode() in row["reason"]]


def test_text_of_clients_is_kept_as_it_is(spark: SparkSession) -> None:
    names = [
        "",
        " sp ace ",
        "ünï\u2028",
        "<b>=cmd|' /C'!A0</b>",
        "a\nCompleted request:{",
        "\x1b[31m",
        "\u202e",
    ]
    lines = [LINE.replace(b'"etl"', json.dumps(name).encode()) for name in names]
    assert [row["client_id"] for row in ingested(spark, *lines)] == names


def test_a_gap_that_a_shipper_tells_of(spark: SparkSession) -> None:
    def gap(**told: int) -> bytes:
        return json.dumps({"kquota_gap": told}, separators=(",", ":")).encode()

    rows = ingested(
        spark,
        gap(broker_id=3, from_ms=T0_MS - 5_000, to_ms=T0_MS),
        gap(broker_id=3, from_ms=T0_MS),
        gap(broker_id=3, from_ms=T0_MS, to_ms=LOG_MS + 60_006),
    )
    told = [(row["kind"], row["log_time_ms"], row["record_time_ms"], row["is_out_of_time"]) for row in rows]
    assert told == [
        ("gap", T0_MS - 5_000, T0_MS, False),
        ("unreadable", None, None, False),
        ("gap", T0_MS, LOG_MS + 60_006, True),
    ]
    assert rows[1]["reason"] == "gap that is not as kquota ship writes it"
