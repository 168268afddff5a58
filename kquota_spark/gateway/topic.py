"""The compacted Kafka topic of decisions: created if it is missing, and read from its beginning."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from kquota_spark.config.own_clients import DECISIONS, enforcer_options
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.kafka import clients as kafka_clients

ANSWER_WITHIN_S = 15.0
_MOST_REPLICAS = 3
_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    # The time of a tombstone is when it was issued.
    "message.timestamp.type": "CreateTime",
    # Only closed segments are compacted, so a reader starts with at most a few hours of heartbeats.
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Connection:
    """The address, topic and login; the options have Java's or librdkafka's names."""

    bootstrap_servers: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    login: str = "kafka.options"
    """Name of the options in errors."""

    @classmethod
    def of(cls, settings: Settings) -> Connection:
        """The connection in the settings.

        Raises:
            UserError: the settings have no topic.
        """
        topic = settings.enforcement.decision_topic
        if not topic:
            raise UserError(
                "enforcement.decision_topic: not set, expected the name of a topic, e.g. kquota.decisions"
            )
        kafka = settings.kafka
        return cls(kafka.bootstrap_servers, topic, kafka.options, enforcer_options(settings))

    @property
    def name(self) -> str:
        """The topic and its address, for messages."""
        return f"topic {self.topic} on {self.bootstrap_servers}"

    @property
    def client(self) -> dict[str, Any]:
        """Client properties for all clients of the topic."""
        return kafka_clients.connection(self.bootstrap_servers, self.options) | {"client.id": DECISIONS}

    def errors(self, use: str, operation: str, *, unless: int | None = None) -> AbstractContextManager[None]:
        """Turn Kafka errors into `UnreachableError`: the topic cannot be "read" or "used". See `kafka_errors`."""
        return kafka_clients.kafka_errors(
            lambda reason: UnreachableError(f"{self.name} cannot be {use}: {self.reason(reason, operation)}"),
            unless=unless,
        )

    def reason(self, reason: KafkaError, operation: str) -> str:
        """The message of the broker, and the right to grant if this operation on the topic is not allowed."""
        advice = kafka_clients.missing_right(
            reason, self.login, topic=f"{operation} on the topic {self.topic}"
        )
        return f"{reason.str()}: {advice}" if advice else reason.str()


class Record(NamedTuple):
    """One message of the topic."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class TopicReader:
    """Reads the topic from its beginning, then new messages; it is in no consumer group.

    Raises:
        UserError: the options are not valid, e.g. a file of certificates is missing.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._part = TopicPartition(connection.topic, 0, 0)
        self._next = 0
        self.last_error = ""
        """The last error of the connection; empty after the next successful read."""
        with kafka_clients.bad_options():
            self._consumer = kafka_clients.consumer(
                {
                    **connection.client,
                    "group.id": DECISIONS,  # librdkafka requires one; nothing is committed to it
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                    "error_cb": self._hear,
                }
            )
        self._consumer.assign([self._part])

    def read_on(self, timeout_s: float) -> list[Record]:
        """The new messages; none if there are none within `timeout_s`.

        Raises:
            UnreachableError: Kafka reports that the topic cannot be read.
        """
        records = []
        problem = ""
        with self._connection.errors("read", "Read"):
            messages = self._consumer.consume(_BATCH, timeout_s)
        for message in messages:
            found = message.error()
            if found is None:
                records.append(Record(message.key(), message.value(), message.timestamp()[1]))
            elif kafka_clients.is_of_group(found):
                continue
            elif found.code() != KafkaError._PARTITION_EOF:
                problem = self._connection.reason(found, "Read")
                continue
            self._next = max(self._next, (message.offset() or 0) + (found is None))
            self.last_error = ""
        if problem and not records:
            raise UnreachableError(f"{self._connection.name} cannot be read: {problem}")
        return records

    def read_through(self) -> list[Record]:
        """The new messages up to the present end of the topic.

        Raises:
            UnreachableError: Kafka does not answer in time.
            UserError: the topic was deleted and recreated.
        """
        name = self._connection.name
        with self._connection.errors("read", "Read"):
            _, end = self._consumer.get_watermark_offsets(self._part, timeout=ANSWER_WITHIN_S)
        if end < self._next:
            raise UserError(
                f"{name} was deleted and created again meanwhile: start again, from its beginning"
            )
        records: list[Record] = []
        deadline_s = time.monotonic() + ANSWER_WITHIN_S
        while self._next < end:
            if time.monotonic() > deadline_s:
                raise UnreachableError(f"{name} was not read to its end within {ANSWER_WITHIN_S:g} s")
            if found := self.read_on(0.1):
                records += found
                deadline_s = time.monotonic() + ANSWER_WITHIN_S
        return records

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _hear(self, error: KafkaError) -> None:
        # The reason is more useful than the fact that all brokers are down.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.last_error:
            self.last_error = f"{self._connection.name} cannot be read: {error.str()}"


def ensure_topic(connection: Connection) -> None:
    """Create the topic, compacted and with one partition, if there is none.

    Raises:
        UserError: it exists but is not compacted or has several partitions, or we may not create it.
        UnreachableError: Kafka does not answer.
    """
    admin = kafka_clients.admin(connection.client)
    with connection.errors("used", "Read"):
        cluster = admin.list_topics(timeout=ANSWER_WITHIN_S)
    found = cluster.topics.get(connection.topic)
    if found is None:
        replicas = min(_MOST_REPLICAS, len(cluster.brokers))
        topic = NewTopic(connection.topic, 1, replicas, config=_TOPIC_CONFIG)
        with connection.errors("used", "Create", unless=KafkaError.TOPIC_ALREADY_EXISTS):
            admin.create_topics([topic])[connection.topic].result(ANSWER_WITHIN_S)
        return
    resource = ConfigResource(ResourceType.TOPIC, connection.topic)
    with connection.errors("used", "DescribeConfigs"):
        config = admin.describe_configs([resource])[resource].result(ANSWER_WITHIN_S)
    policy = config["cleanup.policy"].value
    if policy != "compact":
        raise UserError(
            f"{connection.name}: cleanup.policy is {policy}, expected compact: decisions would be lost"
        )
    if len(found.partitions) != 1:
        # A heartbeat guarantees all messages before it, and only one partition has an order.
        raise UserError(f"{connection.name} has {len(found.partitions)} partitions, expected 1")
