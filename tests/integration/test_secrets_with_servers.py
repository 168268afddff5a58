"""Commands that reach their servers with logins: no secret of the settings, and none of a node in ZooKeeper, shows.

All logs are at DEBUG. The node of a user holds SCRAM keys beside its quotas, and opens to a digest login alone.
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from tests.support.clusters.quota_nodes import put
from tests.support.clusters.shared import CANARY
from tests.support.places import CONF
from tests.support.programs.canaries import AT_DEBUG, SECRETS, Planted, hits

HELD = {
    **SECRETS,
    **dict.fromkeys(("sasl", "ship_sasl", "collect_sasl"), CANARY),
    "salt": "canary-salt-8801",
    "stored_key": "canary-stored-8802",
    "server_key": "canary-server-8803",
}
"""Secrets of the settings, and those within the node."""
NODE = {
    "SCRAM-SHA-256": "salt={salt},stored_key={stored_key},server_key={server_key},iterations=4096".format(
        **HELD
    ),
    "producer_byte_rate": "1000",
}
WITHIN_S = 120.0
_HEAD = """\
cluster_id: held
tables: {root}/tables
checkpoints: {root}/checkpoints
enforcement: {{policy_file: {root}/policy.yaml}}
"""
_KAFKA = """\
  bootstrap_servers: {servers}
  topic: held-lines
  jmx_topic: held-samples
  options:
    security.protocol: SASL_PLAINTEXT
    sasl.mechanism: PLAIN
"""
_QUOTAS = "  source: zookeeper\n  zookeeper_connect: {connect}\n"
COMMANDS = [
    ("watch --once", 0),
    ("describe", 0),
    ("alter --user bob --add producer_byte_rate=2000 --yes", 0),
    ("describe --output json", 0),
    ("export --to {root}/nodes.json --format kfk", 0),
    ("export --to {root}/quotas.yaml", 0),
    ("resolve --user bob --client-id x", 0),
    ("tree", 0),
    ("enforce plan", 1),
    ("doctor --before", 2),
    ("ship --once --file 1={root}/broker.log", 0),
    ("describe --bootstrap-server {servers} --command-config {root}/secrets/client.properties", 0),
]
"""Arguments, and the exit code."""


POLLED = threading.Semaphore(0)
"""How often the agent was asked."""


class _Jolokia(BaseHTTPRequestHandler):
    """An agent that wants the login of the settings."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        login = base64.b64encode(f"monitor:{HELD['jolokia']}".encode()).decode()
        self.send_response(200 if self.headers["Authorization"] == f"Basic {login}" else 401)
        self.end_headers()
        self.wfile.write(json.dumps([ANSWER]).encode())
        POLLED.release()

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


ANSWER = {
    "request": {"mbean": "kafka.server:type=Produce,*", "type": "read"},
    "value": {"kafka.server:type=Produce,user=alice": {"byte-rate": 5.0, "throttle-time": None}},
    "status": 200,
}


@pytest.fixture
def jolokia() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Jolokia) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/jolokia"
        server.shutdown()


@pytest.fixture
def node(sasl_cluster: Cluster) -> Iterator[KazooClient]:
    """A client in a chroot with the node of bob, which opens to the digest login alone."""
    chroot = "/held"
    outer = KazooClient(sasl_cluster.zookeeper_connect)
    outer.start(timeout=60)
    for root in ("users", "clients", "changes"):
        outer.ensure_path(f"{chroot}/config/{root}")
    inner = KazooClient(
        sasl_cluster.zookeeper_connect + chroot, auth_data=[("digest", f"audit:{HELD['digest']}")]
    )
    inner.start(timeout=60)
    put(inner, "users/bob", json.dumps({"version": 1, "config": NODE}).encode())
    inner.set_acls("/config/users/bob", [make_digest_acl("audit", HELD["digest"], all=True)])
    yield inner
    inner.stop()
    outer.stop()


def planted(root: Path, cluster: Cluster, connect: str, jolokia: str) -> Planted:
    made = Planted(root, "file", {name: HELD[name] for name in SECRETS})
    made.write(
        _HEAD,
        _KAFKA.format(servers=cluster.bootstrap_servers),
        _QUOTAS.format(connect=connect),
        jolokia,
    )
    text = made.config.read_text(encoding="utf-8")
    made.config.write_text(text.replace("sasl.username: shipper", "sasl.username: auditor"), encoding="utf-8")
    (root / "policy.yaml").write_bytes((CONF / "policy.yaml").read_bytes())
    (root / "broker.log").write_bytes(b"no line of a request log\n")
    (root / "secrets" / "client.properties").write_text(_properties(), encoding="utf-8")
    return made


def _properties() -> str:
    """A login in the form of Kafka's own tools; a properties file takes backslashes twice."""
    quoted = CANARY.replace("\\", "\\\\").replace('"', '\\"')
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="auditor" password="{quoted}";'.replace("\\", "\\\\")
    return f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n"


def process(made: Planted, arguments: str) -> subprocess.Popen[bytes]:
    words = arguments.split()
    own = () if "--command-config" in words else ("--config", str(made.config))
    return subprocess.Popen(
        [sys.executable, "-m", "kquota_spark.cli.main", *words, *own],
        cwd=made.root, env=made.environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def collected(made: Planted) -> bytes:
    """What a collector prints that was stopped after its first samples."""
    run = process(made, "collect jmx")
    assert all(
        POLLED.acquire(timeout=WITHIN_S) for _ in range(2)
    )  # the first samples were sent before the second round
    run.send_signal(signal.SIGTERM)
    return run.communicate(timeout=WITHIN_S)[0]


def test_commands_with_logins_show_no_secret_and_no_scram_key(
    sasl_cluster: Cluster, node: KazooClient, jolokia: str, tmp_path: Path
) -> None:
    create_topics(sasl_cluster, {"held-lines": 1, "held-samples": 1})
    made = planted(tmp_path, sasl_cluster, sasl_cluster.zookeeper_connect + "/held", jolokia)
    places = {"root": tmp_path, "servers": sasl_cluster.bootstrap_servers}
    seen: dict[str, bytes] = {}
    said: dict[str, bytes] = {}
    codes: list[tuple[str, int]] = []
    with made.watched(seen):
        for command, _ in COMMANDS:
            ran = process(made, command.format(**places))
            said[command] = ran.communicate(timeout=WITHIN_S)[0]
            codes.append((command, ran.returncode))
        said["collect jmx"] = collected(made)
    assert codes == COMMANDS, said
    assert b"sent 0 messages" not in said["collect jmx"]
    assert AT_DEBUG.encode() in said["watch --once"]
    assert hits({**said, **seen, **made.written()}, HELD.values()) == []
    data, _ = node.get("/config/users/bob")
    assert json.loads(data)["config"] == {**NODE, "producer_byte_rate": "2000"}
