"""The one place where clients of Kafka are made: librdkafka's, kafka-python's, and the options of Spark's Java client.

How each of the three logs in is worked out in `client_properties`. A new SASL mechanism is added there and here.
A client of librdkafka raises KafkaException where a property is wrong, e.g. a file of certificates is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from kquota_spark.errors import UserError
from kquota_spark.kafka.client_properties import connection_options, java_options
from kquota_spark.process.notices import without_debug

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

    from kquota_spark.config.settings import Kafka

_QUIET = {"log_level": 0}
"""librdkafka repeats a refused connection many times; our error says it once."""


def connection(bootstrap_servers: str, options: Mapping[str, str]) -> dict[str, Any]:
    """How a client of librdkafka connects; of the options, in Java's or its own spelling, only those for that count."""
    return {**connection_options(options), "bootstrap.servers": bootstrap_servers}


def producer(config: Mapping[str, Any]) -> Producer:
    """A producer of librdkafka; see `connection`."""
    from confluent_kafka import Producer

    return Producer({**_QUIET, **config})


def consumer(config: Mapping[str, Any]) -> Consumer:
    """A consumer of librdkafka, which needs a `group.id` even if it joins none; see `connection`."""
    from confluent_kafka import Consumer

    return Consumer({**_QUIET, **config})


def share_consumer(config: Mapping[str, Any]) -> Any:
    """A consumer of librdkafka in a share group (KIP-932); see `connection`."""
    from confluent_kafka import ShareConsumer

    return ShareConsumer({**_QUIET, **config})


def admin(config: Mapping[str, Any]) -> AdminClient:
    """A client of librdkafka for questions; it connects when asked. See `connection`."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({**_QUIET, **config})


@contextmanager
def kafka_errors(said: Callable[[KafkaError], UserError], *, unless: int | None = None) -> Iterator[None]:
    """Turn errors of librdkafka into ours.

    Args:
        said: our error for the reason that librdkafka gives.
        unless: the code of a reason that is no error here, e.g. `KafkaError.TOPIC_ALREADY_EXISTS`.
    """
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        reason = error.args[0]
        if unless is None or reason.code() != unless:
            raise said(reason) from error


def bad_options(name: str = "kafka.options") -> AbstractContextManager[None]:
    """`kafka_errors` while a client is made of properties that the user gave by this name."""
    return kafka_errors(lambda reason: UserError(f"{name}: {reason.str()}"))


@contextmanager
def python_errors(said: Callable[[Exception], UserError], *also: type[Exception]) -> Iterator[None]:
    """Turn errors of kafka-python, and `also` further ones that its answers may raise, into ours."""
    from kafka.errors import KafkaError

    try:
        yield
    except (KafkaError, OSError, *also) as error:
        raise said(error) from error


def spark_options(kafka: Kafka) -> dict[str, str]:
    """How Spark's Kafka source connects, as options of its reader.

    Raises:
        UserError: certificate and key are in two files.
    """
    java = {"bootstrap.servers": kafka.bootstrap_servers, "client.id": kafka.client_id}
    return {f"kafka.{name}": value for name, value in (java | java_options(kafka.options)).items()}


def python_admin(**options: Any) -> Any:
    """A `KafkaAdminClient` of kafka-python, with one defect of its network layer mended; its errors are its own.

    The options are in kafka-python's words, see `client_properties.python_options`.
    """
    from kafka import KafkaAdminClient
    from kafka.net import transport

    for kind in (transport.KafkaTCPTransport, transport.KafkaSSLTransport):
        if not hasattr(kind._sock_recv, "is_mended"):
            kind._sock_recv = _mended(kind._sock_recv)
    without_debug("kafka")  # there it shows all options, the password too
    return KafkaAdminClient(**options)


def _mended(receive: Callable[[Any], tuple[bytes, Exception | None]]) -> Callable[[Any], Any]:
    """kafka-python 3.0.12 throws away what came together with the end of a connection.

    A broker ends the connection right after it has refused a login. On a busy machine both are there at once, and the
    refusal looked like a broker that does not answer. What was received is given first; the next call finds the end.
    """

    def received(self: Any) -> tuple[bytes, Exception | None]:
        data, error = receive(self)
        return data, None if data else error

    received.is_mended = True  # type: ignore[attr-defined]
    return received
