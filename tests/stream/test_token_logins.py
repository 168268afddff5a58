"""Spark's Kafka source logs in with tokens (SASL/OAUTHBEARER), by the same properties as the clients in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from kquota_spark.config.settings import Kafka
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.kafka.clients import spark_options
from tests.support.clusters.token_endpoint import token_endpoint

TOPIC = "token-lines-of-spark"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read(spark: SparkSession, kafka: Kafka) -> list[bytes]:
    """What the topic holds."""
    reader = spark.read.format("kafka").options(**spark_options(kafka)).option("subscribe", TOPIC)
    return [bytes(row["value"]) for row in reader.load().select("value").collect()]


def test_sparks_source_reads_with_a_token_and_shows_no_secret_where_it_gets_none(
    running_with_kraft_logins: Cluster, spark: SparkSession
) -> None:
    cluster = running_with_kraft_logins
    create_topics(cluster, {TOPIC: 1})
    producer = Producer(cluster.client_settings())
    producer.produce(TOPIC, b"one")
    assert producer.flush(60) == 0
    with token_endpoint() as endpoint:
        kafka = Kafka(bootstrap_servers=cluster.bootstrap_servers, options=endpoint.login("alice"))
        assert read(spark, kafka) == [b"one"]
        wrong = endpoint.login("alice", "canary-of-java-7302")
        with pytest.raises(Exception, match="KafkaAdminClient") as raised:
            read(spark, Kafka(bootstrap_servers=cluster.bootstrap_servers, options=wrong))
        assert "canary-of-java-7302" not in str(raised.value)
