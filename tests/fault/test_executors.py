"""Executors in processes of their own, one of which is killed: the tables are those of one process."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

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
from tests.support.spark.linked_home import linked_spark_home

ON_TWO_EXECUTORS = ("--master", "local-cluster[2,1,1024]", "--executor-memory", "1g", "--driver-memory", "2g")


def _executors(group: int) -> list[int]:
    """Processes of Spark's executors in a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in command and os.getpgid(int(entry.name)) == group:
                found.append(int(entry.name))
        except OSError:  # it has ended meanwhile
            continue
    return sorted(found)


def test_two_executors_one_of_them_killed_leave_the_tables_of_one_process(
    cluster: Cluster, calm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(linked_spark_home(tmp_path / "spark")))
    config = configured(tmp_path / "spread", cluster)
    process = started(config, *ON_TWO_EXECUTORS)
    try:
        # The second micro-batch has begun, and work is left for both executors.
        second = tmp_path / "spread" / "checkpoints" / "log" / "offsets" / "1"
        assert wait_for(
            lambda: (second.exists() and len(_executors(process.pid)) >= 2) or process.poll() is not None,
            within_s=BEGUN_WITHIN_S,
        )
        assert process.poll() is None, "the job has ended before an executor was killed"
        os.kill(_executors(process.pid)[0], signal.SIGKILL)
        log = tmp_path / "spread" / "audit.log"
        assert process.wait(RUN_S) == 0, log.read_text(encoding="utf-8")[-3_000:]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the executors too
        process.wait()
    assert_equal_tables(calm.root, tmp_path / "spread")
