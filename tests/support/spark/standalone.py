"""A Spark standalone cluster on this machine, by the commands of docs/spark-cluster.md.

Each node has a Python of its own choice. `bare_python` is one as on a node with the dependencies alone: our package is
only there if the job brings it.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from kquota_spark.embedded.servers import free_ports
from kquota_spark.process.processes import (
    ProcessId,
    is_running,
    kill,
    kill_group,
    spawn,
    wait_for,
    watchdog,
)
from tests.bench.processes import descendants, kill_all
from tests.support.places import ROOT

_PAGE = ROOT / "kquota_spark" / "docs" / "spark-cluster.md"
_HEADING = "## A standalone cluster"
_HOST = "127.0.0.1"
_UP_WITHIN_S = 120.0
_DAEMONS = {
    "SPARK_LOCAL_IP": _HOST,
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
SOON = {
    "spark.worker.timeout": "20",
    "spark.network.timeout": "40s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "5s",
}
"""A lost node is noticed soon, also if its sockets stay open; Spark's own limits are minutes."""


@dataclass(frozen=True)
class SparkCluster:
    """A master and its nodes.

    Attributes:
        url: of the master.
        properties: the file with the secret, for daemons and applications.
        page: port of the master's web page.
        processes: the master, then the workers; each worker has its executors below it.
    """

    url: str
    properties: Path
    page: int
    processes: tuple[ProcessId, ...]

    def options(self, package: Path | None = None) -> tuple[str, ...]:
        """Arguments of spark-submit, as on the page.

        Args:
            package: the zip of our package that goes to the executors; None: the nodes have it.
        """
        *_, submit = _commands()
        given = submit[submit.index("--master") : submit.index("jobs/audit.py")]
        names = {"standalone.conf": str(self.properties), "kquota_spark.zip": str(package)}
        found = [names.get(each, self.url if each.startswith("spark://") else each) for each in given]
        if package is None:
            at = found.index("--py-files")
            del found[at : at + 2]
        return tuple(found)

    def executors(self, node: int) -> list[int]:
        """Processes of the executors on a node, counted from 1."""
        return [pid for pid in descendants(self.processes[node].pid) if _is_executor(pid)]

    def kill_node(self, node: int) -> None:
        """End a node as a power cut would: its worker, its executors and their Python."""
        worker = self.processes[node].pid
        kill_all([worker, *descendants(worker)])
        kill([self.processes[node]])

    def alive_nodes(self) -> int:
        """How many nodes the master believes in; 0 if it does not answer.

        A master that is just starting answers with its page, and not with JSON.
        """
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{self.page}/json/", timeout=2) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, json.JSONDecodeError):
            return 0


@contextmanager
def standalone(
    root: Path, *, nodes: int = 2, conf: Mapping[str, str] | None = None, python: str = sys.executable
) -> Iterator[SparkCluster]:
    """A cluster for as long as the block runs; no process of it is left, also if this one is killed.

    Args:
        root: a directory that is not there yet, for its files.
        nodes: how many workers, each with the cores and the memory of the page.
        conf: further settings of all daemons and applications, by name.
        python: of the nodes, which they have without our package unless it finds it by itself.
    """
    root.mkdir(parents=True)
    page, port, *pages = free_ports(2 + nodes)
    properties = _properties(root, conf or {})
    master, worker, *_ = _commands()
    url = f"spark://{_HOST}:{port}"
    started = list[ProcessId]()
    with watchdog() as group:
        places = {"--host": _HOST, "--port": str(port), "--properties-file": str(properties)}
        commands = [_placed(master, {**places, "--webui-port": str(page)})]
        for number, of_worker in enumerate(pages, start=1):
            of_node = {**places, "--webui-port": str(of_worker), "--work-dir": str(root / f"node-{number}")}
            commands.append([*_placed(worker, of_node)[:-1], url])
        try:
            for number, command in enumerate(commands):
                log = root / ("master.log" if number == 0 else f"node-{number}.log")
                started.append(spawn(_in_environment(command, python), directory=root, log=log, group=group))
            cluster = SparkCluster(url, properties, page, tuple(started))

            def has_ended() -> bool:
                return not all(map(is_running, started))

            wait_for(lambda: has_ended() or cluster.alive_nodes() == nodes, within_s=_UP_WITHIN_S)
            if has_ended() or cluster.alive_nodes() != nodes:
                raise RuntimeError("\n".join(each.read_text(errors="replace") for each in root.glob("*.log")))
            yield cluster
        finally:
            below = [pid for each in started if is_running(each) for pid in descendants(each.pid)]
            kill_group(group)
            kill_all(below)  # Python of the executors has groups of its own
            kill(started)


def zipped_package(into: Path) -> Path:
    """The package as the page zips it, in a directory."""
    target = into / "kquota_spark.zip"
    with ZipFile(target, "w") as archive:
        for file in sorted((ROOT / "kquota_spark").rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(ROOT))
    return target


def bare_python(into: Path) -> Path:
    """This Python with all installed packages but ours, as a program in a directory.

    An editable install is a hook that only `site` switches on.
    """
    program = into / "python"
    packages = sysconfig.get_path("purelib")
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{packages}" exec {sys.executable} -S "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program


def _commands() -> list[list[str]]:
    """The commands of the page's section: of the master, of a worker, of the job."""
    blocks = re.findall(r"```sh\n(.*?)```", _section(), re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line[line.index("spark-") :]) for line in lines if "spark-" in line]


def _properties(root: Path, further: Mapping[str, str]) -> Path:
    """The page's file with a secret of this cluster, and with further settings."""
    (block,) = re.findall(r"```properties\n(.*?)```", _section(), re.DOTALL)
    file = root / "standalone.conf"
    file.touch(mode=0o600)
    lines = [
        block.replace("CHANGE-ME", secrets.token_hex(16)),
        *(f"{name} {further[name]}\n" for name in further),
    ]
    file.write_text("".join(lines), encoding="ascii")
    return file


def _section() -> str:
    text = _PAGE.read_text(encoding="utf-8")
    return text[text.index(_HEADING) :].split("\n## ", 1)[0]


def _placed(command: Sequence[str], places: Mapping[str, str]) -> list[str]:
    """A command of the page with the values of this cluster for some of its options."""
    return [
        places.get(command[index - 1], each) if index and command[index - 1].startswith("--") else each
        for index, each in enumerate(command)
    ]


def _in_environment(command: Sequence[str], python: str) -> list[str]:
    """A command of the page with the environment of a node."""
    program = str(Path(sys.executable).with_name(command[0]))
    given = [f"{name}={value}" for name, value in {**_DAEMONS, "PYSPARK_PYTHON": python}.items()]
    unset = [] if python == sys.executable else ["-u", "PYTHONPATH"]
    return ["env", *unset, *given, program, *command[1:]]


def _is_executor(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return False
    return b"CoarseGrainedExecutorBackend" in command
