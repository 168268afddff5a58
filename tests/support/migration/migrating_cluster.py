"""A ZooKeeper, a broker and a KRaft controller on this machine, taken from one phase of a migration to the next."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import javaproperties

from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.readiness import connected, wait_until_up
from kquota_spark.embedded.servers import Server, free_ports
from kquota_spark.embedded.settings import java_properties
from kquota_spark.embedded.setup.jars import Jars
from kquota_spark.process import processes
from kquota_spark.process.processes import ProcessId
from tests.support.clusters.waiting import until

_CONTROLLER_ID = 3000
_GRACE_S = 30.0
_UP_WITHIN_S = 120.0
_PROPERTIES = "server.properties"
_ENABLED = {"zookeeper.metadata.migration.enable": "true"}
_MIGRATED = b"Completed migration of metadata from ZooKeeper to KRaft"
_PROTOCOLS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}


@dataclass(slots=True)
class MigratingCluster:
    """The servers; each method begins the next phase and returns when it is reached."""

    cluster: Cluster
    controller_port: int
    controllers: list[ProcessId] = field(default_factory=list)

    @property
    def contexts(self) -> Mapping[str, str]:
        """The addresses of both roads."""
        return {"zookeeper": self.cluster.zookeeper_connect, "kafka": self.cluster.bootstrap_servers}

    @property
    def controller_log(self) -> bytes:
        """All output of the controller so far."""
        return self._controller.log.read_bytes()

    def begin_migration(self) -> None:
        """The controller joins, the broker restarts in migration mode, and the metadata is copied: dual write."""
        self._start_controller(is_migrating=True)
        self._restart_broker({**self._quorum, **_ENABLED}, removed=())
        until(lambda: _MIGRATED in self.controller_log)

    def restart_broker_as_kraft(self) -> None:
        """The broker leaves ZooKeeper; the controller still writes to both."""
        removed = ("broker.id", "zookeeper.connect", *_ENABLED, *_OF_ZOOKEEPER)
        self._restart_broker({"process.roles": "broker", "node.id": "1"}, removed)

    def finalise(self) -> None:
        """The controller restarts without ZooKeeper: there is no way back."""
        processes.stop(self.controllers, grace_s=_GRACE_S)
        self.controllers.clear()
        self._start_controller(is_migrating=False)

    @property
    def _broker(self) -> Server:
        return self.cluster.servers[1]

    @property
    def _quorum(self) -> dict[str, str]:
        return {
            "controller.quorum.voters": f"{_CONTROLLER_ID}@127.0.0.1:{self.controller_port}",
            **_PROTOCOLS,
        }

    @property
    def _controller(self) -> Server:
        """The controller, with the command line of the broker in a directory of its own."""
        directory = self.cluster.directory / "controller"
        start = self._broker.command[:-2]
        form = ("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", _PROPERTIES)
        return Server("controller", directory, self.controller_port, self._broker.command, (*start, *form))

    @property
    def _cluster_id(self) -> str:
        file = self._broker.directory / "data" / "meta.properties"
        return javaproperties.loads(file.read_text(encoding="ascii"))["cluster.id"]

    def _start_controller(self, *, is_migrating: bool) -> None:
        controller = self._controller
        controller.directory.mkdir(exist_ok=True)
        shutil.copy(self._broker.directory / "log4j.properties", controller.directory)
        properties = {
            **self._quorum,
            "process.roles": "controller",
            "node.id": str(_CONTROLLER_ID),
            "listeners": f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": "data",
            "broker.session.timeout.ms": "3000",
        }
        if is_migrating:
            properties |= {**_ENABLED, "zookeeper.connect": self.cluster.zookeeper_connect}
        (controller.directory / _PROPERTIES).write_text(java_properties(properties), encoding="ascii")
        controller.format_data(self.cluster.group)
        began = controller.log.stat().st_size if controller.log.exists() else 0
        process = processes.spawn(
            controller.command, directory=controller.directory, log=controller.log, group=self.cluster.group
        )
        self.controllers.append(process)
        wait_until_up(
            "controller", process, controller.log,
            lambda: b"Kafka Server started" in controller.log.read_bytes()[began:], within_s=_UP_WITHIN_S,
        )  # fmt: skip

    def _restart_broker(self, changed: Mapping[str, str], removed: tuple[str, ...]) -> None:
        processes.stop([self.cluster.pids[self._broker.name]], grace_s=_GRACE_S)
        file = self._broker.directory / _PROPERTIES
        properties = javaproperties.loads(file.read_text(encoding="ascii"))
        kept = {name: value for name, value in properties.items() if name not in removed}
        file.write_text(java_properties({**kept, **changed}), encoding="ascii")
        self.cluster.start(1)


_OF_ZOOKEEPER = ("zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms")


@contextlib.contextmanager
def migrating_cluster(directory: Path, jars: Jars | None = None) -> Iterator[MigratingCluster]:
    """A broker with ZooKeeper that can migrate; all servers end with the block.

    Args:
        directory: folder for all files.
        jars: the class path, which decides the version; None takes that of `conf/ivy.xml`.
    """
    with embedded_cluster(directory, jars=jars) as cluster:
        migrating = MigratingCluster(cluster, free_ports(1)[0])
        try:
            yield migrating
        finally:
            # The controller ends after the broker, which needs it for a clean shutdown.
            processes.stop([cluster.pids["broker-1"]], grace_s=_GRACE_S)
            processes.stop(migrating.controllers, grace_s=_GRACE_S)


def kraft_owns(cluster: Cluster) -> bool:
    """Whether a KRaft controller owns the nodes in ZooKeeper."""
    with connected(cluster.zookeeper_connect) as client:
        found = client.get("/controller")[0] if client.exists("/controller") else b"{}"
    return int(json.loads(found).get("kraftControllerEpoch") or -1) >= 0
