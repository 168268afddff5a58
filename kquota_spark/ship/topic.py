"""The Kafka topic that request logs are shipped to, behind one producer that loses nothing silently.

A `Delivery` waits as long as Kafka takes, reports that once per minute, and ends when it is asked to stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from kquota_spark.errors import UserError
from kquota_spark.kafka import clients as kafka_clients

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Headers = list[tuple[str, str | bytes | None]]

ANSWER_WITHIN_S = 10.0
_SLICE_S = 0.5
_SILENT_S = 5.0
_WARN_EVERY_S = 60.0
_STOP_GRACE_S = 10.0

_DEFAULTS: dict[str, Any] = {
    "linger.ms": 50,
    "compression.type": "lz4",
    # Holds more than a round of the shipper. Lines that do not fit wait in the log.
    "queue.buffering.max.kbytes": 65_536,
    "queue.buffering.max.messages": 200_000,
    # The same broker id in the same partition as with the Java client.
    "partitioner": "murmur2_random",
}
_FIXED: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    # A message waits for Kafka as long as necessary: giving it up would lose a line.
    "message.timeout.ms": 0,
    "delivery.report.only.error": True,
}
_SAME_AS_FIXED = {"acks": {"all", "-1"}, "enable.idempotence": {"true"}, "message.timeout.ms": {"0"}}
# Sending these again would fail again.
_FINAL = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic to 1048588 or more",
    KafkaError.INVALID_RECORD: "its message format must be 2.0 or later",
    KafkaError.INVALID_TIMESTAMP: "set message.timestamp.type=LogAppendTime on the topic, or the clock",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "its message format must be 2.0 or later",
}
_DEFAULT_MESSAGE_MAX_BYTES = 1_000_000
# Key, headers and framing count as well.
_MESSAGE_OVERHEAD_BYTES = 1_000


class KafkaUnreachableError(UserError):
    """Kafka did not answer in time."""


class DeliveryFailedError(Exception):
    """A message may not have arrived; all since the last acknowledgement must be sent again."""


class GaveUpError(Exception):
    """Asked to stop while Kafka does not answer; unacknowledged messages are sent again at the next start."""


class Topic(Protocol):
    """The destination of lines."""

    name: str
    """The topic and its address, for messages."""
    line_limit_bytes: int
    """Maximum length of a value."""
    last_error: str
    """The last error of the connection; empty if there was none."""

    def send(self, values: Sequence[bytes], *, key: bytes, headers: Headers) -> int:
        """Hand over values in this order.

        Returns:
            How many were taken; fewer than all if the queue is full.

        Raises:
            DeliveryFailedError: a message sent earlier did not arrive.
            UserError: a message sent earlier did not arrive and never will.
        """

    def unacknowledged(self, timeout_s: float) -> int:
        """Number of unacknowledged messages: returns as soon as it is 0, otherwise after the timeout.

        Raises:
            DeliveryFailedError: a message sent earlier did not arrive.
            UserError: a message sent earlier did not arrive and never will.
        """

    def close(self) -> None:
        """Give up messages that are not acknowledged."""


class KafkaTopic:
    """A `Topic` behind one idempotent producer.

    Args:
        bootstrap_servers: as Kafka writes it, `HOST:PORT,...`.
        topic: must exist; it is never created.
        client_id: the producer's client id.
        options: further properties of the producer.
        timeout_s: longest wait for Kafka's answer, s; None is `ANSWER_WITHIN_S`.
        options_name: name of the properties in errors.

    Raises:
        UserError: a bad property, no such topic, or no permission.
        KafkaUnreachableError: no answer in time.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        client_id: str,
        options: Mapping[str, str],
        timeout_s: float | None = None,
        options_name: str = "ship.options",
    ) -> None:
        for key, right in _SAME_AS_FIXED.items():
            if key in options and options[key].lower() not in right:
                problem = f"{options[key]!r} could lose lines, expected {min(right)}: remove it"
                raise UserError(f"{options_name}.{key}: {problem}")
        self._topic, self._where = topic, bootstrap_servers
        self._options, self._options_name, self._is_refused = options, options_name, False
        self.name = f"topic {topic} on {bootstrap_servers}"
        self.last_error = ""
        self._failed: KafkaError | None = None
        self._is_closed = False
        limit = options.get("message.max.bytes", "")
        limit_bytes = int(limit) if limit.isdigit() else _DEFAULT_MESSAGE_MAX_BYTES
        self.line_limit_bytes = max(1, limit_bytes - _MESSAGE_OVERHEAD_BYTES)
        config = {
            **_DEFAULTS,
            **options,
            **_FIXED,
            **kafka_clients.connection(bootstrap_servers, options),
            "client.id": client_id,
            "error_cb": self._on_error,
        }

        def unusable(reason: KafkaError) -> UserError:
            # A missing right to be idempotent may already be reported when the client is created.
            return UserError(f"{options_name}: {self._reason(reason)}")

        with kafka_clients.kafka_errors(unusable):
            self._check(kafka_clients.admin(config), ANSWER_WITHIN_S if timeout_s is None else timeout_s)
            self._producer = kafka_clients.producer({**config, "on_delivery": self._on_failed_delivery})

    def send(self, values: Sequence[bytes], *, key: bytes, headers: Headers) -> int:
        """Hand over values in this order; see `Topic.send`."""
        produce, topic = self._producer.produce, self._topic
        taken = 0
        try:
            for value in values:
                produce(topic, value, key, headers=headers)
                taken += 1
        except BufferError:
            pass
        except KafkaException as error:
            self._failed = error.args[0]
        self._producer.poll(0)
        self._raise_failure()
        return taken

    def unacknowledged(self, timeout_s: float) -> int:
        """Number of unacknowledged messages; see `Topic.unacknowledged`."""
        left = int(self._producer.flush(timeout_s))
        self._raise_failure()
        return left

    def close(self) -> None:
        """Give up messages that are not acknowledged."""
        if not self._is_closed:
            self._is_closed = True
            self._producer.purge()
            self._producer.close()

    def _raise_failure(self) -> None:
        failed = self._failed
        if failed is None:
            return
        if failed.code() in _FINAL:
            raise UserError(f"{self.name} refuses a message: {failed.str()}; {_FINAL[failed.code()]}")
        raise DeliveryFailedError(self._reason(failed))

    def _check(self, admin: AdminClient, timeout_s: float) -> None:
        """Check that the topic exists. A producer's own query would create it where brokers allow that."""

        def refused(reason: KafkaError) -> UserError:
            admin.poll(0)  # fetches the errors of the connection
            if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                create = (
                    f"kafka-topics.sh --create --bootstrap-server {self._where} --topic {self._topic} "
                    "--config message.timestamp.type=LogAppendTime"
                )
                return UserError(
                    f"topic {self._topic} does not exist on {self._where}: create it, e.g. {create}"
                )
            if self._is_refused:
                login = kafka_clients.refused_login(self._where, self._options, self._options_name)
                return KafkaUnreachableError(str(login))
            if reason.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                why = f": {self.last_error}" if self.last_error else ""
                return KafkaUnreachableError(
                    f"Kafka at {self._where} does not answer within {timeout_s:g} s{why}; check the address"
                )
            return UserError(f"topic {self._topic} on {self._where} cannot be used: {self._reason(reason)}")

        with kafka_clients.kafka_errors(refused):
            # The query itself fails if the broker has already refused the client the right to be idempotent.
            described = admin.describe_topics(TopicCollection([self._topic]), request_timeout=timeout_s)
            described[self._topic].result()

    def _reason(self, reason: KafkaError) -> str:
        topic = f"Write on the topic {self._topic}"
        advice = kafka_clients.missing_right(reason, self._options_name, topic=topic)
        return f"{reason.str()}: {advice}" if advice else reason.str()

    def _on_error(self, error: KafkaError) -> None:
        self._is_refused |= error.code() == KafkaError._AUTHENTICATION
        # "All brokers are down" is less useful than the reason.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.last_error:
            self.last_error = error.str()

    def _on_failed_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is not None and self._failed is None:
            self._failed = error


class Delivery:
    """Sends through a topic, however long Kafka is away. The topic's queue bounds how much waits.

    Args:
        connect: opens the topic; called again after messages failed.
        warn: takes one line for the operator.
        elapsed_s: a monotonic clock, s.
    """

    def __init__(
        self,
        connect: Callable[[], Topic],
        *,
        warn: Callable[[str], None],
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect, self._warn, self._elapsed_s = connect, warn, elapsed_s
        self._stop = threading.Event()
        self._stuck_since_s: float | None = None
        self._stop_seen_s: float | None = None
        self._warned_s = -_WARN_EVERY_S
        self.topic = connect()

    def begin(self, stop: threading.Event) -> None:
        """From now on, stop waiting `_STOP_GRACE_S` after `stop` is set."""
        self._stop, self._stop_seen_s = stop, None

    def send(self, values: Sequence[bytes], *, key: bytes, headers: Headers) -> None:
        """Hand over all values; waits while the queue is full.

        Raises:
            DeliveryFailedError: a message did not arrive: call `reconnect`, and send again.
            GaveUpError: asked to stop meanwhile.
            UserError: Kafka will never accept a message.
        """
        taken = self.topic.send(values, key=key, headers=headers)
        while taken < len(values):
            before = self.topic.unacknowledged(0.0)
            left = self.topic.unacknowledged(_SLICE_S)
            self._waited(has_moved=left < before)
            taken += self.topic.send(values[taken:], key=key, headers=headers)

    def wait(self) -> None:
        """Wait until everything is acknowledged; the errors are those of `send`."""
        before = 0
        while left := self.topic.unacknowledged(_SLICE_S):
            self._waited(has_moved=left < before)
            before = left
        self._stuck_since_s = None

    def reconnect(self, why: str) -> None:
        """Open the topic again after a failure; the errors are those of `send`."""
        self._warn_sometimes(f"{self.topic.name}: {why}; sending again what is not acknowledged")
        self.topic.close()
        while True:
            self._end_if_asked()
            self._stop.wait(_SLICE_S)
            try:
                self.topic = self._connect()
            except KafkaUnreachableError as error:
                self._warn_sometimes(f"{error}; retrying")
            else:
                self._stuck_since_s = None
                return

    def _waited(self, *, has_moved: bool) -> None:
        """Warn if no message was acknowledged for `_SILENT_S`; end if asked to stop."""
        now_s = self._elapsed_s()
        if has_moved or self._stuck_since_s is None:
            self._stuck_since_s = now_s
        if now_s - self._stuck_since_s >= _SILENT_S:
            why = f": {self.topic.last_error}" if self.topic.last_error else ""
            self._warn_sometimes(f"{self.topic.name} takes no messages{why}; retrying, nothing is lost")
        self._end_if_asked()

    def _end_if_asked(self) -> None:
        if not self._stop.is_set():
            return
        now_s = self._elapsed_s()
        if self._stop_seen_s is None:
            self._stop_seen_s = now_s
        if now_s - self._stop_seen_s >= _STOP_GRACE_S:
            msg = f"{self.topic.name} did not acknowledge the last lines; the next start sends them again"
            raise GaveUpError(msg)

    def _warn_sometimes(self, message: str) -> None:
        now_s = self._elapsed_s()
        if now_s - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = now_s
            self._warn(message)
