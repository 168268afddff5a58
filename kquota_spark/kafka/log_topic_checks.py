"""Checks of what arrives in the log topics right now: readable lines, heartbeats, and the clocks behind them.

confluent-kafka reads the topics: shippers compress, and kafka-python needs a further package for each codec.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from kquota_spark.config.settings import Broker, Settings
from kquota_spark.formats.messages.messages import HEARTBEAT, LogMessages
from kquota_spark.formats.request_log.line import RequestLogParser, Unreadable
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.kafka.log_messages import Place, named_broker
from kquota_spark.kafka.questions import message_format
from kquota_spark.process.check import Check, fail, ok, warn
from kquota_spark.process.clock import now_ms

_TIMEOUT_S = 5.0
_LOOKBACK_MS = 5_000
_MOST_MESSAGES = 20_000
_FRESH_MS = 60_000
_CLOCK_MS = 2_000
_ZONE_MS = 900_000
"""Least difference, ms, that is a wrong time zone: zones differ by quarters of an hour, anything less is delay."""


class Consumed(NamedTuple):
    """How far INGEST has read one partition."""

    last_offset: int
    last_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a log topic; `named` is its header or key, if the settings use that for the broker."""

    value: bytes
    named: bytes | None
    timestamp_ms: int
    topic: str = ""


def arrival_checks(
    settings: Settings,
    topics: Sequence[str],
    connection: Mapping[str, Any],
    brokers: Sequence[int],
    consumed: Mapping[Place, Consumed] | None,
) -> list[Check]:
    """Read and judge the last seconds of topics that exist, through librdkafka.

    Args:
        settings: message formats, settings of the brokers, the client id.
        topics: topics that exist.
        connection: properties of librdkafka.
        brokers: ids of all brokers of the cluster.
        consumed: how far the tables hold them, by topic and partition; None before the first run.
    """
    from confluent_kafka import KafkaException

    shown = ", ".join(topics)
    try:
        # A group is required; none is joined by assigning.
        own = {"client.id": settings.kafka.client_id, "group.id": settings.kafka.client_id}
        with closing(kafka_clients.consumer({**connection, **own, "enable.auto.commit": False})) as consumer:
            ranges = _ranges(consumer, topics)
            checks = _expired(ranges, consumed)
            read_at_ms = now_ms()
            messages = _last_messages(consumer, settings.kafka.broker_from, ranges, read_at_ms)
    except KafkaException as error:
        evidence = f"{shown} cannot be read ({error.args[0].name()})"
        return [fail("lines", evidence, f"grant Read on {shown} to the user of kafka.options")]
    if not messages:
        advice = "start kquota ship (or Filebeat, Fluent Bit) on the brokers"
        return [*checks, fail("lines", f"{shown} is empty", advice)]
    reader = LogMessages(message_format(settings))
    return checks + message_checks(messages, reader, settings.broker, brokers, read_at_ms)


def message_checks(
    messages: Sequence[Message], reader: LogMessages, of: Broker, brokers: Sequence[int], now_ms: int
) -> list[Check]:
    """Judge the newest messages of the topics.

    Args:
        messages: at least one.
        reader: finds line and broker in a message.
        of: settings of the brokers.
        brokers: ids of all brokers of the cluster.
        now_ms: when the messages were read, epoch ms.
    """
    checks = _fresh(messages, now_ms) + _readable(messages, reader, of)
    return [*checks, _beats(messages, reader, brokers, now_ms)]


def _ranges(consumer: Any, topics: Sequence[str]) -> dict[Place, range]:
    """The offsets that each partition holds."""
    from confluent_kafka import TopicPartition

    places = [
        (topic, number)
        for topic in topics
        for number in sorted(consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions)
    ]
    return {
        place: range(*consumer.get_watermark_offsets(TopicPartition(*place), timeout=_TIMEOUT_S))
        for place in places
    }


def _expired(ranges: Mapping[Place, range], consumed: Mapping[Place, Consumed] | None) -> list[Check]:
    lost = {
        place: offsets.start - consumed[place].last_offset - 1
        for place, offsets in ranges.items()
        if consumed and place in consumed and offsets.start > consumed[place].last_offset + 1
    }
    if not lost:
        return []
    where = ", ".join(f"{topic} partition {number}: {count:,}" for (topic, number), count in lost.items())
    evidence = f"lines expired before the audit read them ({where})"
    return [fail("ingest", evidence, "raise retention.ms of the topic")]


def _last_messages(
    consumer: Any, broker_from: Sequence[str], ranges: Mapping[Place, range], now_ms: int
) -> list[Message]:
    """The messages of the last seconds; for a partition without one, its last message."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    asked = [TopicPartition(*place, now_ms - _LOOKBACK_MS) for place in ranges]
    starts = []
    for found in consumer.offsets_for_times(asked, timeout=_TIMEOUT_S):
        offsets = ranges[found.topic, found.partition]
        if offsets:
            # A negative offset means the end: the partition has no message that new.
            offset = found.offset if found.offset >= 0 else offsets[-1]
            starts.append(TopicPartition(found.topic, found.partition, offset))
    consumer.assign(starts)
    still_open = {(place.topic, place.partition) for place in starts}
    messages: list[Message] = []
    deadline_s = time.monotonic() + _TIMEOUT_S
    while still_open and len(messages) < _MOST_MESSAGES and time.monotonic() < deadline_s:
        for message in consumer.consume(1_000, timeout=0.5):
            error = message.error()
            if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise KafkaException(error)
            if error is None:
                place = message.topic(), message.partition()
                named, time_ms = named_broker(message, broker_from), message.timestamp()[1]
                messages.append(Message(message.value() or b"", named, time_ms, place[0]))
                if message.offset() >= ranges[place][-1]:
                    still_open.discard(place)
    return messages


def _fresh(messages: Iterable[Message], now_ms: int) -> list[Check]:
    age_ms = now_ms - max(message.timestamp_ms for message in messages)
    evidence = f"the newest message is {max(age_ms, 0) / 1_000:.1f} s old"
    if age_ms > _FRESH_MS:
        advice = "are the shippers running? A broker without traffic still sends heartbeats"
        return [warn("lines", evidence, advice)]
    if age_ms < -_CLOCK_MS:
        evidence = f"the newest message is {-age_ms / 1_000:.1f} s ahead of this machine's clock"
        advice = "set the clocks of brokers and this machine"
        return [ok("lines", "lines arrive"), warn("clock", evidence, advice)]
    differ = f"this machine and the newest message differ by {age_ms:,} ms"
    return [ok("lines", evidence), ok("clock", differ)]


def _readable(messages: Iterable[Message], reader: LogMessages, of: Broker) -> list[Check]:
    parser = RequestLogParser(of.log_time_zone)
    parsers = {broker_id: RequestLogParser(zone) for broker_id, zone in of.zones_by_broker.items()}
    read, reasons, offset_ms = 0, dict[str, int](), 0
    for message in messages:
        if message.value.startswith(HEARTBEAT):
            continue
        try:
            line, fields = reader.opened(message.value)
            broker_id = reader.broker_id(message.named, fields, message.topic)
            if broker_id is None:
                raise Unreadable(reader.no_broker)
            request = parsers.get(broker_id, parser).parse(line, message.timestamp_ms)
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
    advice = "ship kafka.request.logger's file, one line a message, in an envelope of kafka.envelope or none"
    if reason == reader.no_broker:
        advice = "let the shipper say the broker, or set kafka.broker_from and kafka.broker_ids"
    return [*checks, (warn if read else fail)("format", evidence, advice)]


def _beats(messages: Iterable[Message], reader: LogMessages, brokers: Sequence[int], now_ms: int) -> Check:
    seen = {
        reader.broker_id(message.named, {}, message.topic)
        for message in messages
        if message.timestamp_ms >= now_ms - 2 * _LOOKBACK_MS and message.value.startswith(HEARTBEAT)
    }
    silent = [str(broker) for broker in brokers if broker not in seen]
    if silent:
        evidence = f"none in the last seconds from broker {', '.join(silent)}"
        advice = "seconds of a quiet broker then close late: start kquota ship there, or its heartbeat"
        return warn("heartbeats", evidence, advice)
    return ok("heartbeats", f"from broker {', '.join(map(str, brokers))}")
