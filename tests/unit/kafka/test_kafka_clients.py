"""Clients of Kafka are made in one place, and their errors are turned into ours there."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kquota_spark.config.settings import Enforcement, Kafka, Settings
from kquota_spark.errors import UserError
from kquota_spark.gateway.topic import Connection, TopicReader
from kquota_spark.kafka.clients import (
    admin,
    bad_options,
    connection,
    consumer,
    kafka_errors,
    producer,
    spark_options,
)
from kquota_spark.kafka.lease_topic import LeaseTopic
from kquota_spark.kafka.questions import admin_client
from kquota_spark.kafka.quota_admin import QuotaAdmin

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "audit"}


def test_a_client_of_librdkafka_gets_the_properties_of_the_connection_only() -> None:
    given = {**LOGIN, "fetch.max.bytes": "1"}
    assert connection("a:9092,b:9092", given) == {**LOGIN, "bootstrap.servers": "a:9092,b:9092"}


def test_sparks_source_gets_the_same_login_in_javas_words() -> None:
    kafka = Kafka(
        bootstrap_servers="a:9092",
        client_id="kquota",
        options={**LOGIN, "sasl.password": 'a"b', "fetch.max.bytes": "1"},
    )
    assert spark_options(kafka) == {
        "kafka.bootstrap.servers": "a:9092",
        "kafka.client.id": "kquota",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="audit" password="a\\"b";',
        "kafka.fetch.max.bytes": "1",
    }


def test_a_property_that_is_none_is_an_error_with_the_name_of_the_setting() -> None:
    with (
        pytest.raises(UserError, match=r'^kafka\.options: No such configuration property: "no\.such"'),
        bad_options(),
    ):
        admin({"no.such": "1"})


def test_a_reason_that_is_no_error_here_is_passed_over() -> None:
    def failing(code: int) -> None:
        with kafka_errors(lambda reason: UserError(reason.name()), unless=KafkaError.TOPIC_ALREADY_EXISTS):
            raise KafkaException(KafkaError(code))

    failing(KafkaError.TOPIC_ALREADY_EXISTS)
    with pytest.raises(UserError, match=r"^NOT_CONTROLLER$"):
        failing(KafkaError.NOT_CONTROLLER)


def name_sent(make: Callable[[str], Any]) -> str:
    """The client id in the first request of a client, as a broker reads it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        made = []
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=lambda: made.append(make(address)), daemon=True).start()
        connected, _ = listener.accept()
        with connected:
            connected.settimeout(10)
            header = connected.recv(4 + 8 + 2 + 100)  # length, key and version, correlation id, client id
    [length] = struct.unpack(">h", header[12:14])
    return header[14 : 14 + length].decode()


def at(address: str) -> Settings:
    return Settings(
        kafka=Kafka(bootstrap_servers=address), enforcement=Enforcement(decision_topic="decisions")
    )


GROUP = {"group.id": "g"}


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda address: producer(connection(address, {})).poll(2), "kquota-admin"),
        (lambda address: consumer(connection(address, {}) | GROUP).poll(2), "kquota-admin"),
        (lambda address: admin(connection(address, {})).poll(2), "kquota-admin"),
        (lambda address: LeaseTopic(at(address))._opened().poll(2), "kquota-enforcer"),
        (lambda address: TopicReader(Connection.of(at(address))).read_on(2), "kquota-decisions"),
        (lambda address: admin_client(at(address)).poll(2), "kquota-audit"),
        (lambda address: QuotaAdmin(address, {}, timeout_ms=2_000).describe(), "kquota-admin"),
    ],
    ids=["producer", "consumer", "admin", "lease", "decisions", "questions", "quotas"],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_every_client_that_we_make_has_a_name_of_ours(make: Callable[[str], Any], name: str) -> None:
    assert name_sent(make) == name
