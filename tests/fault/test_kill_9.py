"""kill -9 of the whole job at random moments loses and doubles nothing: the tables equal an untroubled run's."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.topics import create_topics
from kquota_spark.io.driver_lock import driver_pid
from tests.bench.lines import QUOTAS, lines

pytestmark = pytest.mark.integration

LINES = 20_000
LINES_PER_S = 400  # 50 s of log time
TOPIC = "kquota.killed"
KILLS = 3
_ROOT = Path(__file__).parents[2]
_RUN_S = 400
_CONFIG = """\
cluster_id: killed
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka: {{bootstrap_servers: "{bootstrap}", topic: {topic}, max_lines_per_trigger: 5000}}
quotas: {{source: file, file: {root}/quotas.yaml}}
stream: {{allowed_lateness: 5 s, max_files_per_trigger: 2}}
"""
_COMMIT_METADATA = {"quota_changes": ("observed_at",)}
"""When the watcher of a run saw an edit; all other columns of all tables are compared."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with embedded_cluster(tmp_path_factory.mktemp("cluster")) as running:
        create_topics(running, {TOPIC: 2})
        producer = Producer({**running.client_settings(), "queue.buffering.max.messages": LINES})
        for index, line in enumerate(lines(range(LINES), lines_per_s=LINES_PER_S)):
            key = str(line.broker_id).encode()
            # The last line is cut in half: unreadable lines have to come through the kills too.
            text = line.text[:300] if index == LINES - 1 else line.text
            producer.produce(TOPIC, text, key, partition=line.broker_id % 2, timestamp=1_795_246_000_000)
        producer.flush()
        yield running


def _config(root: Path, cluster: Cluster) -> Path:
    root.mkdir(parents=True)
    (root / "quotas.yaml").write_text(QUOTAS, encoding="utf-8")
    text = _CONFIG.format(root=root, bootstrap=cluster.bootstrap_servers, topic=TOPIC)
    (root / "kquota.yaml").write_text(text, encoding="utf-8")
    return root / "kquota.yaml"


def _start(config: Path) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).with_name("spark-submit")), "jobs/audit.py"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(_ROOT / "conf")}
    with (config.parent / "audit.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--config", str(config), "--drain"],
            cwd=_ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip


def _finish(config: Path) -> None:
    process = _start(config)
    try:
        assert process.wait(_RUN_S) == 0, (config.parent / "audit.log").read_text(encoding="utf-8")[-3_000:]
    finally:
        process.kill()


def _kill_after(config: Path, seconds: float) -> bool:
    """Start the job and kill JVM and Python driver together; whether it was still at work."""
    process = _start(config)
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


def _differences(name: str, one: Path, other: Path) -> list[tuple[object, ...]]:
    """Rows that only one of two tables has, copies counted."""
    connection = duckdb.connect()
    for alias, root in (("a", one), ("b", other)):
        connection.register(alias, DeltaTable(str(root / "tables" / name)).to_pyarrow_dataset())
    left_out = _COMMIT_METADATA.get(name, ())
    columns = "* EXCLUDE (" + ", ".join(left_out) + ")" if left_out else "*"
    return connection.execute(
        f"(SELECT {columns} FROM a EXCEPT ALL SELECT {columns} FROM b) UNION ALL "
        f"(SELECT {columns} FROM b EXCEPT ALL SELECT {columns} FROM a) LIMIT 5"
    ).fetchall()


@pytest.mark.timeout(1_800)
def test_three_kills_leave_every_table_as_an_untroubled_run_does(cluster: Cluster, tmp_path: Path) -> None:
    seed = int(os.environ.get("KQUOTA_SEED", random.randrange(2**32)))
    print(f"seed {seed} (KQUOTA_SEED repeats it)")
    moments = random.Random(seed)
    calm, killed = _config(tmp_path / "calm", cluster), _config(tmp_path / "killed", cluster)
    started_s = time.monotonic()
    _finish(calm)
    calm_s = time.monotonic() - started_s

    # From about the start of the queries to shortly before the end.
    pauses = [moments.uniform(0.3, 0.8) * calm_s for _ in range(KILLS)]
    print("killed after", [f"{pause:.1f} s" for pause in pauses], f"of {calm_s:.1f} s")
    was_at_work = [_kill_after(killed, pause) for pause in pauses]
    _finish(killed)

    assert was_at_work[0], "the first kill came after the end: nothing was tested"
    for name in ("requests", "usage", "decisions", "violations", "quota_changes", "quota_rules"):
        assert _differences(name, tmp_path / "calm", tmp_path / "killed") == [], name
    counts = duckdb.connect()
    counts.register("requests", DeltaTable(str(tmp_path / "killed/tables/requests")).to_pyarrow_dataset())
    kinds = dict(counts.execute("SELECT kind, count(*) FROM requests GROUP BY kind").fetchall())
    assert kinds == {"request": LINES - 1, "unreadable": 1, "heartbeat": 1}
