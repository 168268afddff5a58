"""Prepares a server before its start: directory, configuration, ports, command line."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import secrets
import shlex
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kquota_spark.embedded.settings import (
    BrokerSettings,
    broker_properties,
    plain_logging,
    request_logging,
    zookeeper_properties,
)
from kquota_spark.embedded.setup.jars import Jars, find_jars
from kquota_spark.embedded.setup.java import find_java
from kquota_spark.errors import UserError
from kquota_spark.process.processes import is_running, kill, spawn, wait_for

ZOOKEEPER = "zookeeper"
_PROPERTIES = "server.properties"
# The request log has local times without a zone: UTC makes them unambiguous.
_UTC = ("-Duser.timezone=UTC",)
_AGENT = "-javaagent:"
_FORMATTED_WITHIN_S = 180.0
_FIRST, _END = 10_000, 32_768
"""Range of ports to choose from, below those of outgoing connections: Linux 32768 and up, others 49152 and up.

A higher port may be free when it is chosen, and taken by a client before the server binds it. Also, a client that
repeatedly connects to a dead server on such a port may connect to itself (TCP's simultaneous open), and then holds it.
"""


@dataclass(frozen=True, slots=True)
class Server:
    """One JVM: its command line and its port.

    `format_command` creates the data directory that a KRaft node needs before its first start; else it is empty.
    """

    name: str
    directory: Path
    port: int
    command: tuple[str, ...] = field(repr=False)
    format_command: tuple[str, ...] = field(default=(), repr=False)

    @property
    def log(self) -> Path:
        """The file with all its output except the request log."""
        return self.directory / "server.log"

    @property
    def request_log(self) -> Path:
        """The file of a broker's request log."""
        return self.directory / "kafka-request.log"

    @property
    def broker_id(self) -> int:
        """The id of the broker."""
        return int(self.name.removeprefix("broker-"))

    @property
    def jolokia_url(self) -> str:
        """The address of its Jolokia agent; empty without one."""
        agent = next((part for part in self.command if part.startswith(_AGENT)), "")
        return f"http://127.0.0.1:{agent.rpartition('port=')[2]}/jolokia" if agent else ""

    @property
    def is_formatted(self) -> bool:
        """Whether the data directory of a KRaft node is formatted."""
        return (self.directory / "data" / "meta.properties").is_file()

    def format_data(self, group: int | None) -> None:
        """Format the data directory of a KRaft node that never ran; do nothing for any other server.

        Args:
            group: process group of a watchdog, as for the server itself.

        Raises:
            UserError: it was not formatted; the message names the log with the reason.
        """
        if not self.format_command or self.is_formatted:
            return
        process = spawn(self.format_command, directory=self.directory, log=self.log, group=group)
        if not wait_for(lambda: not is_running(process), within_s=_FORMATTED_WITHIN_S):
            kill([process])
        if not self.is_formatted:
            raise UserError(f"{self.name}: its data directory was not formatted: {self.log} has the reason")


def prepare(
    root: Path, brokers: int, settings: BrokerSettings, broker_password: str, jars: Jars
) -> tuple[Server, ...]:
    """Write all configuration files, with free ports, and return the servers, ZooKeeper first; start nothing.

    Args:
        root: directory of the cluster; each server gets a directory below it.
        brokers: number of brokers; 1 with KRaft.
        settings: settings of the brokers.
        broker_password: password of the brokers' own user; unused without users.
        jars: class paths of the servers.

    Raises:
        UserError: there is no suitable Java.
        ValueError: more than one node with KRaft.
    """
    if settings.kraft and brokers != 1:
        raise ValueError("with KRaft the cluster is one node, broker and controller in one")
    java = str(find_java().path)
    other_port, *ports = free_ports(1 + 2 * brokers)
    servers = [] if settings.kraft else [_zookeeper(root / ZOOKEEPER, java, other_port, jars)]
    for broker_id, (port, agent_port) in enumerate(zip(ports[::2], ports[1::2], strict=True), start=1):
        agent = _agent(agent_port, jars) if settings.jolokia else ()
        properties = broker_properties(broker_id, port, other_port, settings, broker_password)
        servers.append(_broker(root / f"broker-{broker_id}", java, port, properties, settings, jars, agent))
    return tuple(servers)


def _zookeeper(directory: Path, java: str, port: int, jars: Jars) -> Server:
    logging = plain_logging()
    _write(directory, {"zoo.cfg": zookeeper_properties(port), logging.name: logging.text})
    # Data may be lost here in a power failure, and a sync can take seconds.
    options = ["-Xmx256m", "-Dzookeeper.forceSync=no", logging.java_option, "-cp", _all_of(jars)]
    main = ["org.apache.zookeeper.server.ZooKeeperServerMain", "zoo.cfg"]
    return Server(directory.name, directory, port, (java, *_UTC, *_performance(), *options, *main))


def _broker(
    directory: Path,
    java: str,
    port: int,
    properties: str,
    settings: BrokerSettings,
    jars: Jars,
    agent: tuple[str, ...],
) -> Server:
    logging = request_logging(settings, jars.broker)
    _write(directory, {_PROPERTIES: properties, logging.name: logging.text})
    class_path = os.pathsep.join([*(str(jar.resolve()) for jar in settings.class_path), _all_of(jars)])
    start = (java, *_UTC, *_performance(), "-Xmx512m", logging.java_option, "-cp", class_path)
    format_command: tuple[str, ...] = ()
    if settings.kraft:
        # A cluster id is 16 random bytes; an id that begins with a dash would be parsed as an option.
        cluster_id = base64.urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).decode().rstrip("=")
        format_command = (*start, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", _PROPERTIES)
    command = (start[0], *agent, *start[1:], "kafka.Kafka", _PROPERTIES)
    return Server(directory.name, directory, port, command, format_command)


def _agent(port: int, jars: Jars) -> tuple[str, ...]:
    # Another version of Kafka has no agent in its declaration: then take the one of conf/ivy.xml.
    (jar,) = jars.agent or find_jars().agent
    return (f"{_AGENT}{jar.resolve()}=host=127.0.0.1,discoveryEnabled=false,port={port}",)


def _write(directory: Path, files: Mapping[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = directory / name
        # The broker's file contains the passwords of its users.
        path.touch(mode=0o600)
        path.write_text(text, encoding="ascii")


def _performance() -> list[str]:
    # The variable of Kafka's own scripts; without it the JVM's defaults apply.
    return shlex.split(os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS", ""))


def _all_of(jars: Jars) -> str:
    # A wildcard instead of a hundred paths keeps the command line readable in ps.
    return str(jars.broker[0].parent / "*")


def free_ports(count: int) -> list[int]:
    """Different free ports of 127.0.0.1, outside the range of outgoing connections."""
    with contextlib.ExitStack() as stack:
        # All are held until the last one is found, so that none is returned twice.
        found: list[int] = []
        while len(found) < count:
            port = random.randrange(_FIRST, _END)  # noqa: S311 - no secret
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", port))
                found.append(port)
        return found
