"""Runs that a scheduler starts: one after the other they add nothing twice, and a second one at a time is refused."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
from pathlib import Path

from deltalake import DeltaTable

from kquota_spark.checkpoints.driver_lock import driver_pid
from kquota_spark.checkpoints.runs import begun_run
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.process.processes import wait_for
from kquota_spark.schema.columns import VERSION_PROPERTY
from tests.fault.conftest import Run
from tests.support.clusters.audited_topic import (
    BEGUN_WITHIN_S,
    ENDLESS,
    RUN_S,
    assert_equal_tables,
    configured,
    finish,
    started,
)
from tests.support.spark.queries import settings_at

ONCE = ("audit.py", "--once")


def as_it_is(root: Path) -> dict[str, bytes]:
    """All files of tables and checkpoints; a version of a table is a file of its log."""
    folders = (root / "tables", root / "checkpoints")
    return {str(path): path.read_bytes() for each in folders for path in each.rglob("*") if path.is_file()}


def test_a_second_run_adds_nothing_and_one_beside_the_first_is_refused_in_one_line(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = configured(tmp_path / "first", cluster)
    first = started(config, job=ONCE)
    try:
        checkpoints, log = str(tmp_path / "first" / "checkpoints"), tmp_path / "first" / "audit.log"
        assert wait_for(
            lambda: Path(checkpoints, "log.run.json").exists() or first.poll() is not None,
            within_s=BEGUN_WITHIN_S,
        )
        assert first.poll() is None
        try:
            # However fast it is, it does not end before the second has looked.
            os.killpg(first.pid, signal.SIGSTOP)
            # A start raises the schema of a table of an older release.
            gaps = DeltaTable(f"{tmp_path}/first/tables/log_gaps")
            gaps.alter.set_table_properties({VERSION_PROPERTY: "1"}, raise_if_not_exists=False)
            before = as_it_is(tmp_path / "first")
            beside = started(config, job=ONCE)
            try:
                assert beside.wait(BEGUN_WITHIN_S) == 1
            finally:
                beside.kill()
                beside.wait()
            assert as_it_is(tmp_path / "first") == before
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


def test_a_driver_that_another_host_has_replaced_ends_with_one_line_and_the_next_start_continues(
    cluster: Cluster, calm: Run, tmp_path: Path
) -> None:
    root = tmp_path / "replaced"
    config = configured(root, cluster, most_lines=2_000)
    first = started(config, job=(*ENDLESS, "--only", "log"))
    try:
        third = root / "checkpoints" / "log" / "offsets" / "2"
        assert wait_for(lambda: third.exists() or first.poll() is not None, within_s=BEGUN_WITHIN_S)
        assert first.poll() is None, "the job has ended before it was replaced"
        # What a driver does there that the lock of this host does not stop.
        begun_run(settings_at(root), "log")
        assert first.wait(RUN_S) == 1
    finally:
        first.kill()
        first.wait()
    said = [
        line for line in (root / "audit.log").read_text("utf-8").splitlines() if line.startswith("audit: ")
    ]
    at = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", said[0])
    assert [at, *said[1:]] == [
        (
            f"audit: checkpoint {root}/checkpoints/log: another driver took it over at DATE UTC "
            f"(host {socket.gethostname()}, pid {os.getpid()}), so this one has ended: "
            "let one scheduler start the audit, once"
        )
    ]
    finish(config)
    assert_equal_tables(calm.root, root)
