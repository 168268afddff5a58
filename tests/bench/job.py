"""The job as a process, as the benchmarks run it, and the cluster whose topic it reads."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.settings import BrokerSettings
from tests.bench.lines import BROKERS, QUOTAS
from tests.bench.processes import end_session
from tests.support.spark.class_archive import quick_environment, quick_words
from tests.support.spark.linked_home import linked_spark_home

MASTER = os.environ.get("BENCH_MASTER", "")
"""Instead of conf/spark-defaults.conf's, e.g. local-cluster[2,1,2048]: two executors in processes of their own."""
PATIENT = {"spark.network.timeout": "1200", "spark.worker.timeout": "1200"}
"""Settings of Spark for a job that is held: nobody hears from the executors meanwhile."""
ALL_REQUESTS = "{root}/tables"
THROTTLED_REQUESTS = "{{location: {root}/tables, requests: throttled}}"
"""Sections `tables` of the configuration: `requests` keeps every line, or those of throttled requests."""
_CONFIG = """\
cluster_id: bench
tables: {tables}
checkpoints: {root}/checkpoints
kafka: {{bootstrap_servers: "{bootstrap}", topic: {topic}}}
quotas: {{source: file, file: {root}/quotas.yaml}}
stream: {{{stream}}}
"""
_ROOT = Path(__file__).parents[2]


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


class Place(NamedTuple):
    """Where one case runs: a cluster, a folder for its files, and a topic that is named after the folder."""

    cluster: Cluster
    root: Path
    is_quick: bool = False
    """Whether its jobs live for seconds, and are started like those of the tests."""

    @property
    def topic(self) -> str:
        """The topic of request-log lines."""
        return f"kquota.{self.root.name}"

    @property
    def config(self) -> Path:
        """The settings of its job."""
        return self.root / "kquota.yaml"

    @property
    def tables(self) -> Path:
        """Where its job writes."""
        return self.root / "tables"

    def case(self, name: str) -> Place:
        """A new place for one more case on the same cluster."""
        root = self.root / name
        root.mkdir()
        return self._replace(root=root)


@contextmanager
def bench_place(settings: BrokerSettings | None = None) -> Iterator[Place]:
    """A cluster of one broker and an empty folder; nothing of them is left after the block, or after SIGTERM."""
    signal.signal(signal.SIGTERM, _end)
    with tempfile.TemporaryDirectory(prefix="kquota-bench-") as name:
        root = Path(name)
        os.environ["SPARK_HOME"] = str(linked_spark_home(root / "spark"))
        with embedded_cluster(root / "cluster", settings=settings) as cluster:
            yield Place(cluster, root)


def configure(place: Place, stream: str, quotas: str = QUOTAS, tables: str = ALL_REQUESTS) -> None:
    """Make the topic, and write the settings and the quotas of a job.

    Args:
        place: where.
        stream: the section `stream`, e.g. `trigger: 1 s`; empty for the defaults.
        quotas: text of the quotas file.
        tables: the section `tables`, with `{root}` for the folder.
    """
    create_topics(place.cluster, {place.topic: BROKERS})
    text = _CONFIG.format(
        root=place.root,
        tables=tables.format(root=place.root),
        bootstrap=place.cluster.bootstrap_servers,
        topic=place.topic,
        stream=stream,
    )
    place.config.write_text(text, encoding="utf-8")
    (place.root / "quotas.yaml").write_text(quotas, encoding="utf-8")


def spark_submit(script: str, place: Place, options: Sequence[str] = ()) -> list[str]:
    """The command line of a script of this repository.

    Args:
        script: its path.
        place: whose settings it reads.
        options: of spark-submit; without any those of `MASTER`.
    """
    command = Path(sys.executable).with_name("spark-submit")
    given = options or (_on_master(MASTER) if MASTER else ())
    words = quick_words() if place.is_quick else ()
    return [str(command), *words, *given, script, "--config", str(place.config)]


def _on_master(master: str) -> list[str]:
    options = ["--master", master]
    if match := re.fullmatch(r"local-cluster\[\d+,\d+,(\d+)\]", master):
        options += ["--executor-memory", f"{match[1]}m"]
    for name, value in PATIENT.items():
        options += ["--conf", f"{name}={value}"]
    return options


def environment(place: Place) -> dict[str, str]:
    """Of such a command."""
    conf = str(_ROOT / "conf")
    ours = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(_ROOT), "SPARK_CONF_DIR": conf}
    quick = quick_environment() if place.is_quick else {}
    return {**os.environ, **ours, **quick, "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def running(command: Sequence[str], place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a session of its own, which prints to job.log; ended with all its processes, and waited for."""
    with (place.root / "job.log").open("wb") as out:
        job = subprocess.Popen(
            command, cwd=_ROOT, env=environment(place), stdout=out, stderr=out, start_new_session=True
        )
        try:
            yield job
        finally:
            end_session(job.pid)
            job.wait()


def end_of_log(place: Place) -> str:
    """The last lines that the job printed."""
    return (place.root / "job.log").read_text(encoding="utf-8", errors="replace")[-4_000:]
