"""A topic of generated lines, and the audit of it as a process that can be disturbed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
from confluent_kafka import Producer
from deltalake import DeltaTable

from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from tests.bench.lines import START_MS, Line, lines
from tests.support.chance import drawn
from tests.support.logs.jmx_messages import telegraf
from tests.support.places import ROOT
from tests.support.spark import durable_steps
from tests.support.spark.class_archive import quick_environment, quick_words

LINES = 9_000
COPIES = len(range(0, LINES, 3))
LINES_PER_S = 300  # 30 s of log time
_SENT_MS = 1_795_246_000_000
SHUFFLED_S = 2.0  # of the 5 s of lateness; the micro-batches of two partitions take the rest
MOST_LINES = 2_400  # five micro-batches: after each of four kills there is one more whose seconds are closed
TOPIC, JMX_TOPIC = "kquota.disturbed", "kquota.disturbed-jmx"
TABLES = (
    *("requests", "usage", "decisions", "violations", "jmx_samples"),
    *("quota_changes", "quota_rules", "broker_configs", "log_gaps"),
)
BEGUN_WITHIN_S, RUN_S = 300.0, 600.0
"""Until the first work of a job, and until its end: many times what they take."""
_CONFIG = """\
cluster_id: disturbed
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka:
  {{bootstrap_servers: "{bootstrap}", topic: {topic}, jmx_topic: {jmx_topic}, max_lines_per_trigger: {most_lines}}}
quotas: {{source: file, file: {root}/quotas.yaml}}
stream: {{allowed_lateness: 5 s}}
{further}
"""
_OF_BATCHES = ("offsets", "state", "commits")
"""Parts of a checkpoint that each micro-batch writes; its metadata are there before the first."""
ENDLESS = ("audit.py",)
"""The job that goes on until it is stopped: whatever disturbs it finds it at work."""
_COMMIT_METADATA = {"quota_changes": ("observed_at",), "broker_configs": ("observed_at",)}
"""When a run saw an edit or asked a broker; all other columns of all tables are compared."""
QUOTAS = """\
- {user: user-2, client_id: <default>, type: producer_byte_rate, value: 4000}
- {user: user-3, client_id: null, type: producer_byte_rate, value: 15000}
- {user: <default>, client_id: app-40, type: producer_byte_rate, value: 3000}
- {user: <default>, client_id: null, type: producer_byte_rate, value: 12000}
- {user: null, client_id: app-50, type: consumer_byte_rate, value: 3500}
- {user: null, client_id: <default>, type: consumer_byte_rate, value: 4000}
- {user: meter, client_id: null, type: producer_byte_rate, value: 1000}
"""
"""About one in ten seconds of these lines is over its limit; `meter` is seen by JMX alone."""
_JMX_S, _JMX_EVERY_S = 60, 2


def as_written() -> list[Line]:
    """The lines in order; the last one is cut in half: unreadable lines have to come through all troubles too."""
    *whole, last = lines(range(LINES), lines_per_s=LINES_PER_S)
    return [*whole, Line(last.broker_id, last.text[:300])]


def _as_sent() -> list[Line]:
    """Shuffled, and each third line twice."""
    chance = drawn("as sent")

    def moved_s(index: int) -> float:
        return index / LINES_PER_S + chance.uniform(0, SHUFFLED_S)

    written = list(enumerate(as_written()))
    sent = [(moved_s(index), index, line) for index, line in [*written, *written[::3]]]
    return [line for _, _, line in sorted(sent)]


def fill(cluster: Cluster) -> None:
    """Send the lines, on two partitions."""
    create_topics(cluster, {TOPIC: 2, JMX_TOPIC: 1})
    producer = Producer({**cluster.client_settings(), "queue.buffering.max.messages": 2 * LINES})
    for line in _as_sent():
        key = str(line.broker_id).encode()
        producer.produce(TOPIC, line.text, key, partition=line.broker_id % 2, timestamp=_SENT_MS)
    for message in _metered():
        producer.produce(JMX_TOPIC, message, timestamp=_SENT_MS)
    producer.flush()


def _metered() -> Iterator[bytes]:
    """Samples of a broker whose log is in no topic: every third one is over the limit."""
    for index, time_s in enumerate(range(0, _JMX_S, _JMX_EVERY_S)):
        rate = {"byte-rate": 500.0 * (index % 3 + 1), "throttle-time": 0.0}
        yield telegraf(
            "kafka_quota_produce", rate, time=START_MS // 1_000 + time_s, broker="11", user="meter"
        )


def configured(root: Path, cluster: Cluster, further: str = "", *, most_lines: int = MOST_LINES) -> Path:
    """Settings with tables and checkpoints under a new directory."""
    root.mkdir(parents=True)
    (root / "quotas.yaml").write_text(QUOTAS, encoding="utf-8")
    text = _CONFIG.format(
        root=root, bootstrap=cluster.bootstrap_servers, topic=TOPIC, jmx_topic=JMX_TOPIC, most_lines=most_lines,
        further=further,
    )  # fmt: skip
    (root / "kquota.yaml").write_text(text, encoding="utf-8")
    return root / "kquota.yaml"


def is_at_work(config: Path, query: str, since_s: float) -> bool:
    """Whether a micro-batch of a query (`*`: any) has begun since that time, or one of before runs again."""
    for part in _OF_BATCHES:
        for file in (config.parent / "checkpoints").glob(f"{query}/{part}/**/*"):
            with contextlib.suppress(FileNotFoundError):  # it was written under a name for the moment
                if file.is_file() and file.stat().st_mtime > since_s:
                    return True
    return False


def started(
    config: Path,
    *arguments: str,
    job: Sequence[str] = ("audit.py", "--drain"),
    steps: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """`spark-submit` of a job, as a process group of its own; its output is in audit.log.

    Args:
        config: the settings of the job.
        arguments: of spark-submit.
        job: the script and its options.
        steps: variables of `tests.support.spark.durable_steps`: the job runs through that.
        environment: further variables of the job, by name.
    """
    name, *options = job
    program = [f"jobs/{name}"] if steps is None else [durable_steps.__file__, f"jobs/{name}"]
    command = [str(Path(sys.executable).with_name("spark-submit")), *quick_words(), *arguments, *program]
    variables = {**os.environ, **quick_environment(), **(steps or {}), **(environment or {})}
    with (config.parent / "audit.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--config", str(config), *options],
            cwd=ROOT, env=variables, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def finish(
    config: Path,
    *arguments: str,
    job: Sequence[str] = ("audit.py", "--drain"),
    steps: Mapping[str, str] | None = None,
) -> None:
    """Run a job to its end."""
    process = started(config, *arguments, job=job, steps=steps)
    try:
        assert process.wait(RUN_S) == 0, (config.parent / "audit.log").read_text(encoding="utf-8")[-3_000:]
    finally:
        process.kill()


def differences(name: str, one: Path, other: Path, where: str = "true") -> list[tuple[object, ...]]:
    """Rows that only one of two tables has, copies counted; of those for which a condition in SQL holds."""
    connection = duckdb.connect()
    for alias, root in (("a", one), ("b", other)):
        connection.register(alias, DeltaTable(str(root / "tables" / name)).to_pyarrow_dataset())
    left_out = _COMMIT_METADATA.get(name, ())
    columns = "* EXCLUDE (" + ", ".join(left_out) + ")" if left_out else "*"
    return connection.execute(
        f"(SELECT {columns} FROM a WHERE {where} EXCEPT ALL SELECT {columns} FROM b WHERE {where}) UNION ALL "
        f"(SELECT {columns} FROM b WHERE {where} EXCEPT ALL SELECT {columns} FROM a WHERE {where}) LIMIT 5"
    ).fetchall()


def assert_equal_tables(one: Path, other: Path) -> None:
    """All tables of two runs have the same rows."""
    for name in TABLES:
        assert differences(name, one, other) == [], name
