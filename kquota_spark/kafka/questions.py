"""Queries to the Kafka cluster before any work starts."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.messages.messages import MessageFormat
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.kafka.advised_topic import STAMP, topic_command
from kquota_spark.kafka.client_properties import is_for_java_only

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_log = logging.getLogger(__name__)

_TIMEOUT_S = 15.0
_OFFSETS_S = 5.0


def require_topics(settings: Settings) -> None:
    """Check that the topics of the log and of JMX exist, and that Kafka stamps their messages.

    A pattern has to match at least one topic.

    Raises:
        UserError: none is set, Kafka does not answer, it has no such topic, or hosts stamp its messages.
    """
    kafka = settings.kafka
    if is_for_java_only(kafka.options):
        return  # only Spark's Java client can use these options; it reports errors itself
    client = admin_client(settings)
    found = _asked_metadata(client, settings)
    existing, brokers = found.topics, len(found.brokers)
    missing = missing_topics(settings, existing, brokers) or missing_jmx_topic(settings, existing, brokers)
    if missing:
        raise UserError(f"{missing[0]} on {kafka.bootstrap_servers}: {missing[1]}")
    if not kafka.allow_create_time:
        topics = [*kafka.log_topics(existing), *([kafka.jmx_topic] if kafka.jmx_topic else [])]
        refuse_create_time(_asked_stamps(client, topics))


def refuse_create_time(stamps: Mapping[str, str]) -> None:
    """Check that the messages of topics are stamped by Kafka, not by the hosts that write them.

    Args:
        stamps: `STAMP` by topic.

    Raises:
        UserError: hosts stamp the messages of a topic.
    """
    for topic in sorted(topic for topic, stamp in stamps.items() if stamp == "CreateTime"):
        raise UserError(
            f"topic {topic}: {STAMP} is CreateTime, so one host with a wrong clock can spoil the verdicts of all "
            f"brokers: {stamp_command(topic)} (or set kafka.allow_create_time: true)"
        )


def stamp_command(topic: str) -> str:
    """The command after which Kafka stamps the messages of a topic."""
    return f"kafka-configs.sh --alter --topic {topic} --add-config {STAMP}=LogAppendTime"


def _asked_stamps(client: AdminClient, topics: Iterable[str]) -> Mapping[str, str]:
    """`STAMP` by topic, for topics with readable settings; logs a warning for each other topic."""
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

    found: dict[str, str] = {}
    asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    if not asked:
        return found
    for resource, answer in client.describe_configs(asked, request_timeout=_TIMEOUT_S).items():
        try:
            with kafka_clients.kafka_errors(lambda reason: UserError(reason.str())):
                found[resource.name] = answer.result()[STAMP].value
        except UserError as reason:
            _log.warning(
                "topic %s: its settings cannot be read (%s), so %s is not checked: grant DescribeConfigs on it to "
                "the user of kafka.options", resource.name, reason, STAMP
            )  # fmt: skip
    return found


def missing_topics(settings: Settings, existing: Collection[str], brokers: int) -> tuple[str, str] | None:
    """Which log topics are missing, and what to do about it; None if all exist.

    A topic that may not be described counts as missing: Kafka does not distinguish the two.

    Args:
        settings: name the topics.
        existing: the topics of the cluster.
        brokers: how many brokers it has.
    """
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
    these = "it" if is_one else "them"
    create = f"create {these} ({topic_command(kafka.bootstrap_servers, missing[0], brokers)})"
    return (
        f"topic{'' if is_one else 's'} {', '.join(missing)} {'does' if is_one else 'do'} not exist",
        f"{create}, grant Read on {these} to the user of kafka.options, or check {key}",
    )


def missing_jmx_topic(settings: Settings, existing: Collection[str], brokers: int) -> tuple[str, str] | None:
    """The same for the topic of JMX samples."""
    topic = settings.kafka.jmx_topic
    if not topic or topic in existing:
        return None
    create = topic_command(settings.kafka.bootstrap_servers, topic, brokers)
    advice = f"create it ({create}), grant Read on it to the user of kafka.options, or check kafka.jmx_topic"
    return f"topic {topic} does not exist", advice


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
    """An admin client, which connects at its first query.

    Raises:
        UserError: an option is invalid, e.g. a file of certificates is missing.
    """
    kafka = settings.kafka
    with kafka_clients.bad_options():
        connection = kafka_clients.connection(kafka.bootstrap_servers, kafka.options)
        return kafka_clients.admin({**connection, "client.id": kafka.client_id})


def asked_topics(client: AdminClient, settings: Settings) -> Mapping[str, Any]:
    """All topics with their partitions and leaders.

    Raises:
        UserError: Kafka does not answer.
    """
    found: Mapping[str, Any] = _asked_metadata(client, settings).topics
    return found


def _asked_metadata(client: AdminClient, settings: Settings) -> Any:
    """Brokers and topics of the cluster; see `asked_topics`."""
    with kafka_clients.kafka_errors(
        lambda reason: UserError(
            f"Kafka at {settings.kafka.bootstrap_servers} did not answer within {_TIMEOUT_S:.0f} s "
            f"({reason.str()}): check kafka.bootstrap_servers and kafka.options"
        )
    ):
        return client.list_topics(timeout=_TIMEOUT_S)


def first_offsets(settings: Settings, places: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
    """The first offset that Kafka still holds, by topic and partition; partitions without an answer are left out.

    Raises:
        UserError: an option is invalid.
    """
    kafka = settings.kafka
    if is_for_java_only(kafka.options):
        return {}
    from confluent_kafka import KafkaException, TopicPartition

    found: dict[tuple[str, int], int] = {}
    # A group is required; none is joined without a subscription.
    own = {"client.id": kafka.client_id, "group.id": kafka.client_id}
    with kafka_clients.bad_options():
        connection = kafka_clients.connection(kafka.bootstrap_servers, kafka.options)
        consumer = kafka_clients.consumer({**connection, **own})
    # A cluster that does not answer for one partition would not answer for the next.
    with closing(consumer), suppress(KafkaException):
        for topic, partition in sorted(places):
            low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_OFFSETS_S)
            found[topic, partition] = low
    return found
