"""Streaming, offline replay and restatement give the same decisions, whatever happens on the way.

The input is shuffled within the allowed lateness, a third of it is sent twice, and the whole job is killed (-9) at
four moments: right after the commit of each table, and some time after one. All tables equal an untroubled run's. The
decisions equal those of the replay of the log files, before and after all of it has been restated in batch.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.embedded.cluster import Cluster
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
    started,
)
from tests.support.spark.queries import rows_of
from tests.support.spark.replayed_decisions import differences, replayed

KILLED_AFTER = (("requests", 0.05), ("usage", 0.05), ("decisions", 0.05), ("decisions", 2.0))
"""Commits of tables, in the order of a micro-batch, and at most so long after them: mostly before the next one."""


def _kill_after(config: Path, table: str, after_s: float) -> None:
    """Start the job, which does not end by itself, and kill Python driver and JVM after a commit of a table."""
    log = config.parent / "tables" / table / "_delta_log"
    before = _newest(log)
    process = started(config, job=ENDLESS)
    driver = None
    try:
        give_up_s = time.monotonic() + BEGUN_WITHIN_S
        while _newest(log) == before and process.poll() is None and time.monotonic() < give_up_s:
            time.sleep(0.001)
        time.sleep(after_s)
        driver = driver_pid(str(config.parent / "checkpoints"), "log")
        assert driver is not None and process.poll() is None, "the job has failed before it was killed"
        assert _newest(log) != before, f"no commit of {table}"
        os.kill(driver, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()


def _newest(log: Path) -> str:
    """The newest commit; a table that was only created has none."""
    return max((file.name for file in log.glob("*[1-9]*.json")), default="")


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

    for table, most_s in KILLED_AFTER:
        _kill_after(killed, table, moments.uniform(0, most_s))
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
    assert kinds == {"request": LINES - 1 + COPIES, "unreadable": 1}
