"""A cluster that keeps running after the command that started it; a state file in its directory describes it.

The state file contains the id and the start time of every process. So `down` never signals a process that merely got
the id of a broker that ended long ago.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kquota_spark.embedded.cluster import Cluster, start_cluster
from kquota_spark.embedded.servers import ZOOKEEPER, Server
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.errors import UserError
from kquota_spark.process import processes
from kquota_spark.process.processes import ProcessId
from kquota_spark.process.replaced_file import write_whole

STATE_FILE = "cluster.json"


def up(directory: Path, brokers: int | None = None, *, is_kraft: bool = False) -> tuple[Cluster, bool]:
    """Start a cluster, or those of its servers that have died; return it, and whether anything was started.

    Without a number of brokers the directory decides: as many as it holds, at least one. It keeps its kind.

    Raises:
        UserError: it runs with another number of brokers, is of the other kind, or a server does not start.
    """
    settings = BrokerSettings(kraft=_is_kraft(directory, is_asked=is_kraft))
    if settings.kraft and brokers not in (None, 1):
        raise UserError("a KRaft cluster here is one node: leave the number of brokers out")
    # The watchdog guards only the start: if this process is killed before it has written the state file,
    # the servers would run on unknown.
    with _only_one(directory), processes.watchdog() as group:
        cluster = read_cluster(directory)
        if cluster is None or not any(map(cluster.is_running, cluster.pids)):
            count = brokers or max(1, len(list(directory.glob("broker-*"))))
            cluster = start_cluster(directory, count, group, settings)
        elif brokers not in (None, len(cluster.brokers)):
            msg = f"{directory}: a cluster of {len(cluster.brokers)} brokers is up: kquota cluster down first"
            raise UserError(msg)
        elif all(map(cluster.is_running, cluster.pids)):
            return cluster, False
        else:
            cluster = replace(cluster, group=group)
            try:
                cluster.start_all()
            finally:
                # Even a partial restart has new processes, and `down` needs their ids.
                _write(cluster)
        _write(cluster)
        return cluster, True


def _is_kraft(directory: Path, *, is_asked: bool) -> bool:
    """Whether the cluster in a directory is of the kind KRaft; for a new one, whether KRaft is asked for."""
    if (directory / ZOOKEEPER).exists():
        if is_asked:
            raise UserError(f"{directory} holds a cluster with ZooKeeper: name another directory with --dir")
        return False
    return is_asked or (directory / "broker-1").exists()


def down(directory: Path) -> bool:
    """Stop the cluster; return false if none was running."""
    if not (directory / STATE_FILE).exists():
        return False
    with _only_one(directory):
        cluster = read_cluster(directory)
        if cluster is None:
            return False
        was_running = any(map(cluster.is_running, cluster.pids))
        cluster.stop_all()
        (directory / STATE_FILE).unlink(missing_ok=True)
        return was_running


def read_cluster(directory: Path) -> Cluster | None:
    """The cluster that the state file describes, running or not; None if there is no state file."""
    path = directory / STATE_FILE
    try:
        state = json.loads(path.read_bytes())
        servers = tuple(
            Server(entry["name"], directory.resolve() / entry["name"], entry["port"], tuple(entry["command"]))
            for entry in state["servers"]
        )
        pids = {entry["name"]: ProcessId(entry["pid"], entry["started"]) for entry in state["servers"]}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{path}: cannot be read: stop the processes that run in {directory} by hand, then delete it"
        raise UserError(msg) from error
    return Cluster(directory.resolve(), servers, state.get("users", {}), None, pids)


def _write(cluster: Cluster) -> None:
    servers = [
        {
            "name": server.name,
            "port": server.port,
            "pid": cluster.pids[server.name].pid,
            "started": cluster.pids[server.name].started,
            "command": server.command,
        }
        for server in cluster.servers
        if server.name in cluster.pids
    ]
    state = {
        "bootstrap_servers": cluster.bootstrap_servers,
        **({"zookeeper_connect": cluster.zookeeper_connect} if cluster.has_zookeeper else {}),
        "servers": servers,
        "users": dict(cluster.users),
    }
    # With users the file contains their passwords.
    write_whole(cluster.directory / STATE_FILE, (json.dumps(state, indent=1) + "\n").encode(), 0o600)


@contextlib.contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "cluster.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
