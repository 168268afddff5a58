"""kill -9 of the whole job at random moments loses and doubles nothing: the tables equal an untroubled run's."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.io.driver_lock import driver_pid
from tests.fault.audited_topic import LINES, assert_equal_tables, configured, finish, started
from tests.fault.conftest import Run

pytestmark = pytest.mark.integration

KILLS = 3


def _kill_after(config: Path, seconds: float) -> bool:
    """Start the job and kill JVM and Python driver together; whether it was still at work."""
    process = started(config)
    try:
        time.sleep(seconds)
        is_at_work = process.poll() is None
        driver = driver_pid(str(config.parent / "checkpoints"), "ingest")
    finally:
        process.kill()
        process.wait()
    if driver is not None and is_at_work:
        with contextlib.suppress(ProcessLookupError):  # it may have noticed the death of its JVM first
            os.kill(driver, signal.SIGKILL)
    return is_at_work


@pytest.mark.timeout(1_800)
def test_three_kills_leave_every_table_as_an_untroubled_run_does(
    cluster: Cluster, calm: Run, tmp_path: Path
) -> None:
    seed = int(os.environ.get("KQUOTA_SEED", random.randrange(2**32)))
    print(f"seed {seed} (KQUOTA_SEED repeats it)")
    moments = random.Random(seed)
    killed = configured(tmp_path / "killed", cluster)

    # From about the start of the queries to shortly before the end.
    pauses = [moments.uniform(0.3, 0.8) * calm.seconds for _ in range(KILLS)]
    print("killed after", [f"{pause:.1f} s" for pause in pauses], f"of {calm.seconds:.1f} s")
    was_at_work = [_kill_after(killed, pause) for pause in pauses]
    finish(killed)

    assert was_at_work[0], "the first kill came after the end: nothing was tested"
    assert_equal_tables(calm.root, tmp_path / "killed")
    counts = duckdb.connect()
    counts.register("requests", DeltaTable(str(tmp_path / "killed/tables/requests")).to_pyarrow_dataset())
    kinds = dict(counts.execute("SELECT kind, count(*) FROM requests GROUP BY kind").fetchall())
    assert kinds == {"request": LINES - 1, "unreadable": 1, "heartbeat": 1}
