"""A stopped job ends in bounded time with exit code 0, and the next start brings the tables of an untroubled run."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from kquota_spark.checkpoints.driver_lock import driver_pid
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.servers import free_ports
from kquota_spark.process.graceful_stop import STOP_S
from kquota_spark.process.processes import wait_for
from tests.fault.conftest import Run
from tests.support.chance import Chance
from tests.support.clusters.audited_topic import (
    BEGUN_WITHIN_S,
    ENDLESS,
    assert_equal_tables,
    configured,
    finish,
    is_at_work,
    started,
)
from tests.support.programs.exposition_format import parsed_exposition

SCRAPES = 200
PAUSE_S = 20.0
"""The machine itself may stand still for a while when it counts."""


def _stopped(config: Path, send: Callable[[subprocess.Popen[bytes]], None], after_s: float) -> int:
    """Start the job, stop it so long after a query began; the exit code, in bounded time."""
    began_s = time.time()
    process = started(config, job=ENDLESS)
    try:
        # Before a query has begun, Ctrl-C ends a JVM that nobody holds, with 130.
        assert wait_for(
            lambda: is_at_work(config, "*", began_s) or process.poll() is not None, within_s=BEGUN_WITHIN_S
        )
        time.sleep(after_s)
        assert process.poll() is None, "the job has failed before the signal"
        send(process)
        return process.wait(STOP_S + PAUSE_S)
    finally:
        process.kill()
        process.wait()


def test_sigterm_to_spark_submit_then_ctrl_c_leave_every_table_as_an_untroubled_run_does(
    cluster: Cluster, calm: Run, tmp_path: Path, chance: Chance
) -> None:
    [port] = free_ports(1)
    config = configured(tmp_path / "stopped", cluster, f"metrics: {{port: {port}}}")

    # spark-submit's own pid is the JVM: what systemd and Kubernetes signal. Ctrl-C goes to the whole group.
    signals: list[Callable[[subprocess.Popen[bytes]], None]] = [
        lambda process: process.send_signal(signal.SIGTERM),
        lambda process: os.killpg(process.pid, signal.SIGINT),
    ]
    pauses = [chance.uniform(0.0, 0.15) * calm.seconds for _ in signals]
    print("stopped after", [f"{pause:.1f} s" for pause in pauses])
    assert _stopped(config, signals[0], pauses[0]) == 0
    assert "Exception" not in (tmp_path / "stopped" / "audit.log").read_text(encoding="utf-8")
    # Ctrl-C ends the Python workers as well; a task that is just starting one says so.
    assert _stopped(config, signals[1], pauses[1]) == 0

    texts: list[str] = []
    is_over = threading.Event()
    scraper = threading.Thread(target=_scrape, args=(port, texts, is_over))
    scraper.start()
    try:
        finish(config)
    finally:
        is_over.set()
        scraper.join()
    assert len(texts) == SCRAPES
    assert parsed_exposition(texts[-1])["kquota_audit_up"] == {
        (("cluster_id", "disturbed"), ("version", "0.1.0")): 1.0
    }
    assert_equal_tables(calm.root, tmp_path / "stopped")


def _scrape(port: int, texts: list[str], is_over: threading.Event) -> None:
    while len(texts) < SCRAPES and not is_over.is_set():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                texts.append(answer.read().decode())
        except OSError:
            time.sleep(0.1)


def test_a_driver_that_is_signalled_itself_ends_with_0(cluster: Cluster, tmp_path: Path) -> None:
    config = configured(tmp_path / "signalled", cluster)

    def to_the_driver(_: subprocess.Popen[bytes]) -> None:
        pid = driver_pid(str(tmp_path / "signalled" / "checkpoints"), "log")
        assert pid is not None
        os.kill(pid, signal.SIGTERM)

    assert _stopped(config, to_the_driver, 0.0) == 0
