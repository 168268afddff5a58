"""The whole job with tables and checkpoints on an S3 API, through Spark's S3A, deltalake and Arrow.

The servers are moto, and S3Proxy with its objects on a disk. One driver is paused in the middle of a micro-batch. The
next one is killed in the middle of another, and the first one wakes up. A driver beside the last one is refused. Others
are killed after each commit of a micro-batch. In the end the tables equal those of a run on a local disk, row by row.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyarrow import fs

from kquota_spark.audit.past.maintain import maintain
from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.setup.jars import ensure_jars
from kquota_spark.process.processes import wait_for
from kquota_spark.store.storage import file_system
from tests.bench.lines import START_MS
from tests.fault.conftest import Run
from tests.support.clusters.audited_topic import (
    BEGUN_WITHIN_S,
    ENDLESS,
    MOST_LINES,
    RUN_S,
    assert_equal_tables,
    configured,
    finish,
    started,
)
from tests.support.places import ROOT
from tests.support.programs.s3_server import keys, s3_on_disk, s3_server
from tests.support.spark.durable_steps import AFTER, KILLED, KILLED_AT
from tests.tools import S3A

_DAY_MS = 86_400_000
OF_LOG = (*ENDLESS, "--only", "log")


def on_s3(root: Path, cluster: Cluster, endpoint: str, *, most_lines: int = MOST_LINES) -> Path:
    """Settings with tables and checkpoints there."""
    options = f"{{AWS_ENDPOINT_URL: '{endpoint}', AWS_REGION: us-east-1, AWS_ALLOW_HTTP: 'true',"
    options += " AWS_ACCESS_KEY_ID: key, AWS_SECRET_ACCESS_KEY: secret}"
    config = configured(root, cluster, f"storage_options: {options}", most_lines=most_lines)
    text = config.read_text("utf-8").replace(f"{root}/tables", "s3a://lake/tables")
    text = text.replace(f"{root}/checkpoints", "s3a://lake/checkpoints")
    config.write_text(text.replace("stream: {", "stream: {lease_time: 3 s, "), "utf-8")
    return config


@pytest.fixture
def jars() -> tuple[str, ...]:
    """What spark-submit needs for S3A."""
    directory = ensure_jars(S3A).spark[0].parent
    manager = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
    return (
        *("--conf", f"spark.driver.extraClassPath={directory}/*"),
        *("--conf", f"spark.sql.streaming.checkpointFileManagerClass={manager}"),
    )


@pytest.fixture(params=["moto", "S3Proxy"])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Each server in turn."""
    with s3_server() if request.param == "moto" else s3_on_disk(tmp_path / "objects") as address:
        yield address


def leases(endpoint: str) -> int:
    """How many have been taken: a commit each, after the one that made their table."""
    return sum(key.startswith("checkpoints/leases/_delta_log/") for key in keys(endpoint, "lake")) - 1


def said(root: Path) -> list[str]:
    """What the drivers ended with."""
    lines = (root / "audit.log").read_text("utf-8").splitlines()
    return [line for line in lines if line.startswith("audit: ")]


def ended(process: subprocess.Popen[bytes], within_s: float) -> int:
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        return 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_on_s3_one_driver_paused_one_killed_and_one_refused_leave_the_tables_of_a_local_run(
    cluster: Cluster, calm: Run, tmp_path: Path, jars: tuple[str, ...], endpoint: str
) -> None:
    root = tmp_path / "s3"
    config = on_s3(root, cluster, endpoint)
    paused = started(config, *jars, job=OF_LOG)
    try:
        half = "tables/usage/_delta_log/00000000000000000001.json"
        assert wait_for(
            lambda: half in keys(endpoint, "lake") or paused.poll() is not None, within_s=BEGUN_WITHIN_S
        )
        os.killpg(paused.pid, signal.SIGSTOP)
        # It waits for the lease, and dies when the violations are not yet those of the decisions.
        killed = started(config, *jars, job=OF_LOG, steps={KILLED_AT: f"{AFTER} add decisions"})
        assert ended(killed, BEGUN_WITHIN_S) == KILLED, said(root)
        assert leases(endpoint) == 2
        os.killpg(paused.pid, signal.SIGCONT)
        assert paused.wait(BEGUN_WITHIN_S) == 1
    finally:
        ended(paused, 0)
    (line,) = said(root)
    # Paused in the middle of its beat, it has put its note over that of its successor, and so cannot name it.
    assert re.fullmatch(
        r"audit: s3a://lake/checkpoints: another driver has taken over the lease of log"
        rf"( \(host {re.escape(socket.gethostname())}, pid \d+\))?, so this one has ended: "
        "let one scheduler start it, once",
        line,
    )
    last = started(config, *jars)
    try:
        assert wait_for(lambda: leases(endpoint) == 4 or last.poll() is not None, within_s=BEGUN_WITHIN_S)
        command = [sys.executable, "jobs/audit.py", "--config", str(config), "--drain"]
        second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (second.returncode, last.poll()) == (1, None)
        assert re.fullmatch(
            r"audit: checkpoints s3a://lake/checkpoints are in use by another driver "
            rf"\(pid \d+, host {re.escape(socket.gethostname())}\): "
            "stop it first, or give checkpoints: another path",
            second.stderr.splitlines()[-1],
        )
        assert last.wait(RUN_S) == 0, (root / "audit.log").read_text("utf-8")[-3_000:]
    finally:
        ended(last, 0)
    settings = load_settings(config)
    steps = list(maintain(settings, START_MS + _DAY_MS, is_dry_run=False))
    assert {(step.action, step.note) for step in steps} == {("remove files", "")}
    fetch_tables(settings, root)
    assert_equal_tables(calm.root, root)


COMMITS = ("add requests", "append log_gaps", "add usage", "add decisions", "merge violations")


@pytest.mark.by_hand
def test_on_s3_a_kill_after_each_commit_of_a_micro_batch_costs_no_row(
    cluster: Cluster, calm: Run, tmp_path: Path, jars: tuple[str, ...], endpoint: str
) -> None:
    root = tmp_path / "s3"
    # More micro-batches than kills, so that each of them has seconds that are closed.
    config = on_s3(root, cluster, endpoint, most_lines=1_200)
    for number, step in enumerate(COMMITS, start=1):
        killed = started(config, *jars, job=OF_LOG, steps={KILLED_AT: f"{AFTER} {step}"})
        assert ended(killed, BEGUN_WITHIN_S) == KILLED, (step, said(root))
        # A driver waits until the lease of the killed one is over, and takes it.
        assert leases(endpoint) == number
    finish(config, *jars)
    fetch_tables(load_settings(config), root)
    assert_equal_tables(calm.root, root)


def fetch_tables(settings: Settings, root: Path) -> None:
    """Copy the tables to where those of a local run are."""
    files, path = file_system(settings, "s3a://lake/tables")
    here = fs.LocalFileSystem()
    fs.copy_files(path, str(root / "tables"), source_filesystem=files, destination_filesystem=here)


def test_the_job_tries_s3_from_the_driver_and_from_tasks_and_leaves_nothing(
    cluster: Cluster, tmp_path: Path, jars: tuple[str, ...], endpoint: str
) -> None:
    config = on_s3(tmp_path / "s3", cluster, endpoint)
    assert ended(started(config, *jars, job=("audit.py", "--check-store")), BEGUN_WITHIN_S) == 0
    assert [key for key in keys(endpoint, "lake") if not key.endswith("/")] == []
    lines = (tmp_path / "s3" / "audit.log").read_text("utf-8").splitlines()
    found = [line.rpartition(" (")[0].split(maxsplit=2)[1:] for line in lines if line.startswith("ok ")]
    done = "parts are written, committed, merged and read; of commits of one version one wins"
    manager = "AbortableStreamBasedCheckpointFileManager"
    assert found == [
        ["tables", f"s3a://lake/tables: by this process {done}"],
        ["checkpoints", "s3a://lake/checkpoints: notes are written, replaced and read"],
        ["tables", f"s3a://lake/tables: by tasks of Spark on {socket.gethostname()} {done}"],
        ["checkpoints", f"s3a://lake/checkpoints: Spark writes ({manager}), Arrow reads"],
    ]
