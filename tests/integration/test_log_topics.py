"""The job on real topics: found by a pattern, filled by several shippers, read with a login from a file.

The password is a canary: nobody who may look at the job's processes, logs, UI or files gets to see it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from kquota_spark.config.loader import load_settings
from kquota_spark.doctor.preflight import before_checks
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.servers import free_ports
from tests.support.clusters.shared import CANARY
from tests.support.logs.envelope_samples import LINES, sample
from tests.support.logs.log_lines import T0_MS
from tests.support.places import ROOT
from tests.support.spark.quick import QUICK

WITHIN_S = 200.0
_CONFIG = """\
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka:
  bootstrap_servers: "{bootstrap}"
  topic_pattern: log-broker-\\d
  broker_in_topic: log-broker-(\\d)
  options:
    security.protocol: SASL_PLAINTEXT
    sasl.mechanism: PLAIN
    sasl.username: auditor
    sasl.password: ${{file:{root}/password}}
quotas: {{source: file, file: "{root}/quotas.yaml"}}
stream: {{trigger: 1 s}}
"""
# topic, what its shipper writes
TOPICS = {"log-broker-1": "vector.json", "log-broker-2": "fluent-bit-docker.json"}
LATER = ("log-broker-3", "rsyslog-file-format.txt")


@pytest.fixture(scope="module")
def cluster(sasl_cluster: Cluster) -> Cluster:
    create_topics(sasl_cluster, {"other": 1, **dict.fromkeys(TOPICS, 1)})
    for topic, name in {"other": "vector.json", **TOPICS}.items():
        ship(sasl_cluster, topic, name)
    return sasl_cluster


def ship(cluster: Cluster, topic: str, name: str) -> None:
    producer = Producer(cluster.client_settings("shipper"))
    for value in sample(name):
        producer.produce(topic, value, timestamp=T0_MS + 10_000)
    assert producer.flush(60) == 0


@pytest.fixture
def config(cluster: Cluster, tmp_path: Path) -> Path:
    (tmp_path / "password").touch(mode=0o600)
    (tmp_path / "password").write_text(CANARY + "\n", encoding="utf-8")
    (tmp_path / "quotas.yaml").write_text(
        "- {user: alice, type: producer_byte_rate, value: 1000000}\n", encoding="utf-8"
    )
    (tmp_path / "events").mkdir()
    text = _CONFIG.format(root=tmp_path, bootstrap=cluster.bootstrap_servers)
    (tmp_path / "kquota.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "kquota.yaml"


@contextlib.contextmanager
def auditing(config: Path, ui_port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        *QUICK,
        *("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={config.parent}/events"),
        *(
            "--conf",
            "spark.eventLog.compress=false",
            "--conf",
            f"spark.ui.port={ui_port}",
            "--conf",
            "spark.port.maxRetries=0",  # this port, or an error
            "--conf",
            "spark.ui.enabled=true",
            "--verbose",
        ),
        *("jobs/audit.py", "--config", str(config)),
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(ROOT / "conf")}
    with (config.parent / "audit.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def rows(config: Path) -> list[tuple[str, int, str, str]]:
    table = str(config.parent / "tables" / "requests")
    if not DeltaTable.is_deltatable(table):
        return []
    found = (
        DeltaTable(table).to_pyarrow_table(columns=["topic", "broker_id", "kind", "client_id"]).to_pylist()
    )
    return sorted((row["topic"], row["broker_id"], row["kind"], row["client_id"]) for row in found)


def expected(*topics: str) -> list[tuple[str, int, str, str]]:
    clients = [json.loads(line[line.index(b"{") : line.rindex(b"}") + 1]) for line in LINES]
    return sorted(
        (
            topic,
            1 if topic == "log-broker-1" else int(topic[-1]),
            "request",
            line["requestHeader"]["clientId"],
        )
        for topic in topics
        for line in clients
    )


def wait_for(process: subprocess.Popen[bytes], config: Path, *topics: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while len(rows(config)) < len(topics) * len(LINES):
        assert process.poll() is None, (config.parent / "audit.log").read_text()
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.2)
    assert rows(config) == expected(*topics)


def pages(port: int) -> Iterator[str]:
    """What the UI of the driver shows, its REST interface included."""
    root = f"http://127.0.0.1:{port}"
    (application,) = json.loads(_get(f"{root}/api/v1/applications"))
    rest = f"{root}/api/v1/applications/{application['id']}"
    yield _get(f"{rest}/sql?details=true&planDescription=true&length=500")
    yield _get(f"{rest}/environment")
    for page in ("environment/", "SQL/", "StreamingQuery/", "jobs/", "stages/", "executors/"):
        yield _get(f"{root}/{page}")
    for execution in range(3):
        yield _get(f"{root}/SQL/execution/?id={execution}")


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def command_lines() -> str:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(found)


def doctor(config: Path) -> list[tuple[str, str]]:
    """What `kquota doctor --before` says of the topics, the lag of the old lines left out."""
    checks = list(before_checks(load_settings(config), time.time_ns() // 1_000_000))
    return [
        (check.what, check.evidence.partition(", ingest is")[0])
        for check in checks
        if check.what.startswith("log topic")
    ]


def test_topics_of_a_pattern_are_read_new_ones_too_and_the_password_shows_nowhere(
    cluster: Cluster, config: Path
) -> None:
    [port] = free_ports(1)
    with auditing(config, port) as process:
        wait_for(process, config, *TOPICS)
        create_topics(cluster, {LATER[0]: 1})
        ship(cluster, *LATER)
        wait_for(process, config, *TOPICS, LATER[0])
        shown = [*pages(port), command_lines()]
        process.send_signal(signal.SIGTERM)
        process.wait(WITHIN_S)
    assert doctor(config) == [
        said
        for broker_id in (1, 2, 3)
        for said in (
            ("log topic", f"log-broker-{broker_id} keeps lines for ever"),
            ("log topic clock", f"log-broker-{broker_id}: message.timestamp.type is LogAppendTime"),
        )
    ]
    files = [file for file in config.parent.rglob("*") if file.is_file() and file.name != "password"]
    assert any("events" in file.parts for file in files)
    texts = {"shown": "\n".join(shown)} | {str(f): f.read_text("utf-8", errors="replace") for f in files}
    # The places that were looked at know of this query.
    assert "log\\nid = " in texts["shown"]  # the query's name, in the list of its micro-batches
    assert [name for name, text in texts.items() if "canary-" in text] == []
