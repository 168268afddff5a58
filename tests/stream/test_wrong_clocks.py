"""A host whose clock is ahead stamps its lines and its messages alike. It must not close the seconds of the others."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from tests.support.spark.queries import (
    only,
    rows_of,
    run,
    run_topic,
    settings_at,
    start_topic,
    write_rules,
    write_topic,
)
from tests.support.tables.table_rows import T0_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AHEAD_MS = 4_070_908_800_000  # 2099-01-01 00:00:00
LINE = (
    '[{at}] DEBUG Completed request:{{"isForwarded":false,"requestHeader":{{"requestApiKey":0,'
    '"requestApiVersion":9,"correlationId":{number},"clientId":"etl","requestApiKeyName":"PRODUCE"}},"request":{{'
    '"transactionalId":null,"acks":1,"timeoutMs":30000,"topicData":[{{"name":"orders","partitionData":'
    '[{{"index":0,"recordsSizeInBytes":1000}}]}}]}},"response":{{"responses":[],"throttleTimeMs":0}},'
    '"connection":"10.0.0.1:9092-10.1.0.1:40000-3","totalTimeMs":0.5,"requestQueueTimeMs":0,"localTimeMs":0.5,'
    '"remoteTimeMs":0,"throttleTimeMs":0,"responseQueueTimeMs":0,"sendTimeMs":0,"securityProtocol":"SSL",'
    '"principal":"User:alice","listener":"SSL"}} (kafka.request.logger)'
)


def line(at: str, number: int) -> bytes:
    return LINE.format(at=at, number=number).encode()


def beat(time_ms: int) -> bytes:
    return json.dumps({"kquota_heartbeat": {"time_ms": time_ms}}, separators=(",", ":")).encode()


def test_the_seconds_of_the_others_stay_open(spark: SparkSession, settings: Settings) -> None:
    write_rules(settings)
    ahead = [(1, line("2099-01-01 00:00:00,000", 1)), (1, beat(AHEAD_MS))]
    write_topic(settings, [*ahead, (2, line("2026-11-21 05:40:00,000", 2))], AHEAD_MS)
    write_topic(settings, [(2, line("2026-11-21 05:40:01,000", 3))], T0_MS + 1_000, 3)
    # Spark drops what is behind the watermark of the micro-batch before: this line would be the first.
    write_topic(settings, [(2, line("2026-11-21 05:40:02,000", 4))], T0_MS + 2_000, 4)
    # The lateness is 5 s: all three seconds are closed by it.
    write_topic(settings, [(2, beat(T0_MS + 10_000))], T0_MS + 10_000, 5)
    run_topic(spark, settings)
    used = only(rows_of(settings, "usage"), "broker_id", "second", "requests")
    assert used == [(2, T0_MS, 1), (2, T0_MS + 1_000, 1), (2, T0_MS + 2_000, 1)]
    kept = only(rows_of(settings, "requests"), "kafka_offset", "kind", "is_out_of_time")
    assert kept == [
        (0, "request", True),
        (1, "heartbeat", True),
        (2, "request", False),
        (3, "request", False),
        (4, "request", False),
        (5, "heartbeat", False),
    ]


def text_of(time_ms: int) -> str:
    """A time as the log has it."""
    at = datetime.fromtimestamp(time_ms / 1_000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S},{time_ms % 1_000:03}"


def test_in_a_backlog_too_a_host_half_an_hour_ahead_closes_no_second_of_the_others(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """Kafka stamps the messages, and they are read days later."""
    from kquota_spark.store.creation import create_tables

    without = settings_at(tmp_path / "without")
    create_tables(without)
    for each in (settings, without):
        write_rules(each)
        for second in range(4):
            # Kafka has each line 200 ms after it was written.
            at_ms = T0_MS + second * 1_000
            ahead_ms = at_ms + 1_800_000
            others = [(2, line(text_of(at_ms), second)), (2, beat(at_ms)), (3, line(text_of(at_ms), second))]
            ahead = [(1, line(text_of(ahead_ms), second)), (1, beat(ahead_ms))] if each is settings else []
            messages = [*ahead, *others]
            write_topic(each, messages, at_ms + 200, len(messages) * second, is_stamped_by_kafka=True)
        # The lateness is 5 s: all four seconds are closed by it.
        end = (2, beat(T0_MS + 10_000))
        write_topic(each, [end], T0_MS + 10_200, 4 * len(messages), is_stamped_by_kafka=True)
        run_topic(spark, each)
    used = [(broker_id, T0_MS + second * 1_000, 1) for broker_id in (2, 3) for second in range(4)]
    assert only(rows_of(settings, "usage"), "broker_id", "second", "requests") == used
    for name in ("usage", "decisions", "violations"):
        assert rows_of(settings, name) == rows_of(without, name), name
    aside = only(rows_of(settings, "requests"), "broker_id", "is_out_of_time")
    assert aside == [(1, True)] * 8 + [(2, False)] * 9 + [(3, False)] * 4


def test_a_clock_of_ours_that_is_behind_is_said_and_nothing_is_set_aside_quietly(
    spark: SparkSession, settings: Settings
) -> None:
    write_rules(settings)
    # Two brokers have written lines that come a minute after this machine's time.
    ahead_ms = time.time_ns() // 1_000_000 + 60_000
    write_topic(settings, [(1, line(text_of(ahead_ms), 1)), (2, line(text_of(ahead_ms), 2))], ahead_ms)
    # Where Kafka has stamped them, a minute is nothing.
    write_topic(settings, [(2, line(text_of(ahead_ms), 3))], ahead_ms, 2, is_stamped_by_kafka=True)
    started = start_topic(spark, settings)
    run(started)
    with pytest.raises(UserError, match="lines of 2 of 2 brokers are ahead of the clock of this machine"):
        started.sink.clock.require()
    assert only(rows_of(settings, "requests"), "kafka_offset", "is_out_of_time") == [
        (0, True),
        (1, True),
        (2, False),
    ]
