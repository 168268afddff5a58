"""Clients of Kafka are made in one place, and their errors are turned into ours there."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from kquota_spark.config.settings import Kafka
from kquota_spark.errors import UserError
from kquota_spark.kafka.clients import admin, bad_options, connection, kafka_errors, spark_options

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
        pytest.raises(UserError, match=r'^ship\.options: No such configuration property: "no\.such"'),
        bad_options("ship.options"),
    ):
        admin({"no.such": "1"})


def test_a_reason_that_is_no_error_here_is_passed_over() -> None:
    def failing(code: int) -> None:
        with kafka_errors(lambda reason: UserError(reason.name()), unless=KafkaError.TOPIC_ALREADY_EXISTS):
            raise KafkaException(KafkaError(code))

    failing(KafkaError.TOPIC_ALREADY_EXISTS)
    with pytest.raises(UserError, match=r"^NOT_CONTROLLER$"):
        failing(KafkaError.NOT_CONTROLLER)
