"""Streaming, offline replay and restatement give the same decisions, whatever happens on the way.

The input is shuffled within the allowed lateness, a third of it is sent twice, and the whole job is killed (-9) at
three random moments: all tables equal an untroubled run's, and the decisions equal those of the replay of the log
files, before and after all of it has been restated in batch.
"""

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

from kquota_spark.config.settings import Settings
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.topics import create_topics
from kquota_spark.io.driver_lock import driver_pid
from tests.bench.lines import QUOTAS, Line, lines
from tests.fault.audited_topic import assert_equal_tables
from tests.spark.conftest import rows_of
from tests.spark.replayed_decisions import differences, replayed

pytestmark = pytest.mark.integration

LINES = 20_000
LINES_PER_S = 400  # 50 s of log time
SHUFFLED_S = 2.0  # of the 5 s of lateness; the micro-batches of two partitions take the rest
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with embedded_cluster(tmp_path_factory.mktemp("cluster")) as running:
        create_topics(running, {TOPIC: 2})
        producer = Producer({**running.client_settings(), "queue.buffering.max.messages": LINES})
        for line in _as_sent():
            key = str(line.broker_id).encode()
            producer.produce(TOPIC, line.text, key, partition=line.broker_id % 2, timestamp=1_795_246_000_000)
        producer.flush()
        yield running


def _as_written() -> list[Line]:
    """The lines in order; the last one is cut in half: unreadable lines have to come through the kills too."""
    *whole, last = lines(range(LINES), lines_per_s=LINES_PER_S)
    return [*whole, Line(last.broker_id, last.text[:300])]


def _as_sent() -> list[Line]:
    """Shuffled, and each third line twice."""
    chance = random.Random(7)

    def moved_s(index: int) -> float:
        return index / LINES_PER_S + chance.uniform(0, SHUFFLED_S)

    written = list(enumerate(_as_written()))
    sent = [(moved_s(index), index, line) for index, line in [*written, *written[::3]]]
    return [line for _, _, line in sorted(sent)]


def _log_files(directory: Path) -> list[tuple[int, Path]]:
    """The lines as each broker has written them."""
    by_broker: dict[int, list[bytes]] = {}
    for line in _as_written():
        by_broker.setdefault(line.broker_id, []).append(line.text)
    directory.mkdir()
    for broker_id, texts in by_broker.items():
        (directory / f"broker-{broker_id}.log").write_bytes(b"\n".join(texts))
    return [(broker_id, directory / f"broker-{broker_id}.log") for broker_id in sorted(by_broker)]


def _config(root: Path, cluster: Cluster) -> Path:
    root.mkdir(parents=True)
    (root / "quotas.yaml").write_text(QUOTAS, encoding="utf-8")
    text = _CONFIG.format(root=root, bootstrap=cluster.bootstrap_servers, topic=TOPIC)
    (root / "kquota.yaml").write_text(text, encoding="utf-8")
    return root / "kquota.yaml"


def _start(config: Path, job: str = "audit.py", *options: str) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).with_name("spark-submit")), f"jobs/{job}"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(_ROOT / "conf")}
    with (config.parent / "audit.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--config", str(config), *options],
            cwd=_ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip


def _finish(config: Path, job: str = "audit.py", *options: str) -> None:
    process = _start(config, job, *(options or ("--drain",)))
    try:
        assert process.wait(_RUN_S) == 0, (config.parent / "audit.log").read_text(encoding="utf-8")[-3_000:]
    finally:
        process.kill()


def _kill_after(config: Path, seconds: float) -> bool:
    """Start the job and kill JVM and Python driver together; whether it was still at work."""
    process = _start(config, "audit.py", "--drain")
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
def test_kills_shuffle_and_copies_change_no_decision(cluster: Cluster, tmp_path: Path) -> None:
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
    assert_equal_tables(tmp_path / "calm", tmp_path / "killed")
    expected = replayed(_log_files(tmp_path / "logs"), tmp_path / "calm" / "quotas.yaml")
    tables = Settings(tables=str(tmp_path / "killed" / "tables"))
    assert differences(expected, rows_of(tables, "decisions")) == []

    # All of it again in batch, through the same functions.
    seconds = [row["second"] for row in expected]
    stretch = ("--from", str(min(seconds)), "--to", str(max(seconds) + 1_000))
    _finish(killed, "restate.py", *stretch)
    assert_equal_tables(tmp_path / "calm", tmp_path / "killed")
    assert differences(expected, rows_of(tables, "decisions")) == []
    counts = duckdb.connect()
    counts.register("requests", DeltaTable(str(tmp_path / "killed/tables/requests")).to_pyarrow_dataset())
    kinds = dict(counts.execute("SELECT kind, count(*) FROM requests GROUP BY kind").fetchall())
    copies = len(range(0, LINES, 3))
    assert kinds == {"request": LINES - 1 + copies, "unreadable": 1, "heartbeat": 1}
