"""Runs that a scheduler starts: one after the other they add nothing twice, and a second one at a time is refused."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from kquota_spark.checkpoints.driver_lock import driver_pid
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.process.processes import wait_for
from tests.support.clusters.audited_topic import (
    BEGUN_WITHIN_S,
    RUN_S,
    assert_equal_tables,
    configured,
    finish,
    started,
)

ONCE = ("audit.py", "--once")


def test_a_second_run_adds_nothing_and_one_beside_the_first_is_refused_in_one_line(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = configured(tmp_path / "first", cluster)
    first = started(config, job=ONCE)
    try:
        checkpoints, log = str(tmp_path / "first" / "checkpoints"), tmp_path / "first" / "audit.log"
        assert wait_for(
            lambda: driver_pid(checkpoints, "log") is not None or first.poll() is not None,
            within_s=BEGUN_WITHIN_S,
        )
        assert first.poll() is None
        try:
            # However fast it is, it does not end before the second has looked.
            os.killpg(first.pid, signal.SIGSTOP)
            beside = started(config, job=ONCE)
            try:
                assert beside.wait(BEGUN_WITHIN_S) == 1
            finally:
                beside.kill()
                beside.wait()
        finally:
            os.killpg(first.pid, signal.SIGCONT)
        said = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("audit: ")]
        pid = driver_pid(checkpoints, "log")
        assert said == [
            (
                f"audit: checkpoints {tmp_path}/first/checkpoints are in use by another driver (pid {pid}): "
                "stop it first, or give checkpoints: another path"
            )
        ]
        assert first.wait(RUN_S) == 0, log.read_text(encoding="utf-8")[-3_000:]
    finally:
        first.kill()
        first.wait()
    shutil.copytree(tmp_path / "first", tmp_path / "once")
    finish(config, job=ONCE)
    assert_equal_tables(tmp_path / "once", tmp_path / "first")
