"""Reads messages of the log topics at known offsets, with librdkafka and without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.messages.messages import HEADER
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.kafka.client_properties import is_for_java_only
from kquota_spark.process.listeners import require_listener

if TYPE_CHECKING:
    from confluent_kafka import Consumer

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""
Offsets = tuple[int, int]
"""The first and the last offset of a run of messages."""
MOST_MESSAGES = 1_000_000
"""Maximum number of messages that are read; it takes about ten seconds."""
_NEAR = 5_000
"""Offsets between two runs up to which the messages between them are read too: faster than a new start."""
_TIMEOUT_S = 10.0
_AT_ONCE = 1_000


class LogMessage(NamedTuple):
    """One message of a log topic; `broker` is its header or key, if the settings use that for the broker."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes
    broker: bytes | None


class UnreadError(Exception):
    """The topic does not have the messages any more, or cannot be read; the message has the reason."""


def messages_at(settings: Settings, wanted: Mapping[Place, Sequence[Offsets]]) -> list[LogMessage]:
    """All messages of some runs of offsets, in order of topic, partition and offset; some between may be there too.

    Args:
        settings: address and login of Kafka.
        wanted: the runs by partition, in any order.

    Raises:
        UnreadError: Kafka does not answer, the login may not read the topic, or it begins after a wanted offset.
    """
    count = sum(last - first + 1 for of_place in wanted.values() for first, last in _joined(of_place))
    if count > MOST_MESSAGES:
        raise UnreadError(f"{count:,} messages are too many to read, at most {MOST_MESSAGES:,}")
    return list(each_message_at(settings, wanted))


def each_message_at(settings: Settings, wanted: Mapping[Place, Sequence[Offsets]]) -> Iterator[LogMessage]:
    """The messages of `messages_at` one after the other: any number of them, in little memory.

    Args:
        settings: address and login of Kafka.
        wanted: the runs by partition, in any order.

    Raises:
        UnreadError: as for `messages_at`.
    """
    broker_from = settings.kafka.broker_from
    with _consumer(settings) as consumer:
        for place in sorted(wanted):
            yield from _of_partition(consumer, broker_from, place, _joined(wanted[place]))


def runs_between(settings: Settings, from_ms: int, to_ms: int) -> dict[Place, list[Offsets]]:
    """The offsets of all messages of the log topics that Kafka stamped in a period, by partition.

    Args:
        settings: address and login of Kafka, and the topics.
        from_ms: beginning of the period, epoch ms.
        to_ms: its end, exclusive.

    Raises:
        UnreadError: Kafka does not answer, or the login may not read a topic.
    """
    from confluent_kafka import TopicPartition

    found: dict[Place, list[Offsets]] = {}
    with _consumer(settings) as consumer:
        existing = consumer.list_topics(timeout=_TIMEOUT_S).topics
        for topic in settings.kafka.log_topics(existing):
            if topic not in existing or not existing[topic].partitions:
                raise UnreadError(
                    f"topic {topic} does not exist, or the user of kafka.options may not read it"
                )
            for partition in existing[topic].partitions:
                bounds = [TopicPartition(topic, partition, time_ms) for time_ms in (from_ms, to_ms)]
                first, end = (
                    consumer.offsets_for_times([bound], timeout=_TIMEOUT_S)[0].offset for bound in bounds
                )
                if end < 0:
                    _, end = consumer.get_watermark_offsets(bounds[0], timeout=_TIMEOUT_S)
                if 0 <= first < end:
                    found[topic, partition] = [(first, end - 1)]
    return found


@contextmanager
def _consumer(settings: Settings) -> Iterator[Consumer]:
    """A consumer without a group; errors of Kafka in the block are an `UnreadError`."""
    from confluent_kafka import KafkaException

    kafka = settings.kafka
    if is_for_java_only(kafka.options):
        raise UnreadError("only Spark's Java client can use the login of kafka.options")
    try:
        require_listener("Kafka", kafka.bootstrap_servers, "kafka.bootstrap_servers")
        config = {
            **kafka_clients.connection(kafka.bootstrap_servers, kafka.options),
            "client.id": kafka.client_id,
            "group.id": kafka.client_id,  # required; none is joined by assigning
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
        with closing(kafka_clients.consumer(config)) as consumer:
            yield consumer
    except KafkaException as error:
        raise UnreadError(error.args[0].str()) from error
    except UserError as error:
        raise UnreadError(str(error)) from error


def named_broker(message: Any, broker_from: Sequence[str]) -> bytes | None:
    """The header or key that names the broker, in INGEST's order: the header first.

    Args:
        message: a message of librdkafka.
        broker_from: `kafka.broker_from`.
    """
    headers = [value for name, value in message.headers() or () if name == HEADER]
    given = {"header": headers[0] if headers else None, "key": message.key()}
    found = [given[source] for source in given if source in broker_from and given[source] is not None]
    return found[0] if found else None


def _joined(runs: Sequence[Offsets]) -> list[Offsets]:
    """The runs in order, with those that are near each other as one."""
    found: list[Offsets] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + _NEAR:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def _of_partition(
    consumer: Consumer, broker_from: Sequence[str], place: Place, runs: Sequence[Offsets]
) -> Iterator[LogMessage]:
    from confluent_kafka import TopicPartition

    topic, partition = place
    begin, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=_TIMEOUT_S)
    if runs[0][0] < begin:
        raise UnreadError(
            f"topic {topic}, partition {partition} begins at offset {begin:,}: older lines expired"
        )
    if runs[-1][1] >= end:
        raise UnreadError(f"topic {topic}, partition {partition} ends at offset {end:,}: it was created anew")
    for first, last in runs:
        for message in _from(consumer, TopicPartition(*place, first), last):
            named, time_ms = named_broker(message, broker_from), message.timestamp()[1]
            yield LogMessage(topic, partition, message.offset(), time_ms, message.value() or b"", named)


def _from(consumer: Consumer, start: Any, last: int) -> Iterator[Any]:
    """The messages from an offset through the last one."""
    from confluent_kafka import KafkaException

    consumer.assign([start])
    until_s = time.monotonic() + _TIMEOUT_S
    while True:
        found = consumer.consume(_AT_ONCE, timeout=0.5)
        for message in found:
            if message.error() is not None:
                raise KafkaException(message.error())
            if int(message.offset() or 0) <= last:
                yield message
        # Markers of transactions have offsets, but are no messages.
        [reached] = consumer.position([start])
        if reached.offset > last:
            return
        if found:
            until_s = time.monotonic() + _TIMEOUT_S
        elif time.monotonic() > until_s:
            raise UnreadError(f"topic {start.topic} sends nothing for {_TIMEOUT_S:.0f} s")
