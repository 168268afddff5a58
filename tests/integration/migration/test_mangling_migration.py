"""A real migration of Kafka 3.6.1, which mangles names: the check finds each of them in the cluster itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kquota_spark.embedded.setup.jars import find_jars
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.names import sanitise
from tests.support.migration.checked_roads import Expected, edit, write_settings
from tests.support.migration.migrating_cluster import migrating_cluster
from tests.support.programs.command_output import run
from tests.support.quotas.cluster_contract import CONNECTIONS, FETCH, PRODUCE
from tests.tools import MANGLING_KAFKA

pytestmark = pytest.mark.timeout(600)

CLIENTS = ("CN=app 1,OU=x", "alice", "bob")


def test_the_names_that_kafka_3_6_1_mangles_stop_the_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: Expected = {}
    words = (
        "--before",
        "zookeeper",
        "--after",
        "kafka",
        "--config",
        str(tmp_path / "kquota.yaml"),
        "--output",
        "json",
    )
    with migrating_cluster(tmp_path / "servers", find_jars(MANGLING_KAFKA)) as migrating:
        for name, value in write_settings(tmp_path, migrating, CLIENTS).items():
            monkeypatch.setenv(name, value)
        edit("zookeeper", Entity("CN=app 1,OU=x"), {PRODUCE: 40_000.0}, expected)
        edit("kafka", Entity(DEFAULT), {PRODUCE: 30_000.0}, expected)
        edit("kafka", Entity("alice"), {PRODUCE: 1e6}, expected)
        edit("kafka", IpEntity(DEFAULT), {CONNECTIONS: 1_000.0}, expected)
        edit("kafka", Entity("alice", "b c"), {FETCH: 2e6}, expected)
        assert run("migration", *words)[0] == 0

        # A broker in migration mode still answers from ZooKeeper; one that restarted as KRaft has what was copied.
        migrating.begin_migration()
        migrating.restart_broker_as_kraft()
        code, out, _ = run("migration", *words)
        answer = json.loads(out)
        print(answer)
        assert (code, answer["verdict"]) == (3, "stop")
        assert {one["stands"]: one["meant"] for one in answer["mangled"]} == {
            str(Entity(sanitise("CN=app 1,OU=x"))): str(Entity("CN=app 1,OU=x")),
            str(Entity("")): "users/<default>",
            str(Entity("alice", "b%20c")): str(Entity("alice", "b c")),
        }
        # The default of ips is gone as well.
        of_ips = [
            (one["before_per_s"], one["after_per_s"])
            for one in answer["possible"]
            if one["quota_type"] == "connection"
        ]
        assert of_ips == [(1_000.0, None)]
        # alice keeps her rule. The two others have no limit any more: 500,000 bytes in a ring of 10 s are 50 kB/s.
        #   CN=app 1,OU=x (500,000 - 10 x 40,000) / 40,000 = 2.5 s, bob (500,000 - 10 x 30,000) / 30,000 = 6.667 s
        delays = {one["clients"][0]["user"]: one["delay_ms_before"] for one in answer["affected"]}
        assert delays == {"CN=app 1,OU=x": 2_500, "bob": 6_667}
        assert all(one["delay_ms_after"] == 0 for one in answer["affected"])
