"""The one place where clients of Kafka are made: librdkafka's, kafka-python's, and the options of Spark's Java client.

`client_properties` works out how each of the three logs in. A new SASL mechanism is added there and here.
A client of librdkafka raises KafkaException if a property is wrong, e.g. a file of certificates is missing.
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
"""librdkafka logs a refused connection many times; our error reports it once."""
_BOOTSTRAP_LOG = "kafka.net.manager"
_TOKENS = "oauth_cb"
"""The property with the source of tokens that librdkafka calls."""


def connection(bootstrap_servers: str, options: Mapping[str, str]) -> dict[str, Any]:
    """The connection properties of a librdkafka client, from options in Java's or its own spelling.

    Options that do not concern the connection are left out.

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
    """An admin client of librdkafka, which connects at its first query; see `connection`."""
    from confluent_kafka.admin import AdminClient

    return AdminClient(_asked(config))


def _asked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a client, with a client id of ours unless one is given.

    Without it the audit would judge librdkafka's default, `rdkafka`, like a client of a user. A first token is fetched
    here: librdkafka would report a missing one only after ten seconds.
    """
    source: TokenSource | None = config.get(_TOKENS)
    if source is not None:
        source.token()
    return {**_QUIET, "client.id": ADMIN, **config}


@contextmanager
def kafka_errors(error_of: Callable[[KafkaError], UserError], *, unless: int | None = None) -> Iterator[None]:
    """Turn errors of librdkafka into ours; the first argument makes ours from the reason that librdkafka gives.

    `unless` is the code of a reason that is not an error here, e.g. `KafkaError.TOPIC_ALREADY_EXISTS`.
    """
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        reason = error.args[0]
        if unless is None or reason.code() != unless:
            raise error_of(reason) from error


def bad_options() -> AbstractContextManager[None]:
    """`kafka_errors` for creating a client from the user's `kafka.options`."""
    return kafka_errors(lambda reason: UserError(f"kafka.options: {reason.str()}"))


def is_of_group(reason: KafkaError) -> bool:
    """Whether an error concerns only the consumer group, which librdkafka requires and queries but never joins here."""
    from confluent_kafka import KafkaError

    return bool(reason.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def missing_right(reason: KafkaError, named: str, *, topic: str, transactional_id: str = "") -> str:
    """Advice for the user if a broker refused for a missing right; empty for another reason.

    Args:
        reason: the broker's error.
        named: the key or option that gave the login, for the message.
        topic: the wanted right, e.g. `Read on the topic NAME`.
        transactional_id: of the producer; empty if it has none.
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
    """The error for a login that brokers refused.

    Brokers do not report why they refused a token, so the message shows the token's claims.

    Args:
        bootstrap_servers: the brokers that refused it, `host:port,host:port`.
        login: the client properties.
        named: the key or option that gave them, for the message.
    """
    source = token_source(bootstrap_servers, login)
    if source is None:
        return UserError(f"Kafka {bootstrap_servers} refused the login: check {named}")
    return UserError(
        f"Kafka {bootstrap_servers} refused the token ({source.claims}): compare it with what the brokers expect "
        f"(sasl.oauthbearer.expected.audience and .expected.issuer, their keys, their clocks) and check {named}"
    )


@contextmanager
def python_errors(error_of: Callable[[Exception], UserError], *also: type[Exception]) -> Iterator[None]:
    """Turn errors of kafka-python into ours, and those of the types `also`, which reading its answers may raise."""
    from kafka.errors import KafkaError

    try:
        yield
    except (KafkaError, OSError, *also) as error:
        raise error_of(error) from error


def spark_options(kafka: Kafka) -> dict[str, str]:
    """The connection options for the reader of Spark's Kafka source.

    Raises:
        UserError: certificate and key are in two files.
    """
    java = {"bootstrap.servers": kafka.bootstrap_servers, "client.id": kafka.client_id}
    return {f"kafka.{name}": value for name, value in (java | java_options(kafka.options)).items()}


def python_admin(bootstrap_servers: str, login: Mapping[str, str], **options: Any) -> Any:
    """A `KafkaAdminClient` of kafka-python, with one defect of its network layer mended; it raises its own errors.

    Args:
        bootstrap_servers: `host:port,host:port`.
        login: the client properties that `options` were made from; tokens are requested with them.
        options: under kafka-python's names, see `client_properties.python_options`.

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
        source.token()  # without a token, kafka-python would only report that no broker answers
        AbstractTokenProvider.register(TokenSource)
    servers = bootstrap_servers.split(",")
    return KafkaAdminClient(**options, bootstrap_servers=servers, sasl_oauth_token_provider=source)


@contextmanager
def overheard(final: type[Exception]) -> Iterator[list[Exception]]:
    """The errors that kafka-python only logs, oldest first, without time limits; its log itself is suppressed.

    The log repeats itself and shows the password at DEBUG. kafka-python also retries a refused login until its time
    limit, which may lock the account. To stop that, an error of the type `final` is raised from its own log line.
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
    """Mend a defect of kafka-python 3.0.12: it discards data that arrives together with the end of a connection.

    A broker closes the connection right after it refuses a login. On a busy machine both arrive at once, and the
    defect loses the refusal, as if the broker did not answer. Here the data comes first, and the next call finds the
    end.
    """

    def received(self: Any) -> tuple[bytes, Exception | None]:
        data, error = receive(self)
        return data, None if data else error

    received.is_mended = True  # type: ignore[attr-defined]
    return received
