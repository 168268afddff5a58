"""The topic that holds the lease of clusters without ZooKeeper: one partition, and only its newest record counts.

Records are JSON, and their key is the cluster's id. They hold `holder`, `event` (acquired, alive, intent, released),
`since_ms` (start of the lease; null in its first record: that record's own time), the subject of an intent, and the
`command` of a person, if one took the lease. Times are the broker's (LogAppendTime).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.config.own_clients import ENFORCER, enforcer_options
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.kafka.questions import admin_client, asked_topics

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_TIMEOUT_S = 15.0
_LAST_RECORDS = 20
"""Offsets read from the end first. Each transaction ends in a marker, which has an offset; aborted ones as well."""
_CONFIG = {"cleanup.policy": "delete", "retention.ms": "86400000", "message.timestamp.type": "LogAppendTime"}


class LeaseRecord(NamedTuple):
    """The newest record of a holder; times in epoch ms."""

    offset: int
    holder: str
    event: str
    at_ms: int
    since_ms: int
    """When the holder took the lease."""
    command: str = ""
    """A person's command that took it; empty for the enforcer."""


class LeaseTopic:
    """Creates and reads `enforcement.lease_topic`.

    Raises:
        UserError: no name is set, or a client option of Kafka is invalid.
    """

    def __init__(self, settings: Settings) -> None:
        self.name = settings.enforcement.lease_topic
        if not self.name:
            raise UserError(
                "enforcement.lease_topic: empty, expected a name: with quotas.source: admin it decides who may act"
            )
        self._settings = settings
        self._is_there = False
        self._consumer: Any = None

    def ensure(self) -> None:
        """Create the topic if it is missing.

        Raises:
            UserError: Kafka does not answer or refuses, or the topic has more than one partition.
        """
        if self._is_there:
            return
        client = admin_client(self._settings)
        found = asked_topics(client, self._settings).get(self.name)
        if found is None:
            self._create(client)
        elif len(found.partitions) != 1:
            raise UserError(
                f"topic {self.name} has {len(found.partitions)} partitions, expected 1: the order of its records "
                "decides who may act: delete it, it is made again"
            )
        self._is_there = True

    def exists(self) -> bool:
        """Whether the topic exists.

        Raises:
            UserError: Kafka does not answer.
        """
        return self.name in asked_topics(admin_client(self._settings), self._settings)

    def newest(self) -> LeaseRecord | None:
        """The last committed record; None in an empty topic.

        Raises:
            UnreachableError: Kafka does not answer.
        """
        from confluent_kafka import TopicPartition

        consumer = self._opened()
        with kafka_clients.kafka_errors(self._closed_for):
            low, high = consumer.get_watermark_offsets(TopicPartition(self.name, 0), timeout=_TIMEOUT_S)
            return self._last(consumer, max(low, high - _LAST_RECORDS)) or self._last(consumer, low)

    def close(self) -> None:
        """End the connection."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _closed_for(self, reason: KafkaError) -> UnreachableError:
        self.close()
        return self.unreachable(reason, "Read")

    def unreachable(self, reason: KafkaError, operation: str) -> UnreachableError:
        """The error for the user after an operation on the topic failed; `operation` is the right that it needs."""
        login = enforcer_options(self._settings)
        advice = kafka_clients.missing_right(
            reason,
            login,
            topic=f"{operation} on the topic {self.name}",
            transactional_id=self.transactional_id,
        )
        return UnreachableError(
            f"topic {self.name} on {self._settings.kafka.bootstrap_servers} cannot be used ({reason.str()}): "
            f"{advice or f'check kafka.bootstrap_servers, {login} and the rights to the topic'}"
        )

    @property
    def transactional_id(self) -> str:
        """The transactional id that all holders use: Kafka fences all but the newest producer."""
        return f"kquota-enforcer-{self._settings.cluster_id}"

    def _create(self, client: Any) -> None:
        from confluent_kafka import KafkaError
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        topic = NewTopic(self.name, num_partitions=1, config=_CONFIG)
        with kafka_clients.kafka_errors(
            lambda reason: UserError(
                f"topic {self.name} is not there for us and cannot be made ({reason.str()}): grant Create "
                f"on the topic {self.name} to the user of {enforcer_options(self._settings)}, or "
                f"create it (kafka-topics.sh --create --topic {self.name} --partitions 1 --config "
                "message.timestamp.type=LogAppendTime)"
            ),
            unless=KafkaError.TOPIC_ALREADY_EXISTS,
        ):
            client.create_topics([topic], operation_timeout=_TIMEOUT_S)[self.name].result(_TIMEOUT_S)

    def _opened(self) -> Any:
        if self._consumer is None:
            kafka = self._settings.kafka
            properties = {
                **kafka_clients.connection(kafka.bootstrap_servers, kafka.options),
                "client.id": ENFORCER,
                "group.id": ENFORCER,  # required, but never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # A fetch reports the end only in its answer, which an empty topic delays by half a second by default.
                "fetch.wait.max.ms": 10,
                "isolation.level": "read_committed",
            }
            self._consumer = kafka_clients.consumer(properties)
        return self._consumer

    def _last(self, consumer: Any, offset: int) -> LeaseRecord | None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(self.name, 0, offset)])
        try:
            return _record_at_end(consumer)
        finally:
            # An assigned partition is fetched 100 times per second until the next query.
            consumer.unassign()


def _record_at_end(consumer: Any) -> LeaseRecord | None:
    """The last record of the assigned partition; None if it is empty."""
    from confluent_kafka import KafkaError, KafkaException

    last = None
    while True:
        message = consumer.poll(_TIMEOUT_S)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if message.error() is None:
            last = message
        elif message.error().code() == KafkaError._PARTITION_EOF:
            return None if last is None else _record(last)
        elif not kafka_clients.is_of_group(message.error()):
            raise KafkaException(message.error())


def _record(message: Any) -> LeaseRecord:
    at_ms = message.timestamp()[1]
    try:
        match json.loads(message.value() or b""):
            case {"holder": str(holder), "event": str(event), "since_ms": int() | None as since_ms, **rest}:
                command = str(rest.get("command", ""))
                return LeaseRecord(message.offset(), holder, event, at_ms, since_ms or at_ms, command)
    except ValueError:
        pass
    # Not a record of ours: it counts for an unknown holder, and expires like any other.
    return LeaseRecord(message.offset(), "unknown", "alive", at_ms, at_ms)
