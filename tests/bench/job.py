"""The job as a process, as the benchmarks run it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kquota_spark.embedded.cluster import Cluster
from tests.bench.lines import QUOTAS

MASTER = os.environ.get("BENCH_MASTER", "")
"""Instead of conf/spark-defaults.conf's, e.g. local-cluster[2,1,2048]: two executors in processes of their own."""
TOPIC = "kquota.bench"
_CONFIG = """\
cluster_id: bench
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka: {{bootstrap_servers: "{bootstrap}", topic: {topic}}}
quotas: {{source: file, file: {root}/quotas.yaml}}
stream: {{{stream}}}
"""
_ROOT = Path(__file__).parents[2]


def configured(root: Path, cluster: Cluster, stream: str) -> Path:
    """Write the settings of a job with this section `stream`, and its quotas."""
    config = root / "kquota.yaml"
    text = _CONFIG.format(root=root, bootstrap=cluster.bootstrap_servers, topic=TOPIC, stream=stream)
    config.write_text(text, encoding="utf-8")
    (root / "quotas.yaml").write_text(QUOTAS, encoding="utf-8")
    return config


def spark_submit(script: str, config: Path) -> list[str]:
    """The command line of a script of this repository."""
    command = Path(sys.executable).with_name("spark-submit")
    return [str(command), *(_on_master(MASTER) if MASTER else ()), script, "--config", str(config)]


def _on_master(master: str) -> list[str]:
    options = ["--master", master]
    if match := re.fullmatch(r"local-cluster\[\d+,\d+,(\d+)\]", master):
        options += ["--executor-memory", f"{match[1]}m"]
    # While the job is held nobody hears from the executors.
    for name in ("spark.network.timeout", "spark.worker.timeout"):
        options += ["--conf", f"{name}=1200"]
    return options


def environment() -> dict[str, str]:
    """Of such a command."""
    conf = str(_ROOT / "conf")
    return {
        **os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(_ROOT), "SPARK_CONF_DIR": conf
    }  # fmt: skip


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a process group of its own; ended and waited for."""
    with log.open("wb") as out:
        job = subprocess.Popen(
            command, cwd=_ROOT, env=environment(), stdout=out, stderr=out, start_new_session=True
        )
        try:
            yield job
        finally:
            os.killpg(job.pid, signal.SIGCONT)
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
