"""The lease topic, read from the mock broker inside librdkafka."""

from __future__ import annotations

from confluent_kafka import Producer

from kquota_spark.config.settings import Enforcement, Kafka, Quotas, Settings
from kquota_spark.io.lease_topic import LeaseTopic


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
    for holder in (b"a", b"b"):
        producer.produce("lease", b'{"holder":"%s","event":"alive","since_ms":1}' % holder, partition=0)
        assert producer.flush(60) == 0
        newest = topic.newest()
        # What stays assigned is fetched in the background without a pause.
        found.append((newest and (newest.offset, newest.holder), topic._consumer.assignment()))
    topic.close()
    assert found == [((0, "a"), []), ((1, "b"), [])]
