"""The shipper against a real broker: killed, stopped and cut off in mid-run."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kquota_spark.config.settings import Kafka, Settings, Ship
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.errors import UserError
from kquota_spark.ship.shipper import Shipper
from tests.support.clusters.outages import kill
from tests.support.clusters.waiting import WITHIN_S, until

OF_OTHERS = """\
kafka: {bootstrap_servers: "${KQUOTA_NO_SERVERS}", options: {sasl.password: "${KQUOTA_NO_PASSWORD}"}}
quotas: {zookeeper_login: {user: audit, password: "${KQUOTA_NO_PASSWORD}"}}
storage_options: {aws_secret_access_key: "${KQUOTA_NO_KEY}"}
"""
"""What the machine of a broker need not know."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A broker that creates topics by itself must not be made to.
    settings = BrokerSettings(properties={"auto.create.topics.enable": "true"})
    with embedded_cluster(tmp_path_factory.mktemp("cluster"), settings=settings) as running:
        yield running


def command(cluster: Cluster, log: Path, topic: str, *options: str) -> list[str]:
    config = log.parent / "kquota.yaml"
    config.write_text(f"ship: {{state_dir: {log.parent / 'state'}}}\n{OF_OTHERS}", encoding="utf-8")
    return [
        *(sys.executable, "-m", "kquota_spark.cli.main", "ship", "--config", str(config)),
        *("--file", f"1={log}", "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, *options),
    ]


@contextlib.contextmanager
def shipping(cluster: Cluster, log: Path, topic: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command(cluster, log, topic), stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ship_once(cluster: Cluster, log: Path, topic: str, *options: str) -> None:
    line = command(cluster, log, topic, "--once", *options)
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr


def settings_of(cluster: Cluster, log: Path, topic: str, **ship: Any) -> Settings:
    return Settings(
        kafka=Kafka(bootstrap_servers=cluster.bootstrap_servers, topic=topic),
        ship=Ship(files=(f"1={log}",), state_dir=str(log.parent / "state"), **ship),
    )


def end_offset(cluster: Cluster, topic: str) -> int:
    consumer = Consumer({**cluster.client_settings(), "group.id": "look"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1])
    finally:
        consumer.close()


def messages(cluster: Cluster, topic: str) -> list[Any]:
    consumer = Consumer(
        {**cluster.client_settings(), "group.id": "read", "enable.partition.eof": True, "client.id": "reader"}
    )
    found = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            for message in consumer.consume(500, timeout=1):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise AssertionError(error)
    finally:
        consumer.close()


def is_heartbeat(message: Any) -> bool:
    return ("kind", b"heartbeat") in message.headers()


class Writer(threading.Thread):
    """A broker's log that grows and is rotated by renaming, until it is told to end."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log = log
        self.lines: list[bytes] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        rotations = 0
        while not self.is_over.is_set():
            with self.log.open("ab") as file:
                for _ in range(50):
                    line = b"%08d %s" % (len(self.lines), b"x" * 1_300)
                    self.lines.append(line)
                    # Half a line can be seen at any time.
                    file.write(line[:700])
                    file.flush()
                    file.write(line[700:] + b"\n")
                    time.sleep(0.001)
            rotations += 1
            if rotations % 10 == 0:
                self.log.rename(self.log.with_name(f"{self.log.name}.2026-11-21-{rotations:06d}"))
                self.log.touch()


@contextlib.contextmanager
def writing(cluster: Cluster, log: Path, topic: str) -> Iterator[Writer]:
    create_topics(cluster, {topic: 1})
    log.touch()
    # From now on the shipper knows the log: what is rotated away before it looks again is not lost.
    ship_once(cluster, log, topic)
    writer = Writer(log)
    writer.start()
    try:
        yield writer
    finally:
        writer.is_over.set()
        writer.join()


def check_all_arrived(cluster: Cluster, topic: str, written: list[bytes]) -> int:
    """Every line is there, each first time in order; and the end. Returns how many were sent again."""
    found = messages(cluster, topic)
    lines = [message.value() for message in found if not is_heartbeat(message)]
    assert list(dict.fromkeys(lines)) == written
    assert {message.key() for message in found} == {b"1"}
    assert all(("broker_id", b"1") in message.headers() for message in found)
    end = json.loads(found[-1].value())["kquota_heartbeat"]
    assert (end["is_end"], end["lines"]) == (True, len(written))
    # A heartbeat counts the lines before it, whatever was killed: each once.
    seen: set[bytes] = set()
    for message in found:
        if is_heartbeat(message):
            assert json.loads(message.value())["kquota_heartbeat"]["lines"] <= len(seen)
        else:
            seen.add(message.value())
    return len(lines) - len(written)


def test_killed_in_mid_run_it_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    topic, log = "killed", tmp_path / "kafka-request.log"
    with writing(cluster, log, topic) as writer:
        for _ in range(4):
            before = end_offset(cluster, topic)
            with shipping(cluster, log, topic) as process:
                until(lambda: end_offset(cluster, topic) > before + 500)  # noqa: B023
                process.kill()
                process.wait()
    ship_once(cluster, log, topic, "--end")
    again = check_all_arrived(cluster, topic, writer.lines)
    print(f"{len(writer.lines)} lines, {again} sent again after 4 kills")


def test_told_to_stop_it_exits_with_0_and_sends_nothing_again(cluster: Cluster, tmp_path: Path) -> None:
    topic, log = "stopped", tmp_path / "kafka-request.log"
    with writing(cluster, log, topic) as writer:
        for number in (signal.SIGTERM, signal.SIGINT):
            before = end_offset(cluster, topic)
            with shipping(cluster, log, topic) as process:
                until(lambda: end_offset(cluster, topic) > before + 200)  # noqa: B023
                process.send_signal(number)
                _, told = process.communicate(timeout=WITHIN_S)
                assert process.returncode == 0, told
                assert told.startswith("shipped ")
    ship_once(cluster, log, topic, "--end")
    assert check_all_arrived(cluster, topic, writer.lines) == 0


def test_a_broker_that_is_away_for_a_while_costs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    topic, log = "away", tmp_path / "kafka-request.log"
    with writing(cluster, log, topic) as writer, shipping(cluster, log, topic) as process:
        until(lambda: end_offset(cluster, topic) > 100)
        kill(cluster, 1)
        count = len(writer.lines)
        until(lambda: len(writer.lines) > count + 2_000)
        assert process.poll() is None
        cluster.start(1)
        before = end_offset(cluster, topic)
        until(lambda: end_offset(cluster, topic) > before + 2_000)
        process.terminate()
        _, told = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0, told
    ship_once(cluster, log, topic, "--end")
    check_all_arrived(cluster, topic, writer.lines)


def test_shipping_a_brokers_own_log_to_it_does_not_feed_itself(cluster: Cluster, tmp_path: Path) -> None:
    topic = "own"
    create_topics(cluster, {topic: 1})
    settings = settings_of(cluster, cluster.brokers[0].request_log, topic, client_id="kquota-ship")
    settings = Settings(kafka=settings.kafka, ship=Ship(files=settings.ship.files, state_dir=str(tmp_path)))
    with Shipper.from_settings(settings) as shipper:
        counts = [shipper.run_once()]

        def are_own_requests_seen() -> bool:
            # The broker writes the line of a request after it has answered it.
            counts.append(shipper.run_once())
            return counts[-1].excluded > 0

        until(are_own_requests_seen)
        assert shipper.run_once(end=True).lines - counts[-1].lines < 100
    found = messages(cluster, topic)
    assert len([message for message in found if not is_heartbeat(message)]) > 0
    assert not [message for message in found if b'"clientId":"kquota-ship"' in message.value()]
    assert json.loads(found[-1].value())["kquota_heartbeat"]["is_end"]


def test_a_topic_that_is_not_there_is_told_and_not_created(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_bytes(b"1\n")
    where = cluster.bootstrap_servers
    with pytest.raises(UserError) as raised:
        Shipper.from_settings(settings_of(cluster, log, "no.such"))
    assert str(raised.value) == (
        f"topic no.such does not exist on {where}: create it, e.g."
        f" kafka-topics.sh --create --bootstrap-server {where} --topic no.such"
        " --config message.timestamp.type=LogAppendTime"
    )
    admin = AdminClient({**cluster.client_settings()})
    assert "no.such" not in admin.list_topics(timeout=30).topics


def test_a_topic_of_small_messages_is_told(cluster: Cluster, tmp_path: Path) -> None:
    admin = AdminClient({**cluster.client_settings()})
    small = NewTopic("small", num_partitions=1, replication_factor=1, config={"max.message.bytes": "2000"})
    admin.create_topics([small])["small"].result()
    log = tmp_path / "kafka-request.log"
    # Random hexadecimal digits do not compress to less than a half.
    log.write_bytes(b"short\n" + bytes(range(33, 127)) * 60 + b"\n")
    settings = settings_of(cluster, log, "small", options={"compression.type": "none"})
    with Shipper.from_settings(settings) as shipper, pytest.raises(UserError) as raised:
        shipper.run_once()
    assert "topic small on" in str(raised.value)
    assert "raise max.message.bytes of the topic to 1048588 or more" in str(raised.value)
    assert not (tmp_path / "state" / "1.json").exists()
