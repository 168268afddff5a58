"""What a running cluster reports about itself before there are settings, and the creation of the log topic."""

from __future__ import annotations

from dataclasses import dataclass

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.kafka.advised_topic import PARTITIONS, TOPIC_CONFIG, replicas, topic_command
from kquota_spark.kafka.broker_checks import NoAnswerError, answer_errors, asking, entries
from kquota_spark.kafka.broker_configs import described_brokers
from kquota_spark.kafka.questions import admin_client
from kquota_spark.model.measure.broker_config import BrokerConfig

_AUTHORIZER = "authorizer.class.name"
_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster as its brokers describe it."""

    cluster_id: str
    """Kafka's own id of the cluster."""
    brokers: tuple[BrokerConfig, ...]
    """At least one."""
    topics: frozenset[str]
    """Topics that the login may describe."""
    has_authorizer: bool | None
    """Whether rights are needed; None if no broker's settings can be read."""


def asked_cluster(settings: Settings, login: str) -> ClusterFacts:
    """The facts of the cluster at `kafka.bootstrap_servers`.

    Args:
        settings: address and login.
        login: name of the option that gave the login, for errors.

    Raises:
        UserError: no broker answers, or the brokers refuse the login.
    """
    try:
        with answer_errors(), asking(settings, login) as admin:
            cluster_id = str(admin.describe_cluster()["cluster_id"])
            brokers = described_brokers(admin)
            found = [entries(admin, "BROKER", str(broker.broker_id), [_AUTHORIZER]) for broker in brokers]
            topics = frozenset(admin.list_topics())
    except NoAnswerError as error:
        servers = settings.kafka.bootstrap_servers
        raise UserError(
            f"Kafka {servers} does not answer as expected ({error}): check the address and {login}"
        ) from error
    readable = [bool(each.get(_AUTHORIZER, {}).get("value")) for each in found if each]
    return ClusterFacts(cluster_id, tuple(brokers), topics, any(readable) if readable else None)


def create_log_topic(settings: Settings, brokers: int) -> None:
    """Create the log topic with the settings of `advised_topic`; an existing topic stays as it is.

    Args:
        settings: address, login and name of the topic.
        brokers: how many the cluster has.

    Raises:
        UserError: Kafka does not answer or refuses.
    """
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    kafka = settings.kafka
    topic = NewTopic(kafka.topic, PARTITIONS, replicas(brokers), config=TOPIC_CONFIG)
    with kafka_clients.kafka_errors(
        lambda reason: UserError(
            f"topic {kafka.topic} cannot be created ({reason.str()}): let a user with the right Create run "
            f"{topic_command(kafka.bootstrap_servers, kafka.topic, brokers)}"
        ),
        unless=KafkaError.TOPIC_ALREADY_EXISTS,
    ):
        client = admin_client(settings)  # kept: without a client its requests are cancelled
        client.create_topics([topic], operation_timeout=_TIMEOUT_S)[kafka.topic].result(_TIMEOUT_S)
