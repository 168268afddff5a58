"""The one place where clients of Kafka are made: librdkafka's, kafka-python's, and the options of Spark's Java client.

How each of the three logs in is worked out in `client_properties`. A new SASL mechanism is added there and here.
A client of librdkafka raises KafkaException where a property is wrong, e.g. a file of certificates is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from kquota_spark.config.own_clients import ADMIN
from kquota_spark.errors import UserError
from kquota_spark.kafka.client_properties import connection_options, java_options
from kquota_spark.kafka.tokens import TokenSource, token_source
from kquota_spark.process.notices import without_debug

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

    from kquota_spark.config.settings import Kafka

_QUIET = {"log_level": 0}
"""librdkafka repeats a refused connection many times; our error says it once."""
_BOOTSTRAP_LOG = "kafka.net.manager"
_TOKENS = "oauth_cb"
"""What librdkafka asks for tokens."""


def connection(bootstrap_servers: str, options: Mapping[str, str]) -> dict[str, Any]:
    """How a client of librdkafka connects; of the options, in Java's or its own spelling, only those for that count.

    Raises:
        UserError: the options lack something of a login with tokens.
    """
    connected = {**connection_options(options), "bootstrap.servers": bootstrap_servers}
    source = token_source(bootstrap_servers, options)
    return connected if source is None else {**connected, _TOKENS: source}


def producer(config: Mapping[str, Any]) -> Producer:
    """A producer of librdkafka; see `connection`."""
    from confluent_kafka import Producer

    return Producer(_asked(config))


def consumer(config: Mapping[str, Any]) -> Consumer:
    """A consumer of librdkafka, which needs a `group.id` even if it joins none; see `connection`."""
    from confluent_kafka import Consumer

    return Consumer(_asked(config))


def share_consumer(config: Mapping[str, Any]) -> Any:
    """A consumer of librdkafka in a share group (KIP-932); see `connection`."""
    from confluent_kafka import ShareConsumer

    return ShareConsumer(_asked(config))


def admin(config: Mapping[str, Any]) -> AdminClient:
    """A client of librdkafka for questions; it connects when asked. See `connection`."""
    from confluent_kafka.admin import AdminClient

    return AdminClient(_asked(config))


def _asked(config: Mapping[str, Any]) -> dict[str, Any]:
    """With a client id of ours: `rdkafka` would be a client of nobody, and be judged as one of a user.

    A first token is fetched here: librdkafka would only say after ten seconds that it has none.
    """
    source: TokenSource | None = config.get(_TOKENS)
    if source is not None:
        source.token()
    return {**_QUIET, "client.id": ADMIN, **config}


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


def bad_options() -> AbstractContextManager[None]:
    """`kafka_errors` while a client is made of the user's `kafka.options`."""
    return kafka_errors(lambda reason: UserError(f"kafka.options: {reason.str()}"))


def is_of_group(reason: KafkaError) -> bool:
    """Whether it is only about the group that librdkafka wants a name of, asks for, and is never made to join."""
    from confluent_kafka import KafkaError

    return bool(reason.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def missing_right(reason: KafkaError, named: str, *, topic: str, transactional_id: str = "") -> str:
    """What to do where a broker says that a right is missing; empty where it gives another reason.

    Args:
        reason: the broker's.
        named: what gave the login.
        topic: the operation that was wanted, and the topic.
        transactional_id: of the producer, if it has one.
    """
    from confluent_kafka import KafkaError

    rights = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED: topic,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED: topic,  # an idempotent producer that may write to no topic
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"Write on the transactional id {transactional_id}",
    }
    right = rights.get(reason.code())
    return f"grant {right} to the user of {named}" if right else ""


def refused_login(bootstrap_servers: str, login: Mapping[str, str], named: str) -> UserError:
    """The error where brokers refuse a login; of a token they do not say why, so it shows what the token claims.

    Args:
        bootstrap_servers: who refused it.
        login: the client properties.
        named: what gave them.
    """
    source = token_source(bootstrap_servers, login)
    if source is None:
        return UserError(f"Kafka {bootstrap_servers} refused the login: check {named}")
    return UserError(
        f"Kafka {bootstrap_servers} refused the token ({source.claims}): compare it with what the brokers expect "
        f"(sasl.oauthbearer.expected.audience and .expected.issuer, their keys, their clocks) and check {named}"
    )


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


def python_admin(bootstrap_servers: str, login: Mapping[str, str], **options: Any) -> Any:
    """A `KafkaAdminClient` of kafka-python, with one defect of its network layer mended; its errors are its own.

    Args:
        bootstrap_servers: `host:port,host:port`.
        login: the client properties that `options` were made of; tokens are asked for by them.
        options: in kafka-python's words, see `client_properties.python_options`.

    Raises:
        UserError: there is no token for a login that needs one.
    """
    from kafka import KafkaAdminClient
    from kafka.net import transport
    from kafka.net.sasl.oauth import AbstractTokenProvider

    for kind in (transport.KafkaTCPTransport, transport.KafkaSSLTransport):
        if not hasattr(kind._sock_recv, "is_mended"):
            kind._sock_recv = _mended(kind._sock_recv)
    without_debug("kafka")  # there it shows all options, the password too
    source = token_source(bootstrap_servers, login)
    if source is not None:
        source.token()  # kafka-python would only say that nobody answers
        AbstractTokenProvider.register(TokenSource)
    servers = bootstrap_servers.split(",")
    return KafkaAdminClient(**options, bootstrap_servers=servers, sasl_oauth_token_provider=source)


@contextmanager
def overheard(final: type[Exception]) -> Iterator[list[Exception]]:
    """The errors that kafka-python only logs, oldest first, but for time limits; its log itself is kept quiet.

    It repeats itself, shows the password at DEBUG, and tries a refused login again until the time is up, which
    may lock the account: an error of the type `final` is raised inside it, from its own log line.
    """
    heard: list[Exception] = []

    def hear(record: logging.LogRecord) -> bool:
        found = [part for part in record.args or () if isinstance(part, Exception)]
        heard.extend(error for error in found if type(error).__name__ != "KafkaTimeoutError")
        if found and isinstance(found[0], final) and record.name == _BOOTSTRAP_LOG:
            raise found[0]
        return False

    handler = logging.Handler(logging.WARNING)
    handler.addFilter(hear)
    logger = logging.getLogger("kafka")
    before = logger.level, logger.propagate
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


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
