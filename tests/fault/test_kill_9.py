"""Streaming, offline replay and restatement give the same decisions, whatever happens on the way.

The input is shuffled within the allowed lateness, a third of it is sent twice, and the whole job is killed (-9) at
three random moments: all tables equal an untroubled run's, and the decisions equal those of the replay of the log
files, before and after all of it has been restated in batch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.processes import wait_for
from kquota_spark.io.driver_lock import driver_pid
from tests.fault.conftest import Run
from tests.support.chance import drawn
from tests.support.clusters.audited_topic import (
    BEGUN_WITHIN_S,
    COPIES,
    ENDLESS,
    LINES,
    as_written,
    assert_equal_tables,
    configured,
    finish,
    is_at_work,
    started,
)
from tests.support.spark.hops import rows_of
from tests.support.spark.replayed_decisions import differences, replayed

KILLED_IN = ("ingest", "measure", "judge")
FOLLOWED_BY = {"ingest": "measure", "measure": "judge"}
"""When the next query has begun, it is high time."""
MOST_S = 3.0  # after a micro-batch of the query has begun


def _kill_in(config: Path, hop: str, after_s: float) -> None:
    """Start the job, which does not end by itself, and kill JVM and Python driver together in a query."""
    began_s = time.time()
    process = started(config, job=ENDLESS)
    try:
        assert wait_for(
            lambda: is_at_work(config, hop, began_s) or process.poll() is not None, within_s=BEGUN_WITHIN_S
        )
        following = FOLLOWED_BY.get(hop, "none")
        wait_for(lambda: is_at_work(config, following, began_s), within_s=after_s)
        driver = driver_pid(str(config.parent / "checkpoints"), "ingest")
        assert driver is not None and process.poll() is None, "the job has failed before it was killed"
    finally:
        process.kill()
        process.wait()
    with contextlib.suppress(ProcessLookupError):  # it may have noticed the death of its JVM first
        os.kill(driver, signal.SIGKILL)


def _log_files(directory: Path) -> list[tuple[int, Path]]:
    """The lines as each broker has written them."""
    by_broker: dict[int, list[bytes]] = {}
    for line in as_written():
        by_broker.setdefault(line.broker_id, []).append(line.text)
    directory.mkdir()
    for broker_id, texts in by_broker.items():
        (directory / f"broker-{broker_id}.log").write_bytes(b"\n".join(texts))
    return [(broker_id, directory / f"broker-{broker_id}.log") for broker_id in sorted(by_broker)]


def test_kills_shuffle_and_copies_change_no_decision(cluster: Cluster, calm: Run, tmp_path: Path) -> None:
    moments = drawn()
    killed = configured(tmp_path / "killed", cluster)

    for hop in KILLED_IN:
        _kill_in(killed, hop, moments.uniform(0, MOST_S))
    finish(killed)

    assert_equal_tables(calm.root, tmp_path / "killed")
    expected = replayed(_log_files(tmp_path / "logs"), calm.root / "quotas.yaml")
    tables = Settings(tables=str(tmp_path / "killed" / "tables"))
    assert differences(expected, rows_of(tables, "decisions")) == []

    # All of it again in batch, through the same functions.
    seconds = [row["second"] for row in expected]
    stretch = ("--from", str(min(seconds)), "--to", str(max(seconds) + 1_000))
    finish(killed, job=("restate.py", *stretch))
    assert_equal_tables(calm.root, tmp_path / "killed")
    assert differences(expected, rows_of(tables, "decisions")) == []
    counts = duckdb.connect()
    counts.register("requests", DeltaTable(str(tmp_path / "killed/tables/requests")).to_pyarrow_dataset())
    kinds = dict(counts.execute("SELECT kind, count(*) FROM requests GROUP BY kind").fetchall())
    assert kinds == {"request": LINES - 1 + COPIES, "unreadable": 1, "heartbeat": 1}
