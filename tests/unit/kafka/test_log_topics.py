"""Which topics hold the request log: one, several, or those of a pattern."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.errors import UserError
from kquota_spark.kafka.questions import message_format, missing_topics, refuse_create_time
from kquota_spark.ship.selection import LogFile
from kquota_spark.ship.shipper import Shipper

EXISTING = ["log-1", "log-2", "log-2-old", "other", "xlog-1"]
SEVERAL = Kafka(topics=("log-2", "log-9"))
PATTERN = Kafka(topic_pattern=r"log-\d")
CREATE = (
    "kafka-topics.sh --bootstrap-server localhost:9092 --create --topic {} --partitions 6 --replication-factor {} "
    "--config retention.ms=86400000 --config cleanup.policy=delete --config message.timestamp.type=LogAppendTime"
)
GRANT = "grant Read on {} to the user of kafka.options"


def test_spark_is_told_the_topics() -> None:
    assert Kafka().subscription == ("subscribe", "kquota.request-log")
    assert SEVERAL.subscription == ("subscribe", "log-2,log-9")
    assert PATTERN.subscription == ("subscribePattern", r"log-\d")


def test_a_pattern_is_for_whole_names_and_names_are_not_patterns() -> None:
    assert PATTERN.log_topics(EXISTING) == ["log-1", "log-2"]
    assert SEVERAL.log_topics(EXISTING) == ["log-2", "log-9"]
    assert Kafka(topic="log.1").log_topics(EXISTING) == ["log.1"]


@pytest.mark.parametrize(
    ("kafka", "missing"),
    [
        (Kafka(topic="log-1"), None),
        (PATTERN, None),
        (Kafka(topics=("log-1", "log-2")), None),
        (
            Kafka(),
            (
                "topic kquota.request-log does not exist",
                f"create it ({CREATE.format('kquota.request-log', 2)}), {GRANT.format('it')}, or check kafka.topic",
            ),
        ),
        (
            Kafka(topics=("log-1", "log-8", "log-9")),
            (
                "topics log-8, log-9 do not exist",
                f"create them ({CREATE.format('log-8', 2)}), {GRANT.format('them')}, or check kafka.topics",
            ),
        ),
        (
            Kafka(topic_pattern="audit-.*"),
            ("no topic matches audit-.*", "create one, or check kafka.topic_pattern"),
        ),
    ],
)
def test_what_is_missing_and_what_to_do(kafka: Kafka, missing: tuple[str, str] | None) -> None:
    assert missing_topics(Settings(kafka=kafka), EXISTING, brokers=2) == missing


def test_a_topic_that_hosts_stamp_is_refused() -> None:
    refuse_create_time({"log-1": "LogAppendTime", "log-2": "LogAppendTime"})
    with pytest.raises(UserError) as refused:
        refuse_create_time({"log-1": "LogAppendTime", "log-2": "CreateTime"})
    assert str(refused.value) == (
        "topic log-2: message.timestamp.type is CreateTime, so one host with a wrong clock can spoil the verdicts of "
        "all brokers: kafka-configs.sh --alter --topic log-2 --add-config message.timestamp.type=LogAppendTime "
        "(or set kafka.allow_create_time: true)"
    )


def test_a_shipper_sends_to_one_topic(tmp_path: Path) -> None:
    for kafka in (SEVERAL, PATTERN):
        with pytest.raises(UserError, match=r"no single topic to ship to: say which with --topic"):
            Shipper.from_settings(Settings(kafka=kafka), [LogFile(1, tmp_path / "a.log")])


def test_every_setting_of_the_messages_reaches_their_format() -> None:
    kafka = Kafka(envelope="json", broker_from=("topic",), broker_ids={"a": 1}, broker_in_topic="(.)")
    found = message_format(Settings(kafka=kafka))
    assert (found.envelope, found.broker_from, found.broker_ids, found.topic_pattern) == (
        "json",
        ("topic",),
        {"a": 1},
        "(.)",
    )
