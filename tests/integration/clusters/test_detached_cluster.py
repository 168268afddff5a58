"""`kquota cluster`: servers that outlive the command, and a state file that is never believed blindly."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import pytest

from kquota_spark.cli.jobs import cluster as cluster_command
from kquota_spark.embedded import detached
from kquota_spark.embedded.admin import create_topics
from kquota_spark.errors import UserError
from tests.support.clusters.outages import kill


def test_detached_up_repair_down_and_topics_that_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka.admin import AdminClient

    try:
        cluster, started = detached.up(tmp_path)
        assert started
        create_topics(cluster, {"orders": 1})
        assert status(tmp_path, capsys) == (0, "up")
        again, started = detached.up(tmp_path)
        assert not started
        assert again == detached.read_cluster(tmp_path)
        with pytest.raises(UserError, match="a cluster of 1 brokers is up"):
            detached.up(tmp_path, 2)
        with pytest.raises(UserError, match="holds a cluster with ZooKeeper: name another directory"):
            detached.up(tmp_path, is_kraft=True)
        kill(cluster, 1)
        assert status(tmp_path, capsys) == (1, "degraded")
        repaired, started = detached.up(tmp_path)
        assert started
        assert repaired.brokers[0].port == cluster.brokers[0].port
        assert detached.down(tmp_path)
        assert not any(repaired.is_running(server) for server in ("zookeeper", 1))
        assert not detached.down(tmp_path)
        assert status(tmp_path, capsys) == (1, "down")
        returned, _ = detached.up(tmp_path)
        settings: dict[str, str | int | float | bool] = {**returned.client_settings()}
        assert "orders" in AdminClient(settings).list_topics(timeout=60).topics
    finally:
        detached.down(tmp_path)
    assert not any(returned.is_running(server) for server in ("zookeeper", 1))


def status(directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """What `kquota cluster status --output json` says and its exit code."""
    parser = argparse.ArgumentParser()
    cluster_command.add_commands(parser.add_subparsers())
    capsys.readouterr()
    options = parser.parse_args(["cluster", "status", "--output", "json", "--dir", str(directory)])
    code = options.run(options)
    return code, json.loads(capsys.readouterr().out)["state"]


def test_down_does_not_touch_a_process_that_got_an_old_number(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        entry = {"name": "zookeeper", "port": 1, "pid": stranger.pid, "started": "long ago", "command": []}
        (tmp_path / detached.STATE_FILE).write_text(json.dumps({"servers": [entry]}), encoding="utf-8")
        assert not detached.down(tmp_path)
        assert stranger.poll() is None
        stranger.kill()
