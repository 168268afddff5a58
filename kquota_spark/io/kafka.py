"""Questions to the Kafka cluster that come before any work."""

from __future__ import annotations

import logging

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError

_TIMEOUT_S = 15.0
_SILENT = logging.Logger("kafka", logging.CRITICAL)
"""librdkafka repeats a refused connection many times; our error says it once."""


def require_topic(settings: Settings) -> None:
    """Check that the log topic exists.

    Raises:
        UserError: Kafka does not answer, or has no such topic.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    kafka = settings.kafka
    client = AdminClient(
        {"bootstrap.servers": kafka.bootstrap_servers, **kafka.options}, logger=_SILENT
    )
    try:
        topics = client.list_topics(timeout=_TIMEOUT_S).topics
    except KafkaException as error:
        raise UserError(
            f"Kafka at {kafka.bootstrap_servers} did not answer within {_TIMEOUT_S:.0f} s "
            f"({error.args[0].str()}): check kafka.bootstrap_servers and kafka.options"
        ) from error
    if kafka.topic not in topics:
        raise UserError(
            f"topic {kafka.topic} does not exist on {kafka.bootstrap_servers}: create it (kafka-topics.sh "
            f"--create --topic {kafka.topic}), or check kafka.topic"
        )
