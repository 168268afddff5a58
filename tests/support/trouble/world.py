"""A real ZooKeeper and broker with clients, every part of the product at work on them, and a small disk for its tables.

The parts reach the servers through proxies, as over a network that can be cut. The broker tells its clients the
address of its proxy, so theirs is cut too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.demo.load import ClientPlan
from kquota_spark.embedded.servers import free_ports
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.formats.messages.messages import HEARTBEAT
from tests.support.clusters.zookeeper_edits import set_quota
from tests.support.places import ROOT
from tests.support.small_disk import small_disk
from tests.support.spark.class_archive import quick_environment, quick_words
from tests.support.trouble.parts import Part
from tests.support.trouble.proxy import Proxy, proxy

LOG_TOPIC, JMX_TOPIC = "kquota.request-log", "kquota.jmx"
BROKER, TWIN = 1, 2
"""The twin is the same log under another broker id, which Kafka puts into the other partition."""
METERED = 11
"""A broker that only JMX shows."""
GREEDY, OFFENDER, STEADY, EDITED = "greedy", "offender", "steady", "edited"
METER = "meter"
"""A user whose rates only JMX shows."""
QUOTA = 50_000
LOAD = [
    ClientPlan("produce", GREEDY, "orders", 150_000, record_bytes=1_000, batch_bytes=10_000),
    ClientPlan("produce", STEADY, "orders", 20_000, record_bytes=1_000, batch_bytes=2_000),
    ClientPlan("produce", EDITED, "orders", 60_000, record_bytes=1_000, batch_bytes=6_000),
    ClientPlan("consume", STEADY, "orders", 40_000, record_bytes=1_000, batch_bytes=8_000),
]
_CONFIG = """\
cluster_id: trouble
tables: {disk}/tables
checkpoints: {disk}/checkpoints
kafka: {{bootstrap_servers: "127.0.0.1:{kafka}", topic: {topic}, jmx_topic: {jmx_topic}}}
quotas: {{zookeeper_connect: "127.0.0.1:{zookeeper}", connect_timeout: 60 s}}
stream: {{trigger: 1 s, allowed_lateness: 5 s}}
ship: {{files: ["1={log}", "2={twin}"], state_dir: {root}/ship}}
metrics: {{port: {metrics}}}
enforcement: {{policy_file: {root}/policy.yaml, lease_time: 10 s, trigger: 2 s, allow_open_nodes: true}}
"""
_POLICY = """\
mode: enforce
guards:
  bounds: {producer_byte_rate: {floor: 10000, ceiling: 1000000}}
  max_age: 2 min
  hold_time: 30 s
policies:
  - name: repeat-offenders
    kind: penalty
    mode: enforce
    keys: [producer_byte_rate]
    within: 1 min
    connections: 1
    expires_after: 1 min
"""
_PORT = re.compile(r"^(?:clientPort=|listeners=PLAINTEXT://127.0.0.1:)([0-9]+)$", re.MULTILINE)
_DISK_BYTES = 1 << 30
_RUN_S = 600.0


class Shipped(NamedTuple):
    """One line in the topic."""

    broker_id: int
    line: bytes


@dataclass
class World:
    """What `walk` disturbs."""

    root: Path
    cluster: Cluster
    networks: dict[str, Proxy]
    disk: Path
    parts: dict[str, Part] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        """Settings of all parts."""
        return self.root / "kquota.yaml"

    @property
    def tables(self) -> Path:
        """On the small disk."""
        return self.disk / "tables"

    def look(self) -> None:
        """Start what has ended."""
        for part in self.parts.values():
            part.look()

    def scrape(self) -> dict[str, bool]:
        """Which of the parts with a page of metrics answer; another one may be about to start."""
        return {name: _answers(port) for name, port in self.ports.items()}

    def run(self, *command: str, config: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A command or job to its end, with the settings of all parts or other ones."""
        program = _command(command, config or self.config)
        environment = {**os.environ, **quick_environment()}
        return subprocess.run(
            program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_RUN_S, check=False
        )

    def log_lines(self) -> list[bytes]:
        """All whole lines of the broker's request log, over all of its files."""
        log = self.cluster.brokers[0].request_log
        files = sorted(log.parent.glob(f"{log.name}.*"), key=lambda file: -int(file.suffix[1:]))
        text = b"".join(file.read_bytes() for file in [*files, log])
        return text.rpartition(b"\n")[0].splitlines()

    def shipped(self) -> dict[tuple[int, int], Shipped]:
        """The lines in the topic by their partition and offset; heartbeats are none."""
        settings = {**self.cluster.client_settings(), "group.id": "look", "enable.partition.eof": True}
        found: dict[tuple[int, int], Shipped] = {}
        open_partitions = {0, 1}
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(LOG_TOPIC, each, OFFSET_BEGINNING) for each in open_partitions])
            while open_partitions:
                for message in consumer.consume(1_000, timeout=10):
                    error = message.error()
                    partition, value = message.partition() or 0, message.value() or b""
                    if error is not None:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        open_partitions.discard(partition)
                    elif not value.startswith(HEARTBEAT):
                        place = partition, message.offset() or 0
                        found[place] = Shipped(int(message.key() or b"0"), value)
            return found
        finally:
            consumer.close()


@contextmanager
def world(root: Path) -> Iterator[World]:
    """All of it at work; nothing is left after the block."""
    kafka, zookeeper, metrics, exporter = free_ports(4)
    with ExitStack() as stack:
        files = {"kafka": "broker-1/server.properties", "zookeeper": "zookeeper/zoo.cfg"}
        networks = {
            name: stack.enter_context(proxy(port, partial(_port_of, root / "cluster" / files[name])))
            for name, port in (("kafka", kafka), ("zookeeper", zookeeper))
        }
        settings = BrokerSettings(
            request_log_bytes=4_000_000, request_log_files=100,
            properties={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{kafka}"},
        )  # fmt: skip
        cluster = stack.enter_context(embedded_cluster(root / "cluster", settings=settings))
        found = World(root, cluster, networks, stack.enter_context(small_disk(root / "disk", _DISK_BYTES)))
        create_topics(cluster, {"orders": 1, LOG_TOPIC: 2, JMX_TOPIC: 1})
        for client_id in (GREEDY, OFFENDER, EDITED):
            set_quota(cluster.zookeeper_connect, client_id=client_id, producer_byte_rate=QUOTA)
        set_quota(cluster.zookeeper_connect, user=METER, producer_byte_rate=1_000)
        log = cluster.brokers[0].request_log
        (root / "twin").symlink_to(log.parent)
        text = _CONFIG.format(
            disk=found.disk, root=root, kafka=kafka, zookeeper=zookeeper, topic=LOG_TOPIC,
            jmx_topic=JMX_TOPIC, metrics=metrics, log=log, twin=root / "twin" / log.name,
        )  # fmt: skip
        found.config.write_text(text, encoding="utf-8")
        (root / "policy.yaml").write_text(_POLICY, encoding="utf-8")
        found.ports = {"audit": metrics, "exporter": exporter}
        commands = {
            "ship": ("ship",),
            "audit": ("jobs/audit.py",),
            "enforce": ("jobs/enforce.py",),
            "exporter": ("exporter", "--port", str(exporter), "--interval", "2s"),
        }
        for name, command in commands.items():
            found.parts[name] = Part(
                name, _command(command, found.config), root / f"{name}.log", quick_environment()
            )
        yield found


def _port_of(properties: Path) -> int | None:
    """Of a server, from its own file, which is there before it starts."""
    try:
        [port] = _PORT.findall(properties.read_text(encoding="utf-8").replace("\\", ""))
    except FileNotFoundError:
        return None
    return int(port)


def _command(command: tuple[str, ...], config: Path) -> list[str]:
    """One of the jobs through spark-submit, one of the commands by itself."""
    name, *options = command
    if name.startswith("jobs/"):
        submit = str(Path(sys.executable).with_name("spark-submit"))
        return [submit, *quick_words(), "--driver-memory", "1g", name, "--config", str(config), *options]
    return [sys.executable, "-m", "kquota_spark.cli.main", name, "--config", str(config), *options]


def _answers(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return bool(answer.read())
    return False
