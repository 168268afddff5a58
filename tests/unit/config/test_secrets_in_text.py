"""No object that holds a secret shows it as text: not in a message, not in a traceback, not in a debugger's line."""

from __future__ import annotations

from kquota_spark.config.settings import (
    Collect,
    CollectJmx,
    Kafka,
    Quotas,
    Settings,
    Ship,
    ZooKeeperLogin,
    ZooKeeperTls,
)
from kquota_spark.io.decision_topic import Connection
from kquota_spark.io.known import KnownLoader, LimitsLoader
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
