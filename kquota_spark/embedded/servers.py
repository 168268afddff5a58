"""What has to be on disk before a server starts: its directory, its configuration, its command line."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kquota_spark.embedded.jars import Jars
from kquota_spark.embedded.java import find_java
from kquota_spark.embedded.settings import (
    BrokerSettings,
    broker_properties,
    log4j_properties,
    zookeeper_properties,
)

ZOOKEEPER = "zookeeper"
_LOG4J = "log4j.properties"


@dataclass(frozen=True, slots=True)
class Server:
    """One JVM: how to start it and where it listens."""

    name: str
    directory: Path
    port: int
    command: tuple[str, ...] = field(repr=False)

    @property
    def log(self) -> Path:
        """Everything that it says, except the request log."""
        return self.directory / "server.log"

    @property
    def broker_id(self) -> int:
        """The id of the broker."""
        return int(self.name.removeprefix("broker-"))


def prepare(
    root: Path, brokers: int, settings: BrokerSettings, broker_password: str, jars: Jars
) -> tuple[Server, ...]:
    """Write every configuration file, on fresh ports; ZooKeeper comes first, and nothing is started."""
    java = find_java().path
    zookeeper_port, *ports = _free_ports(1 + brokers)
    zookeeper = _server(
        root / ZOOKEEPER,
        zookeeper_port,
        # What is lost when the machine loses its power is of no interest here, and a sync can take seconds.
        _command(
            java,
            jars,
            "256m",
            "-Dzookeeper.forceSync=no",
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            "zoo.cfg",
        ),
        {"zoo.cfg": zookeeper_properties(zookeeper_port), _LOG4J: log4j_properties(None)},
    )
    servers = [zookeeper]
    for broker_id, port in enumerate(ports, start=1):
        connect = f"127.0.0.1:{zookeeper_port}"
        properties = broker_properties(broker_id, port, connect, settings, broker_password)
        files = {"server.properties": properties, _LOG4J: log4j_properties(settings)}
        command = _command(java, jars, "512m", "kafka.Kafka", "server.properties")
        servers.append(_server(root / f"broker-{broker_id}", port, command, files))
    return tuple(servers)


def _server(directory: Path, port: int, command: tuple[str, ...], files: Mapping[str, str]) -> Server:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = directory / name
        # The broker's file holds the passwords of its users.
        path.touch(mode=0o600)
        path.write_text(text, encoding="ascii")
    return Server(directory.name, directory, port, command)


def _command(java: Path, jars: Jars, heap: str, *main: str) -> tuple[str, ...]:
    # A wildcard instead of a hundred paths: the command line can be read in ps.
    class_path = str(jars.broker[0].parent / "*")
    # The request log has local time without a zone: UTC makes it mean one thing.
    options = [f"-Xmx{heap}", "-Duser.timezone=UTC", f"-Dlog4j.configuration=file:{_LOG4J}"]
    return (str(java), *options, "-cp", class_path, *main)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        # All are held until the last is known, so that none is given twice.
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
