"""A real KRaft node: quotas by AlterClientQuotas, jars of one's own, and a crash."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kquota_spark.cli.main import main as kquota
from kquota_spark.embedded import detached
from kquota_spark.embedded.admin import alter_quota, create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.process.processes import wait_for
from tests.support.clusters.outages import kill
from tests.support.clusters.pressing import throttle_ms


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("kraft")
    jar = directory / "in-front.jar"
    with zipfile.ZipFile(jar, "w") as content:
        # Kafka's own jar has a file of this name, which the broker logs at its start.
        content.writestr("kafka/kafka-version.properties", "version=in-front\ncommitId=0\n")
    settings = BrokerSettings(users={"alice": "a"}, kraft=True, class_path=[jar])
    with embedded_cluster(directory, settings=settings) as running:
        create_topics(running, {"orders": 1})
        yield running


def set_limit(cluster: Cluster, limit: int | None) -> None:
    """Of all clients of alice, and in force: the controller and the broker of the node have both said so."""

    def told() -> int:
        log = cluster.servers[0].log.read_text(encoding="utf-8")
        return log.count("PRODUCE quota for user alice default")

    before = told()
    alter_quota(cluster, {"producer_byte_rate": limit}, user="alice", client_id=DEFAULT)
    assert wait_for(lambda: told() >= before + 2, within_s=60)


def test_a_quota_throttles_and_its_removal_ends_that(cluster: Cluster) -> None:
    set_limit(cluster, 10_000)
    assert throttle_ms(cluster, "limited", user="alice") > 0
    set_limit(cluster, None)
    assert throttle_ms(cluster, "free", user="alice") == 0


def test_a_refused_quota_says_why(cluster: Cluster) -> None:
    with pytest.raises(UserError, match=r"refused: Invalid configuration key producer_rate"):
        alter_quota(cluster, {"producer_rate": 1}, user="alice")


def test_jars_of_ones_own_come_first(cluster: Cluster) -> None:
    assert "Kafka version: in-front" in cluster.servers[0].log.read_text(encoding="utf-8")


def test_there_is_no_zookeeper(cluster: Cluster) -> None:
    assert [server.name for server in cluster.servers] == ["broker-1"]
    with pytest.raises(ValueError, match="a KRaft cluster has no ZooKeeper"):
        cluster.zookeeper_connect  # noqa: B018


def test_it_has_its_topics_after_a_crash(cluster: Cluster) -> None:
    before = cluster.brokers[0]
    kill(cluster, 1)
    cluster.start(1)
    assert cluster.brokers[0].pid != before.pid
    assert "orders" in AdminClient({**cluster.client_settings()}).list_topics(timeout=60).topics


def test_detached_it_comes_back_as_what_it_was_with_its_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert kquota(["cluster", "up", "--kraft", "--dir", str(tmp_path)]) == 0
        first = detached.read_cluster(tmp_path)
        assert first is not None
        assert capsys.readouterr().out == (
            f"up\nbootstrap.servers {first.bootstrap_servers}\nrequest log       {first.brokers[0].request_log}\n"
            f"next              kquota init --bootstrap-server {first.bootstrap_servers} --yes "
            f"--config {tmp_path}/kquota.yaml\n"
        )
        create_topics(first, {"orders": 1})
        assert kquota(["cluster", "status", "--output", "yaml", "--dir", str(tmp_path)]) == 0
        assert "zookeeper" not in capsys.readouterr().out
        assert detached.down(tmp_path)
        again, _ = detached.up(tmp_path)
        assert "orders" in AdminClient({**again.client_settings()}).list_topics(timeout=60).topics
        assert (again.servers[0].directory / "data" / "meta.properties").is_file()
    finally:
        detached.down(tmp_path)


def test_a_node_that_cannot_be_formatted_says_where_to_look(tmp_path: Path) -> None:
    settings = BrokerSettings(kraft=True, properties={"process.roles": "neither"})
    with (
        pytest.raises(UserError, match=r"broker-1: its data directory was not formatted: .*server\.log"),
        embedded_cluster(tmp_path, settings=settings),
    ):
        pass
