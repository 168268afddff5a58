"""Write the quotas in force to the decision topic where it differs from them, and the heartbeat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from confluent_kafka import KafkaError

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import LogEntry
from kquota_spark.errors import UnreachableError
from kquota_spark.gateway.messages import (
    Encoded,
    Heartbeat,
    decided,
    differences,
    encode,
    newest_issue_ms,
)
from kquota_spark.gateway.topic import ANSWER_WITHIN_S, Connection, TopicReader, ensure_topic
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.model.quotas.rules import RuleBook, is_ahead
from kquota_spark.quotas.stored import stored_rules


def heartbeat(known_through_ms: int | None, now_ms: int, issued_ms: int) -> Heartbeat | None:
    """The heartbeat with the age of the quotas for gates; None if the age is unknown, or from a wrong clock.

    Args:
        known_through_ms: time up to which `quota_rules` is known, epoch ms.
        now_ms: this clock, epoch ms.
        issued_ms: time of issue of the message, epoch ms.
    """
    if known_through_ms is None or is_ahead(known_through_ms, now_ms):
        return None
    return Heartbeat(min(known_through_ms, now_ms), issued_ms)


class DecisionPublisher:
    """Keeps the topic equal to the quotas in force; only one publisher acts at a time, as in all of enforcement.

    Raises:
        UserError: no topic is set, or its configuration is wrong.
        UnreachableError: Kafka does not answer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection = Connection.of(settings)
        ensure_topic(self._connection)
        self._reader = TopicReader(self._connection)
        self._producer = kafka_clients.producer(
            {**self._connection.client, "enable.idempotence": True, "acks": "all"}
        )
        self._held: dict[bytes, bytes | None] = {}
        self._newest_ms = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The next publisher finds unacknowledged messages missing.
        self._reader.close()
        self._producer.purge()
        self._producer.flush(ANSWER_WITHIN_S)

    def publish(self, log: Iterable[LogEntry], now_ms: int) -> int:
        """Write the messages that the topic does not have yet, then the heartbeat.

        Args:
            log: `enforcement_log` of the cluster, oldest first.
            now_ms: the wall clock, epoch ms.

        Returns:
            The number of messages, without the heartbeat.

        Raises:
            UserError: the table of quotas or Kafka cannot be used.
        """
        cluster_id = self._settings.cluster_id
        rules = stored_rules(self._settings)
        new = {record.key or b"": record.value for record in self._reader.read_through()}
        self._held |= new
        # Readers drop a message issued before the one they have, so the time of issue never decreases, even if our
        # clock is set back.
        self._newest_ms = max(now_ms, self._newest_ms, newest_issue_ms(cluster_id, new, now_ms))
        wanted = decided(RuleBook(rules.periods), log, now_ms)
        messages = differences(cluster_id, self._held, wanted, self._newest_ms)
        self._send(messages)
        beat = heartbeat(rules.known_through_ms, now_ms, self._newest_ms)
        if beat is not None:
            self._send([encode(cluster_id, beat)])
        return len(messages)

    def _send(self, messages: Sequence[Encoded]) -> None:
        """Write messages and wait until they are acknowledged: a later heartbeat guarantees that they are in."""
        failed: list[str] = []

        def on_delivery(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failed.append(self._connection.reason(error, "Write"))

        for message in messages:
            while True:
                try:
                    self._producer.produce(
                        self._connection.topic,
                        message.value,
                        message.key,
                        timestamp=self._newest_ms,
                        on_delivery=on_delivery,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        left = self._producer.flush(ANSWER_WITHIN_S)
        if failed or left:
            why = failed[0] if failed else f"no answer within {ANSWER_WITHIN_S:g} s"
            raise UnreachableError(f"{self._connection.name} takes no messages: {why}")
