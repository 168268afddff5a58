"""`kquota cluster`: a real Kafka on this machine, with ZooKeeper or KRaft, to try the audit on."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.cli.exit_codes import DONE, ERROR
from kquota_spark.cli.options import DEFAULT_CONFIG, add_form_option
from kquota_spark.cli.text.render import print_answer
from kquota_spark.embedded import detached
from kquota_spark.embedded.setup.jars import ensure_jars

if TYPE_CHECKING:
    from kquota_spark.embedded.cluster import Cluster

COMMANDS = {
    "cluster": (
        "programs",
        "run a real Kafka on this machine, with ZooKeeper or KRaft",
        "kquota cluster up --kraft",
        "kquota cluster down",
    ),
}
CODES = {
    "cluster status": {ERROR: "an error, or not all of it runs"},
}

_DIRECTORY = Path(".kquota") / "cluster"
_MOST_BROKERS = 9


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `cluster up`, `down` and `status`."""
    group = subparsers.add_parser("cluster", description=None)
    commands = group.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start it, and leave it running")
    up.add_argument("--brokers", type=_broker_count, metavar="N", help="how many (default 1, or as before)")
    up.add_argument("--kraft", action="store_true", help="one KRaft node instead of ZooKeeper and brokers")
    up.set_defaults(run=run_up)
    down = commands.add_parser("down", help="stop it; its topics and logs stay in the directory")
    down.set_defaults(run=run_down)
    status = commands.add_parser("status", help="say what runs")
    add_form_option(status, ("table", "json", "yaml"))
    status.set_defaults(run=run_status)
    kept = f"where it is kept (default {_DIRECTORY})"
    for command in (up, down, status):
        command.add_argument("--dir", type=Path, default=_DIRECTORY, metavar="D", help=kept)


def run_up(options: argparse.Namespace) -> int:
    """Start the cluster, or report that it is up."""
    ensure_jars()
    print(f"cluster in {options.dir}: a start takes some seconds", file=sys.stderr, flush=True)
    cluster, started = detached.up(options.dir, options.brokers, is_kraft=options.kraft)
    print("up" if started else "already up")
    _print_addresses(cluster)
    print(f"next              {_next(cluster)}")
    return 0


def _next(cluster: Cluster) -> str:
    """The command that writes settings for the cluster, in a file that does not exist."""
    command = f"kquota init --bootstrap-server {cluster.bootstrap_servers} --yes"
    if not DEFAULT_CONFIG.exists():
        return command
    return f"{command} --config {shlex.quote(str(cluster.directory / 'kquota.yaml'))}"


def run_down(options: argparse.Namespace) -> int:
    """Stop the cluster."""
    print("down" if detached.down(options.dir) else "was not up")
    return 0


def run_status(options: argparse.Namespace) -> int:
    """Report which servers run."""
    cluster = detached.read_cluster(options.dir)
    running = {} if cluster is None else {name: cluster.is_running(name) for name in cluster.pids}
    state = "down" if not any(running.values()) else "up" if all(running.values()) else "degraded"
    if options.output != "table":
        facts = {} if cluster is None else _facts(cluster, running)
        print_answer("kquota cluster status", {"state": state, **facts}, options.output)
    else:
        print(state)
        if cluster is not None and state != "down":
            _print_addresses(cluster)
            for name, runs in running.items():
                print(f"{name:<18}{'runs' if runs else 'does not run'}, pid {cluster.pids[name].pid}")
    return DONE if state == "up" else ERROR


def _facts(cluster: Cluster, running: dict[str, bool]) -> dict[str, object]:
    """Facts for JSON and YAML. The users are left out because they have passwords."""
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        **({"zookeeper_connect": cluster.zookeeper_connect} if cluster.has_zookeeper else {}),
        "directory": str(cluster.directory),
        "servers": [
            {"name": name, "pid": cluster.pids[name].pid, "is_running": runs}
            for name, runs in running.items()
        ],
        "brokers": [
            {"id": broker.id, "port": broker.port, "pid": broker.pid, "request_log": str(broker.request_log)}
            for broker in cluster.brokers
        ],
    }


def _print_addresses(cluster: Cluster) -> None:
    print(f"bootstrap.servers {cluster.bootstrap_servers}")
    if cluster.has_zookeeper:
        print(f"zookeeper.connect {cluster.zookeeper_connect}")
    for broker in cluster.brokers:
        print(f"request log       {broker.request_log}")


def _broker_count(text: str) -> int:
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= _MOST_BROKERS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of brokers from 1 to {_MOST_BROKERS}")
