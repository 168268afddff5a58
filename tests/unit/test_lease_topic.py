"""The lease is read when it is asked for, by a consumer that is otherwise still; on librdkafka's own mock broker."""

from __future__ import annotations

import dataclasses
from typing import Any

import confluent_kafka
import pytest

from kquota_spark.config.settings import Enforcement, Kafka, Settings
from kquota_spark.io.kafka import SILENT
from kquota_spark.io.lease_topic import LeaseTopic


def test_between_two_questions_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = confluent_kafka.Producer({"test.mock.num.brokers": 1}, logger=SILENT)
    [address] = broker.list_topics(timeout=30).brokers.values()
    opened: list[Any] = []

    class Opened(confluent_kafka.Consumer):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            opened.append(self)

    monkeypatch.setattr(confluent_kafka, "Consumer", Opened)
    topic = LeaseTopic(
        dataclasses.replace(
            Settings(),
            kafka=Kafka(bootstrap_servers=f"{address.host}:{address.port}"),
            enforcement=Enforcement(lease_topic="lease"),
        )
    )
    try:
        for holder in ("first", "second"):
            broker.produce("lease", f'{{"holder": "{holder}", "event": "alive", "since_ms": 7}}', partition=0)
            assert broker.flush(30) == 0
            newest = topic.newest()
            assert newest is not None and (newest.holder, newest.since_ms) == (holder, 7)
            [consumer] = opened
            assert consumer.assignment() == []
    finally:
        topic.close()
