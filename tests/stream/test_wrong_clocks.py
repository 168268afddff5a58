"""A host whose clock is ahead stamps its lines and its messages alike. It must not close the seconds of the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kquota_spark.config.settings import Settings
from tests.support.spark.queries import only, rows_of, run_topic, write_rules, write_topic
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
