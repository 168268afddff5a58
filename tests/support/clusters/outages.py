"""What befalls a server of an embedded cluster: each is named `"zookeeper"`, or by the id of a broker."""

from __future__ import annotations

import signal

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.process import processes
from kquota_spark.process.processes import ProcessId

_STOP_GRACE_S = 15.0


def _pid(cluster: Cluster, server: int | str) -> ProcessId:
    return cluster.pids[f"broker-{server}" if isinstance(server, int) else server]


def kill(cluster: Cluster, server: int | str) -> None:
    """Kill a server as a crash does."""
    processes.kill([_pid(cluster, server)])


def pause(cluster: Cluster, server: int | str) -> None:
    """Freeze a server; its connections stay open, and nothing is answered from here on."""
    processes.pause(_pid(cluster, server))


def resume(cluster: Cluster, server: int | str) -> None:
    """Let a frozen server go on."""
    processes.send(_pid(cluster, server), signal.SIGCONT)


def restart(cluster: Cluster, server: int | str) -> None:
    """Stop a server with a controlled shutdown, as an operator does, and start it again."""
    processes.stop([_pid(cluster, server)], grace_s=_STOP_GRACE_S)
    cluster.start(server)
