"""No object that holds a secret shows it as text: not in a message, not in a traceback, not in a debugger's line."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from kafka.errors import KafkaError

from kquota_spark.config.settings import (
    Collect,
    CollectJmx,
    Duration,
    Kafka,
    Quotas,
    Settings,
    Ship,
    ZooKeeperLogin,
    ZooKeeperTls,
)
from kquota_spark.embedded.ports import free_ports
from kquota_spark.errors import UserError
from kquota_spark.io.decision_topic import Connection
from kquota_spark.io.kafka_checks import asking
from kquota_spark.io.known import KnownLoader, LimitsLoader
from kquota_spark.io.zookeeper_calls import zookeeper_calls
from kquota_spark.pipeline.ingest import IngestSettings

SECRET = "s3cret-canary"
OPTIONS = {"sasl.password": SECRET, "ssl.key.password": SECRET, "sasl.jaas.config": SECRET}
SETTINGS = Settings(
    kafka=Kafka(options=OPTIONS),
    ship=Ship(options=OPTIONS),
    quotas=Quotas(
        zookeeper_login=ZooKeeperLogin(user="audit", password=SECRET),
        zookeeper_tls=ZooKeeperTls(key_password=SECRET),
        callback_options={"token": SECRET},
    ),
    collect=Collect(jmx=CollectJmx(password=SECRET, options=OPTIONS)),
    storage_options={"aws_secret_access_key": SECRET},
)


def test_settings_show_no_secret() -> None:
    parts = [SETTINGS, SETTINGS.kafka, SETTINGS.ship, SETTINGS.quotas, SETTINGS.collect.jmx]
    for part in parts:
        assert SECRET not in f"{part!r} {part}"


def test_what_is_made_of_settings_shows_no_secret() -> None:
    made = [
        Connection("broker:9092", "decisions", OPTIONS),
        KnownLoader(SETTINGS),
        LimitsLoader(SETTINGS),
        IngestSettings("c", "UTC", 1, 1, 1),
    ]
    for one in made:
        assert SECRET not in f"{one!r} {one}"


def test_a_log_at_debug_shows_no_login(caplog: pytest.LogCaptureFixture) -> None:
    # Whoever embeds the package may have turned on all logs; nothing answers at this address.
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "audit"}
    kafka = Kafka(bootstrap_servers=address, options={**login, "sasl.password": SECRET})
    quotas = replace(SETTINGS.quotas, zookeeper_connect=address, connect_timeout=Duration(500))
    logging.getLogger("kafka").setLevel(logging.NOTSET)
    with caplog.at_level(logging.DEBUG):
        with pytest.raises(KafkaError) as refused, asking(Settings(kafka=kafka)):
            pass
        with pytest.raises(UserError) as away, zookeeper_calls(quotas, session_timeout=Duration(2_000)):
            pass
    assert SECRET not in f"{caplog.text} {refused.value!r} {away.value!r}"
