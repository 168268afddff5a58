"""A Spark standalone cluster with logins, whose nodes get our package from the job, leaves the tables of one process.

A node is killed in mid-batch, then the driver, which is started again.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.process.processes import wait_for
from tests.fault.conftest import Run
from tests.support.clusters.audited_topic import (
    BEGUN_WITHIN_S,
    RUN_S,
    assert_equal_tables,
    configured,
    started,
)
from tests.support.spark.standalone import SOON, SparkCluster, bare_python, standalone, zipped_package


def _places_of_the_secret(spark: SparkCluster, root: Path) -> list[Path]:
    """Command lines of processes, and files below a folder, that show the secret of a cluster; its own file may."""
    found = re.search(rb"spark.authenticate.secret +(\S+)", spark.properties.read_bytes())
    assert found is not None
    places = []
    for file in [*Path("/proc").glob("[0-9]*/cmdline"), *root.rglob("*")]:
        with contextlib.suppress(OSError):  # a folder, or it has gone
            if found[1] in file.read_bytes() and file != spark.properties:
                places.append(file)
    return places


class _Job:
    """The job on a cluster, as docs/spark-cluster.md has it."""

    def __init__(self, config: Path, spark: SparkCluster, package: Path, python: Path) -> None:
        environment = {
            "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": str(package),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        options = (*spark.options(package), "--driver-memory", "1g")
        self._log = config.parent / "audit.log"
        self._batches = config.parent / "checkpoints" / "log"
        self.process = started(config, *options, environment=environment)

    def newest(self, part: str) -> int:
        """The newest micro-batch of the query `log` of which there are offsets, or commits; -1 without any."""
        names = [each.name for each in (self._batches / part).glob("*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def is_amid(self, batch: int) -> bool:
        """Whether this micro-batch or a later one has begun and has not been committed."""
        return self.newest("offsets") >= batch and self.newest("commits") < self.newest("offsets")

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until something holds while the job runs."""
        assert wait_for(lambda: condition() or self.process.poll() is not None, within_s=BEGUN_WITHIN_S)
        assert self.process.poll() is None, f"the job has ended too early: {self.text()}"

    def text(self) -> str:
        """The end of what it printed."""
        return self._log.read_text(encoding="utf-8")[-3_000:]

    def kill(self) -> None:
        """End the driver at once: its JVM and its Python."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def test_a_cluster_that_loses_a_node_and_its_driver_leaves_the_tables_of_one_process(
    cluster: Cluster, calm: Run, tmp_path: Path
) -> None:
    config = configured(tmp_path / "spread", cluster)
    package, python = zipped_package(tmp_path), bare_python(tmp_path)
    # On the nodes there is no package but what the job brings.
    alone = [str(python), "-c", "import pyspark, deltalake, kquota_spark"]
    done = subprocess.run(
        alone, cwd="/", env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'kquota_spark'"

    with standalone(tmp_path / "spark", conf=SOON, python=str(python)) as spark:
        first = _Job(config, spark, package, python)
        try:
            first.wait(lambda: bool(spark.executors(1) and spark.executors(2)))
            assert _places_of_the_secret(spark, tmp_path) == []
            first.wait(lambda: first.is_amid(1))
            lost_in = first.newest("offsets")
            spark.kill_node(1)
            # The same driver commits that micro-batch with the other node, and is killed in a later one.
            first.wait(lambda: first.newest("commits") >= lost_in and first.is_amid(lost_in + 1))
        finally:
            first.kill()
        assert spark.alive_nodes() == 1
        killed_in = first.newest("offsets")

        second = _Job(config, spark, package, python)
        try:
            assert second.process.wait(RUN_S) == 0, second.text()
            assert second.newest("commits") > killed_in
        finally:
            second.kill()
        assert _places_of_the_secret(spark, tmp_path) == []
    assert_equal_tables(calm.root, tmp_path / "spread")
