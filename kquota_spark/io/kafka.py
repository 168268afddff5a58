"""Questions to the Kafka cluster that come before any work."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_TIMEOUT_S = 15.0
_SILENT = logging.Logger("kafka", logging.CRITICAL)
"""librdkafka repeats a refused connection many times; our error says it once."""


def require_topics(settings: Settings) -> None:
    """Check that the topics of the log and of JMX exist.

    Raises:
        UserError: none is set, Kafka does not answer, or it has no such topic.
    """
    kafka = settings.kafka
    wanted = {"kafka.topic": kafka.topic, "kafka.jmx_topic": kafka.jmx_topic}
    if not any(wanted.values()):
        raise UserError("kafka.topic and kafka.jmx_topic: both are empty, expected at least one topic")
    if "sasl.jaas.config" in kafka.options:
        return  # the login is in a form that only the Java client reads: Spark will say what is wrong
    there = asked_topics(admin_client(settings), settings)
    for name, topic in wanted.items():
        if topic and topic not in there:
            raise UserError(
                f"topic {topic} does not exist on {kafka.bootstrap_servers}: create it (kafka-topics.sh "
                f"--create --topic {topic}), or check {name}"
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
