"""The whole loop on a real broker: an offender is found in real decisions, limited, throttled more, and released."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from kquota_spark.cli.enforce.plan_page import event_line
from kquota_spark.cli.main import main as kquota
from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster, logged_lines
from kquota_spark.embedded.readiness import connected
from kquota_spark.enforce.changes import Event
from kquota_spark.enforcement.assembly import enforcing
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange
from kquota_spark.process.clock import now_ms
from kquota_spark.process.processes import wait_for
from kquota_spark.store.reading import query
from kquota_spark.store.rules_tables import RulesTables
from tests.support.clusters.audited_topic import finish, started
from tests.support.clusters.zookeeper_edits import set_quota
from tests.support.tables.capture_tables import write_requests

pytestmark = pytest.mark.alone  # the times that a broker logs are judged

LOG_TOPIC = "kquota.request-log"
QUOTA = 50_000
RECORD = b"x" * 100_000
RECORDS, RECORDS_PER_S = 40, 8
"""800 kB/s for 5 s: over the minute that the policy looks at 67 kB/s, which is 133 % of the quota."""
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
NODE = "/config/clients/greedy"
_CONFIG = """\
cluster_id: loop
tables: {root}/tables
checkpoints: {root}/checkpoints
kafka: {{bootstrap_servers: "{bootstrap}", topic: {topic}}}
quotas: {{zookeeper_connect: "{zookeeper}"}}
stream: {{allowed_lateness: 5 s}}
ship: {{files: ["1={log}"], state_dir: {root}/ship}}
enforcement: {{policy_file: {root}/policy.yaml, allow_open_nodes: true, lease_time: 30 s, trigger: 1 s}}
"""
_POLICY = """\
mode: enforce
guards:
  bounds: {producer_byte_rate: {floor: 10000, ceiling: 1000000}}
  max_age: 10 min
policies:
  - name: repeat-offenders
    kind: penalty
    mode: enforce
    keys: [producer_byte_rate]
    within: 1 min
    connections: 1
    expires_after: 15 min
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of its own: verdicts are certain from the start of a broker's log on, and enforcement wants certain ones."""
    with embedded_cluster(tmp_path_factory.mktemp("loop")) as running:
        create_topics(running, {"orders": 1, LOG_TOPIC: 1})
        yield running


def send(cluster: Cluster) -> None:
    """Send at a steady rate and never wait out a throttle: a new connection for each record."""
    started_s = time.monotonic()
    for number in range(RECORDS):
        time.sleep(max(0.0, started_s + number / RECORDS_PER_S - time.monotonic()))
        producer = Producer({**cluster.client_settings(), "client.id": "greedy", "log_level": 0})
        producer.produce("orders", RECORD)
        assert producer.flush(60) == 0


def throttles_ms(cluster: Cluster, root: Path, since_ms: int) -> list[int]:
    """What the broker's own log says of each record of the client, in the order of the records."""
    write_requests(root, 1, logged_lines(cluster.brokers[0].request_log), 5)
    sql = (
        "select observed_throttle_ms from requests where client_id = 'greedy' and api_key = 0 and record_time_ms >= ? "
        "order by record_time_ms, kafka_offset"
    )
    found = query(Settings(cluster_id="test", tables=str(root)), ["requests"], sql, [since_ms]).rows
    return [row[0] for row in found]


def node(cluster: Cluster) -> bytes:
    with connected(cluster.zookeeper_connect) as client:
        return bytes(client.get(NODE)[0])


def configured(cluster: Cluster, root: Path) -> Path:
    """Settings, policies, and a history in which the quota is an hour old: longer than a test can wait for."""
    text = _CONFIG.format(
        root=root, bootstrap=cluster.bootstrap_servers, topic=LOG_TOPIC, zookeeper=cluster.zookeeper_connect,
        log=cluster.brokers[0].request_log,
    )  # fmt: skip
    (root / "policy.yaml").write_text(_POLICY, encoding="utf-8")
    (root / "kquota.yaml").write_text(text, encoding="utf-8")
    set_quota(cluster.zookeeper_connect, client_id="greedy", producer_byte_rate=QUOTA)
    with connected(cluster.zookeeper_connect) as client:
        version = client.get(NODE)[1].mzxid
    tables = RulesTables(str(root / "tables"), "loop", source="zookeeper", apply_lag_ms=95)
    set_ms = now_ms() - HOUR_MS
    change = QuotaChange(
        Entity(client_id="greedy"), QuotaKey.PRODUCER_BYTE_RATE, float(QUOTA), None, set_ms, version
    )
    tables.append([change], [], set_ms)
    return root / "kquota.yaml"


def knows_quota(cluster: Cluster, times: int) -> bool:
    log = cluster.servers[1].log.read_text(encoding="utf-8")
    return log.count("entityPath: clients/greedy") >= times


class Audited(NamedTuple):
    """The offender was let run and everything is judged."""

    config: Path
    node: bytes
    throttles_ms: list[int]


@pytest.fixture(scope="module")
def audited(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    root = tmp_path_factory.mktemp("audited")
    config = configured(cluster, root)
    assert wait_for(lambda: knows_quota(cluster, 1), within_s=60)
    as_it_was = node(cluster)
    began_ms = now_ms()
    send(cluster)
    ship = [sys.executable, "-m", "kquota_spark.cli.main", "ship", "--config", str(config), "--once", "--end"]
    subprocess.run(ship, check=True, timeout=180)
    finish(config, job=("audit.py", "--once", "--drain"))
    return Audited(config, as_it_was, throttles_ms(cluster, root / "before", began_ms))


def test_an_offender_is_found_limited_and_released(
    cluster: Cluster, audited: Audited, tmp_path: Path
) -> None:
    settings = load_settings(audited.config)
    with enforcing(settings, "enforcer") as run:
        at_ms = now_ms()
        report = run.enforcer.run(run.proposals(at_ms), run.situation(at_ms), at_ms)
    print(*map(event_line, report.entries), sep="\n")
    assert [entry.event for entry in report.entries] == [Event.PLANNED, Event.SENDING, Event.APPLIED]
    assert str(report.entries[0].proposal.quota.entity) == "clients/greedy"
    assert b'"producer_byte_rate":"25000' in node(cluster).replace(b" ", b"")

    assert wait_for(lambda: knows_quota(cluster, 2), within_s=60)
    limited_ms = now_ms()
    send(cluster)
    before, after = audited.throttles_ms, throttles_ms(cluster, tmp_path, limited_ms)
    print("throttle times before", before, "and after", after, sep="\n")
    # The same records at the same pace, 400 kB/s over the 10 s of the ring: 15 times the quota too much instead of 7.
    assert len(before) == len(after) == RECORDS
    assert max(after) > 1.8 * max(before) > 0

    with enforcing(settings, "enforcer") as run:
        assert run.enforcer.expire(at_ms + 15 * MINUTE_MS - 1) == []
        rows = run.enforcer.expire(at_ms + 15 * MINUTE_MS)
    assert [entry.event for entry in rows] == [Event.RESTORING, Event.RESTORED]
    assert node(cluster) == audited.node
    assert wait_for(lambda: knows_quota(cluster, 3), within_s=60)


def test_the_running_job_ends_an_override_in_time_though_nothing_is_decided(
    cluster: Cluster, audited: Audited, tmp_path: Path
) -> None:
    policy, config, log = (tmp_path / name for name in ("policy.yaml", "kquota.yaml", "audit.log"))
    policy.write_text(_POLICY.partition("policies:")[0] + "policies: []\n", encoding="utf-8")
    text = audited.config.read_text(encoding="utf-8")
    config.write_text(text.replace(f"{audited.config.parent}/policy.yaml", str(policy)), encoding="utf-8")

    def has_said(text: str) -> bool:
        return text in log.read_text(encoding="utf-8")

    job = started(config, "--driver-memory", "1g", job=("enforce.py",))
    try:
        begun = "enforcing loop; stop with Ctrl-C"
        assert wait_for(lambda: has_said(begun) or job.poll() is not None, within_s=180)
        assert job.poll() is None, log.read_text(encoding="utf-8")[-3_000:]
        override = ["override", "set", "--client", "else", "--key", "producer_byte_rate", "--value", "70000"]
        more = ["--for", "5s", "--reason", "test", "--yes", "--config", str(config)]
        assert kquota([*override, *more]) == 0
        assert wait_for(
            lambda: has_said(" restored: clients/else producer_byte_rate 70.0 kB/s -> not set"), within_s=60
        )
        with connected(cluster.zookeeper_connect) as client:
            assert client.exists("/config/clients/else") is None
        assert kquota(["freeze", "--reason", "test", "--wait", "--config", str(config)]) == 0
        assert wait_for(lambda: has_said("enforce: frozen by "), within_s=60)
        assert kquota(["unfreeze", "--config", str(config)]) == 0
        job.send_signal(signal.SIGTERM)
        assert job.wait(90) == 0
        assert not has_said("Traceback")
    finally:
        job.kill()
        job.wait()
