"""The lease topic, read from the mock broker inside librdkafka."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from kquota_spark.config.settings import Enforcement, Kafka, Quotas, Settings
from kquota_spark.enforcement.edges.kafka_lease import flush
from kquota_spark.kafka.lease_topic import LeaseTopic


def test_the_newest_record_is_read_again_and_again_and_nothing_is_fetched_in_between() -> None:
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    [broker] = producer.list_topics(timeout=60).brokers.values()
    settings = Settings(
        kafka=Kafka(bootstrap_servers=f"{broker.host}:{broker.port}"),
        quotas=Quotas(source="admin"),
        enforcement=Enforcement(lease_topic="lease"),
    )
    topic = LeaseTopic(settings)
    found = []
    for holder, of_command in ((b"a", b""), (b"b", b',"command":"kquota override set"')):
        record = b'{"holder":"%s","event":"alive","since_ms":1%s}' % (holder, of_command)
        producer.produce("lease", record, partition=0)
        assert producer.flush(60) == 0
        newest = topic.newest()
        # What stays assigned is fetched in the background without a pause.
        found.append(
            (newest and (newest.offset, newest.holder, newest.command), topic._consumer.assignment())
        )
    topic.close()
    assert found == [((0, "a", ""), []), ((1, "b", "kquota override set"), [])]


class _Fenced:
    """A client whose fatal error comes while it calls `on_delivery`, as seen on a real broker."""

    def __init__(self, cause: Exception | None) -> None:
        self._cause = cause

    def flush(self, _: float) -> None:
        raise SystemError("returned a result with an exception set") from self._cause


def test_a_fatal_error_within_a_callback_is_the_clients_own() -> None:
    fenced = KafkaException(KafkaError(KafkaError._FENCED))
    with pytest.raises(KafkaException) as caught:
        flush(_Fenced(fenced))
    assert caught.value is fenced
    with pytest.raises(SystemError):
        flush(_Fenced(None))
