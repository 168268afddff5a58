"""`kquota init` on real clusters: the file that it writes is one that the checks accept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from kquota_spark.cli.main import main
from kquota_spark.config.loader import load_settings
from kquota_spark.embedded.cluster import Cluster
from tests.support.clusters.shared import CANARY

TOPIC = "kquota.request-log"


@pytest.fixture(params=["kraft_cluster", "zookeeper_cluster"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def initialised(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the answer."""
    code = main(["init", "--output", "json", *options])
    return code, json.loads(capsys.readouterr().out)


def test_settings_and_topic_are_made_and_pass_the_checks(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = cluster.bootstrap_servers
    client: Any = AdminClient({"bootstrap.servers": servers})

    code, answer = initialised(capsys, "--bootstrap-server", servers)
    assert (code, answer["topic_state"], answer["grants"]) == (2, "missing", [])
    assert TOPIC not in client.list_topics(timeout=30).topics
    [check] = [each for each in answer["checks"] if each["what"] == "log topic"]
    assert f"create it ({answer['topic_command']})" in check["advice"]
    assert answer["next"][-1] == "kquota audit --config conf/kquota.yaml"
    settings = load_settings(Path("conf/kquota.yaml"))
    assert settings.cluster_id == answer["cluster_id"] == client.list_topics(timeout=30).cluster_id
    assert (settings.kafka.bootstrap_servers, settings.quotas.source) == (servers, "admin")
    broker = settings.broker  # Kafka's defaults
    assert (broker.quota_window_num, broker.quota_window_size_seconds) == (11, 1)
    assert (broker.controller_quota_window_num, broker.controller_quota_window_size_seconds) == (11, 1)
    assert {"quota_window_num", "controller_quota_window_num"} <= broker.given

    assert main(["init", "--bootstrap-server", servers, "--config", "shown.yaml"]) == 2
    shown = capsys.readouterr().out
    assert f"Create it:\n  {answer['topic_command']}\n" in shown
    assert "\nfirst    create the topic: the command is above\n" in shown

    code, answer = initialised(capsys, "--bootstrap-server", servers, "--yes", "--config", "second.yaml")
    try:
        assert (code, answer["topic_state"]) == (2, "created")
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
        config = client.describe_configs([resource])[resource].result(30)
        keys = ("retention.ms", "cleanup.policy", "message.timestamp.type")
        assert [config[key].value for key in keys] == ["86400000", "delete", "LogAppendTime"]
        partitions = client.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        assert [len(partition.replicas) for partition in partitions.values()] == [1] * 6
        # What is left is the shipper's work.
        assert [each["what"] for each in answer["checks"] if each["status"] == "fail"] == ["lines"]
    finally:
        client.delete_topics([TOPIC])[TOPIC].result(30)


def test_a_login_is_used_and_its_password_is_written_nowhere(
    sasl_cluster: Cluster, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    login = folder / "client.properties"
    escaped = CANARY.replace("\\", "\\\\").replace('"', '\\"')
    jaas = f'org.apache.kafka...PlainLoginModule required username="auditor" password="{escaped}";'
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas.replace("\\", "\\\\"),
    }
    login.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
    servers = sasl_cluster.client_settings("auditor")["bootstrap.servers"]
    options = ("--bootstrap-server", servers, "--command-config", str(login))
    assert main(["init", *options]) != 1  # another file may have left a topic, so a check may fail or not
    out, err = capsys.readouterr()
    written = (folder / "conf" / "kquota.yaml").read_text("utf-8")
    assert "canary" not in out + err + written
    assert 'sasl.username: "auditor"' in written and 'sasl.password: "${KQUOTA_SASL_PASSWORD}"' in written
    assert "first    set KQUOTA_SASL_PASSWORD" in out
    assert (
        f"--allow-principal User:auditor --operation DescribeConfigs --cluster --command-config {login}"
        in out
    )
