"""What arrives in the log topic right now: lines that can be read, heartbeats, and the clocks behind them.

confluent-kafka reads it: shippers compress, and kafka-python needs a further package for each codec.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kquota_spark.config.settings import Settings
from kquota_spark.formats.request_log import RequestLogParser, Unreadable
from kquota_spark.io.check import Check, fail, ok, warn

if TYPE_CHECKING:
    from kquota_spark.io.kafka_checks import Consumed

_TIMEOUT_S = 5.0
_LOOK_BACK_MS = 5_000
_MOST_MESSAGES = 20_000
_FRESH_MS = 60_000
_CLOCK_MS = 2_000
_ZONE_MS = 900_000
"""Time zones differ by quarters of an hour; anything less is delay."""
_HEARTBEAT = b'{"kquota_heartbeat":'


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the log topic; `broker` is its header or key, as text."""

    value: bytes
    broker: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class _Range:
    """Offsets that a partition holds: from `first` up to, not including, `end`."""

    first: int
    end: int


def arrival_checks(
    settings: Settings,
    options: Mapping[str, str],
    brokers: Sequence[int],
    consumed: Mapping[int, Consumed] | None,
) -> list[Check]:
    """Read the last seconds of the topic and judge them.

    Args:
        settings: whose topic.
        options: connection properties as librdkafka spells them.
        brokers: ids of the cluster's brokers.
        consumed: what the tables hold of the topic, by partition; None before the first run.
    """
    from confluent_kafka import Consumer, KafkaException

    topic = settings.kafka.topic
    try:
        consumer = Consumer(
            {
                **options,
                "bootstrap.servers": settings.kafka.bootstrap_servers,
                "client.id": settings.kafka.client_id,
                "group.id": settings.kafka.client_id,  # required; no group is joined by assigning
                "enable.auto.commit": False,
            },
            logger=logging.Logger("kafka", logging.CRITICAL + 1),
        )
        try:
            ranges = _ranges(consumer, topic)
            checks = _expired(ranges, consumed)
            now_ms = time.time_ns() // 1_000_000
            messages = _last_messages(consumer, topic, ranges, now_ms)
        finally:
            consumer.close()
    except KafkaException as error:
        evidence = f"{topic} cannot be read ({error.args[0].name()})"
        return [fail("lines", evidence, "allow kafka.client_id's user to read and describe the topic")]
    if not messages:
        advice = "start kquota ship (or Filebeat, Fluent Bit) on the brokers"
        return [*checks, fail("lines", f"{topic} is empty", advice)]
    return checks + message_checks(messages, settings.broker.log_time_zone, brokers, now_ms)


def message_checks(
    messages: Sequence[Message], log_time_zone: str, brokers: Sequence[int], now_ms: int
) -> list[Check]:
    """Judge the newest messages of the topic (at least one)."""
    return [*_fresh(messages, now_ms), *_readable(messages, log_time_zone), _beats(messages, brokers, now_ms)]


def _ranges(consumer: Any, topic: str) -> dict[int, _Range]:
    from confluent_kafka import TopicPartition

    numbers = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
    places = {number: TopicPartition(topic, number) for number in sorted(numbers)}
    return {
        number: _Range(*consumer.get_watermark_offsets(place, timeout=_TIMEOUT_S))
        for number, place in places.items()
    }


def _expired(ranges: Mapping[int, _Range], consumed: Mapping[int, Consumed] | None) -> list[Check]:
    lost = {
        partition: offsets.first - consumed[partition].last_offset - 1
        for partition, offsets in ranges.items()
        if consumed and partition in consumed and offsets.first > consumed[partition].last_offset + 1
    }
    if not lost:
        return []
    where = ", ".join(f"partition {partition}: {count:,}" for partition, count in sorted(lost.items()))
    return [
        fail("ingest", f"lines expired before ingest read them ({where})", "raise retention.ms of the topic")
    ]


def _last_messages(consumer: Any, topic: str, ranges: Mapping[int, _Range], now_ms: int) -> list[Message]:
    """Messages of the last seconds; where there are none, the last one of each partition."""
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, number, now_ms - _LOOK_BACK_MS) for number in ranges]
    starts = [
        # A negative offset stands for the end: nothing is as young as that.
        place
        if place.offset >= 0
        else TopicPartition(topic, place.partition, ranges[place.partition].end - 1)
        for place in consumer.offsets_for_times(asked, timeout=_TIMEOUT_S)
        if ranges[place.partition].end > ranges[place.partition].first
    ]
    consumer.assign(starts)
    open_partitions = {place.partition for place in starts}
    messages: list[Message] = []
    deadline_s = time.monotonic() + _TIMEOUT_S
    while open_partitions and len(messages) < _MOST_MESSAGES and time.monotonic() < deadline_s:
        for message in consumer.consume(1_000, timeout=0.5):
            if message.error() is None:
                messages.append(Message(message.value() or b"", _broker(message), message.timestamp()[1]))
                if message.offset() + 1 >= ranges[message.partition()].end:
                    open_partitions.discard(message.partition())
    return messages


def _fresh(messages: Iterable[Message], now_ms: int) -> list[Check]:
    age_ms = now_ms - max(message.timestamp_ms for message in messages)
    evidence = f"the newest message is {max(age_ms, 0) / 1_000:.1f} s old"
    if age_ms > _FRESH_MS:
        advice = "are the shippers running? A broker without traffic still sends heartbeats"
        return [warn("lines", evidence, advice)]
    if age_ms < -_CLOCK_MS:
        evidence = f"the newest message is {-age_ms / 1_000:.1f} s ahead of this machine's clock"
        return [
            ok("lines", "lines arrive"),
            warn("clock", evidence, "set the clocks of brokers and this machine"),
        ]
    return [
        ok("lines", evidence),
        ok("clock", f"this machine and the newest message differ by {age_ms:,} ms"),
    ]


def _readable(messages: Iterable[Message], log_time_zone: str) -> list[Check]:
    parser = RequestLogParser(log_time_zone)
    read, reasons, offset_ms = 0, dict[str, int](), 0
    for message in messages:
        if message.value.startswith(_HEARTBEAT):
            continue
        try:
            request = parser.parse(message.value)
        except Unreadable as error:
            reasons[str(error)] = reasons.get(str(error), 0) + 1
        else:
            read += 1
            offset_ms = request.log_time_ms - message.timestamp_ms
    checks = []
    if abs(offset_ms) > _ZONE_MS:
        evidence = f"log times differ from Kafka's by {offset_ms / 3_600_000:+.2f} h"
        checks.append(fail("time zone", evidence, "set broker.log_time_zone to the zone of the brokers' log"))
    if not reasons:
        text = f"{read:,} recent lines can be read" if read else "no request line in the last seconds"
        return [*checks, ok("format", text)]
    reason = max(reasons, key=lambda text: reasons[text])
    evidence = f"{sum(reasons.values()):,} of {read + sum(reasons.values()):,} recent lines: {reason}"
    advice = "ship the file of kafka.request.logger as it is, one line a message"
    return [*checks, (warn if read else fail)("format", evidence, advice)]


def _beats(messages: Iterable[Message], brokers: Sequence[int], now_ms: int) -> Check:
    recent = [message for message in messages if message.timestamp_ms >= now_ms - 2 * _LOOK_BACK_MS]
    seen = {message.broker for message in recent if message.value.startswith(_HEARTBEAT)}
    silent = [str(broker) for broker in brokers if str(broker) not in seen]
    if silent:
        evidence = f"none in the last seconds from broker {', '.join(silent)}"
        advice = "seconds of a quiet broker then close late: start kquota ship there, or its heartbeat"
        return warn("heartbeats", evidence, advice)
    return ok("heartbeats", f"from broker {', '.join(map(str, brokers))}")


def _broker(message: Any) -> str:
    named = [value for name, value in message.headers() or () if name == "broker_id"]
    return ((named[0] if named else message.key()) or b"").decode("utf-8", "replace")
