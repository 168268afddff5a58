"""Questions to the Kafka cluster that come before any work."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.log_messages import MessageFormat

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_TIMEOUT_S = 15.0
_SILENT = logging.Logger("kafka", logging.CRITICAL)
"""librdkafka repeats a refused connection many times; our error says it once."""


def require_topics(settings: Settings) -> None:
    """Check that the log topics exist; of a pattern, that it finds one.

    Raises:
        UserError: Kafka does not answer, or has no such topic.
    """
    kafka = settings.kafka
    if "sasl.jaas.config" in kafka.options:
        return  # the login is in a form that only the Java client reads: Spark will say what is wrong
    missing = missing_topics(settings, asked_topics(admin_client(settings), settings))
    if missing:
        raise UserError(f"{missing[0]} on {kafka.bootstrap_servers}: {missing[1]}")


def missing_topics(settings: Settings, existing: Collection[str]) -> tuple[str, str] | None:
    """What is not there of the log topics, and what to do about it; None if all are there."""
    kafka = settings.kafka
    if kafka.topic_pattern:
        if kafka.log_topics(existing):
            return None
        return f"no topic matches {kafka.topic_pattern}", "create one, or check kafka.topic_pattern"
    missing = [topic for topic in kafka.log_topics(existing) if topic not in existing]
    if not missing:
        return None
    is_one = len(missing) == 1
    key = "kafka.topics" if kafka.topics else "kafka.topic"
    return (
        f"topic{'' if is_one else 's'} {', '.join(missing)} {'does' if is_one else 'do'} not exist",
        f"create {'it' if is_one else 'them'} (kafka-topics.sh --create --topic {missing[0]}), or check {key}",
    )


def message_format(settings: Settings) -> MessageFormat:
    """How the messages of the log topics are written."""
    kafka = settings.kafka
    return MessageFormat(
        envelope=kafka.envelope,
        message_field=kafka.envelope_fields.message,
        broker_field=kafka.envelope_fields.broker,
        timestamp_field=kafka.envelope_fields.timestamp,
        broker_from=kafka.broker_from,
        broker_ids=kafka.broker_ids,
        topic_pattern=kafka.broker_in_topic,
    )


def admin_client(settings: Settings) -> AdminClient:
    """A client for questions; connects when asked."""
    from confluent_kafka.admin import AdminClient

    kafka = settings.kafka
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **kafka.options}, logger=_SILENT)


def asked_topics(client: AdminClient, settings: Settings) -> Mapping[str, Any]:
    """All topics with their partitions and leaders.

    Raises:
        UserError: Kafka does not answer.
    """
    from confluent_kafka import KafkaException

    try:
        found: Mapping[str, Any] = client.list_topics(timeout=_TIMEOUT_S).topics
    except KafkaException as error:
        raise UserError(
            f"Kafka at {settings.kafka.bootstrap_servers} did not answer within {_TIMEOUT_S:.0f} s "
            f"({error.args[0].str()}): check kafka.bootstrap_servers and kafka.options"
        ) from error
    return found


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Consumer properties for Spark's Java client, from those that librdkafka takes.

    A user name and password become a JAAS line, so that one set of options serves the shipper and the job.
    """
    user, password = options.get("sasl.username"), options.get("sasl.password")
    rest = {name: value for name, value in options.items() if name not in ("sasl.username", "sasl.password")}
    if user is None or password is None:
        return rest
    is_plain = options.get("sasl.mechanism", options.get("sasl.mechanisms", "PLAIN")) == "PLAIN"
    module = "plain.PlainLoginModule" if is_plain else "scram.ScramLoginModule"
    login = f"username={_quoted(user)} password={_quoted(password)}"
    rest["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required {login};"
    return rest


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
