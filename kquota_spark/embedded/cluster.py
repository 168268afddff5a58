"""A real ZooKeeper and N real Kafka brokers, or one real KRaft node, on this machine.

`embedded_cluster` is for tests and the demo. Its servers end when its block ends, and also when this process is killed.
Every server has its own directory (`zookeeper/`, `broker-1/`, ...) with its configuration, data and logs. The same
directory can be used again later and keeps its topics.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kquota_spark.embedded import readiness
from kquota_spark.embedded.servers import ZOOKEEPER, Server, prepare
from kquota_spark.embedded.settings import BROKER_USER, BrokerSettings
from kquota_spark.embedded.setup.jars import Jars, find_jars
from kquota_spark.process import processes
from kquota_spark.process.processes import ProcessId

_STOP_GRACE_S = 15.0
_UP_WITHIN_S = 180.0
# A broker's session lasts 6 s; a busy machine may take longer to notice its end.
_FORGOTTEN_WITHIN_S = 60.0
_PORT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker in its present state; after a restart it has another pid."""

    id: int
    port: int
    pid: int
    request_log: Path
    jolokia_url: str = ""
    """Address of its Jolokia agent, for JMX by HTTP; empty without an agent."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running ZooKeeper with its brokers, or a KRaft node.

    `start` and `is_running` take `"zookeeper"` or the id of a broker. A broker keeps its port after a restart.
    """

    directory: Path
    servers: tuple[Server, ...]
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    group: int | None = None
    pids: dict[str, ProcessId] = field(default_factory=dict, repr=False, compare=False)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"127.0.0.1:{server.port}" for server in self._brokers)

    @property
    def has_zookeeper(self) -> bool:
        """Whether ZooKeeper stores the quotas; with KRaft the brokers do."""
        return self.servers[0].name == ZOOKEEPER

    @property
    def zookeeper_connect(self) -> str:
        """The address of ZooKeeper; raises a ValueError for a KRaft cluster, which has none."""
        if not self.has_zookeeper:
            raise ValueError("a KRaft cluster has no ZooKeeper")
        return f"127.0.0.1:{self._server(ZOOKEEPER).port}"

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The brokers, with their present or last pids."""
        return tuple(
            Broker(one.broker_id, one.port, self.pids[one.name].pid, one.request_log, one.jolokia_url)
            for one in self._brokers
        )

    def client_settings(self, user: str | None = None) -> dict[str, str]:
        """The properties with which a confluent-kafka client connects.

        Args:
            user: user to log in as; None is the brokers' own user. Without users everyone is ANONYMOUS.
        """
        settings = {"bootstrap.servers": self.bootstrap_servers}
        if self.users:
            name = BROKER_USER if user is None else user
            login = {"sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": self.users[name]}
            settings |= {"security.protocol": "SASL_PLAINTEXT", **login}
        return settings

    def start(self, server: int | str) -> None:
        """Start a stopped or killed server again and wait until it answers; do nothing if it runs."""
        if not self.is_running(server):
            found = self._server(server)
            if found.name == ZOOKEEPER:
                self._start_zookeeper()
            else:
                self._start_brokers([found])

    def is_running(self, server: int | str) -> bool:
        """Whether the server's process runs; a paused process counts as running."""
        pid = self.pids.get(self._server(server).name)
        return pid is not None and processes.is_running(pid)

    def start_all(self) -> None:
        """Start all servers that do not run, ZooKeeper first."""
        if self.has_zookeeper:
            self.start(ZOOKEEPER)
        stopped = [server for server in self._brokers if not self.is_running(server.name)]
        if stopped:
            self._start_brokers(stopped)

    def stop_all(self) -> None:
        """Stop the brokers, then ZooKeeper, which they need for a clean shutdown."""
        brokers = {name for name in self.pids if name != ZOOKEEPER}
        for group in (brokers, self.pids.keys() - brokers):
            processes.stop([self.pids[name] for name in group], grace_s=_STOP_GRACE_S)

    def kill_all(self) -> None:
        """Kill every server, like a crash of the machine."""
        processes.kill(list(self.pids.values()))

    @property
    def _brokers(self) -> tuple[Server, ...]:
        return tuple(server for server in self.servers if server.name != ZOOKEEPER)

    def _launch(self, server: Server) -> None:
        self.pids[server.name] = processes.spawn(
            server.command, directory=server.directory, log=server.log, group=self.group
        )

    def _start_zookeeper(self) -> None:
        server = self._server(ZOOKEEPER)
        self._launch(server)
        answers = partial(readiness.zookeeper_answers, server.port)
        self._wait_until_up(server, answers)

    def _start_brokers(self, servers: list[Server]) -> None:
        """Start brokers at the same time; wait until all answer, and list each other and their topics."""
        # A KRaft node does not answer before it has caught up with its topics.
        topics: set[str] = set()
        if self.has_zookeeper:
            with readiness.connected(self.zookeeper_connect) as zookeeper:
                for server in servers:
                    readiness.wait_until_forgotten(zookeeper, server.broker_id, within_s=_FORGOTTEN_WITHIN_S)
                topics = readiness.existing_topics(zookeeper)
        for server in servers:
            server.format_data(self.group)
            self._launch(server)
        ids = {server.broker_id for server in servers}
        for server in servers:
            answers = partial(readiness.broker_knows, server.port, self.client_settings(), ids, topics)
            self._wait_until_up(server, answers)

    def _wait_until_up(self, server: Server, answers: Callable[[], bool]) -> None:
        readiness.wait_until_up(
            server.name, self.pids[server.name], server.log, answers, within_s=_UP_WITHIN_S
        )

    def _server(self, server: int | str) -> Server:
        name = f"broker-{server}" if isinstance(server, int) else server
        return next(known for known in self.servers if known.name == name)


@contextlib.contextmanager
def embedded_cluster(
    directory: Path, brokers: int = 1, *, settings: BrokerSettings | None = None, jars: Jars | None = None
) -> Iterator[Cluster]:
    """Run a cluster while the block runs; no server outlives this process.

    Args:
        directory: folder for all files of the cluster; created if missing.
        brokers: number of brokers; their ids are 1, 2, ...
        settings: settings of the brokers; None for the defaults.
        jars: the class path, which decides the version; None takes the fetched ones of `conf/ivy.xml`.

    Raises:
        UserError: jars or Java are missing, or a server does not start; the message has its last output.
    """
    with processes.watchdog() as group:
        cluster = start_cluster(directory, brokers, group, settings, jars)
        try:
            yield cluster
        finally:
            try:
                cluster.stop_all()
            finally:
                # A second Ctrl-C may have cut the stopping short.
                processes.kill_group(group)


def start_cluster(
    directory: Path, brokers: int, group: int, settings: BrokerSettings | None, jars: Jars | None = None
) -> Cluster:
    """Start a cluster that only the caller stops; if the start fails, all its servers are killed.

    Args:
        directory: folder for all files of the cluster; created if missing.
        brokers: number of brokers; their ids are 1, 2, ...
        group: process group of a watchdog, in which the servers run.
        settings: settings of the brokers; None for the defaults.
        jars: the class path, which decides the version; None takes the fetched ones of `conf/ivy.xml`.

    Raises:
        UserError: as for `embedded_cluster`.
    """
    chosen, root = settings or BrokerSettings(), directory.resolve()
    class_path = jars or find_jars()
    users = {**chosen.users, BROKER_USER: secrets.token_hex(16)} if chosen.users else {}
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        cluster = Cluster(
            root, prepare(root, brokers, chosen, users.get(BROKER_USER, ""), class_path), users, group
        )
        try:
            cluster.start_all()
        except readiness.PortTakenError:
            cluster.kill_all()
            if attempt == _PORT_ATTEMPTS:
                raise
        except BaseException:
            cluster.kill_all()
            raise
        else:
            return cluster
    raise AssertionError


def logged_lines(log: Path) -> list[bytes]:
    """All complete lines of a request log, oldest first; text after the last line end is still being written."""
    return log.read_bytes().rpartition(b"\n")[0].splitlines()
