"""On a real cluster: quotas are lifted and come back to the byte, and a gate that follows the topic enforces them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from kquota_spark.cli.exit_codes import NOTHING
from kquota_spark.cli.main import main
from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.readiness import connected
from kquota_spark.errors import UserError
from kquota_spark.gateway.follower import FollowedGate
from kquota_spark.gateway.gate import GateState
from kquota_spark.gateway.publisher import DecisionPublisher
from kquota_spark.gateway.topic import Connection, ensure_topic
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.apis import Api
from kquota_spark.model.measure.combining import Applied
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import RuleBook
from kquota_spark.model.simulation.quota_manager import QuotaManager, Request, governed_limits
from kquota_spark.quotas.stored import stored_rules
from tests.support.clusters.config_tree import config_tree
from tests.support.clusters.pressing import throttle_ms
from tests.support.clusters.quota_nodes import until_in_force
from tests.support.clusters.shared import without_quotas
from tests.support.clusters.waiting import WITHIN_S, until, until_brokers_act
from tests.support.clusters.zookeeper_edits import remove_quota, set_quota


@pytest.fixture(scope="module")
def cluster(zookeeper_cluster: Cluster) -> Cluster:
    return zookeeper_cluster


@pytest.fixture(autouse=True)
def no_quotas_afterwards(cluster: Cluster) -> Iterator[None]:
    """What a test has set is gone before the next one, and its broker knows it."""
    yield
    without_quotas(cluster)


@pytest.fixture
def config(cluster: Cluster, tmp_path: Path) -> Path:
    """Settings with a decision topic of this test's own."""
    path = tmp_path / "kquota.yaml"
    path.write_text(
        f"cluster_id: payments\ntables: {tmp_path}/tables\n"
        f"kafka: {{bootstrap_servers: '{cluster.bootstrap_servers}'}}\n"
        f"quotas: {{zookeeper_connect: '{cluster.zookeeper_connect}'}}\n"
        # No pause of a busy machine makes a gate stale.
        f"enforcement: {{allow_open_nodes: true, decision_topic: decisions-{tmp_path.name}, gate_silence: 5 min}}\n",
        encoding="utf-8",
    )
    return path


def test_lifted_quotas_throttle_nobody_and_come_back_to_the_byte(
    cluster: Cluster, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zookeeper = cluster.zookeeper_connect
    set_quota(zookeeper, client_id=DEFAULT, producer_byte_rate=10_000, request_percentage=200)
    set_quota(zookeeper, user="alice", client_id="a b/c", consumer_byte_rate=7)
    with connected(zookeeper) as client:
        scram = b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x","consumer_byte_rate":"5","producer_byte_rate":"6"}}'
        client.create("/config/users/bob", scram)
        before = config_tree(client)
        until_brokers_act(cluster)
        assert throttle_ms(cluster, "pressing") > 0
        disable = ["quotas", "disable", "--config", str(config)]
        assert main(disable) == NOTHING
        assert config_tree(client) == before
        assert capsys.readouterr().out.endswith("nothing was changed; add --yes to do it\n")
        assert main([*disable, "--yes", "--reason", "incident 7"]) == 0
        assert "5 quotas lifted" in capsys.readouterr().out
        until_brokers_act(cluster)
        assert b"byte_rate" not in b"".join(data or b"" for data, _ in config_tree(client).values())
        assert throttle_ms(cluster, "pressing") == 0
        assert main(["quotas", "status", "--config", str(config), "--output", "csv"]) == 0
        assert capsys.readouterr().out.count("incident 7") == 5
        assert main(["quotas", "enable", "--config", str(config), "--yes"]) == 0
        assert config_tree(client) == before
        until_brokers_act(cluster)
        assert throttle_ms(cluster, "pressing") > 0


class Clock:
    """Starts at the wall clock, by which quotas are known, and goes on by hand."""

    def __init__(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def watched(settings: Settings, config: Path) -> RuleBook:
    """The quotas as the tables have them now, once brokers act on the newest edit: 95 ms after it."""
    assert main(["watch", "--once", "--config", str(config)]) == 0
    until_in_force(settings)
    return RuleBook(stored_rules(settings).periods)


def throttles(check: Callable[[Request, int], Applied], from_ms: int) -> list[Applied]:
    """Of three clients that send 3 MB each second for 20 s."""
    return [
        check(Request(Api.PRODUCE, user, client_id, 1, 9, 1_000_000), from_ms + 333 * number)
        for number in range(60)
        for user, client_id in (("gated", "app"), ("carol", "app"), ("carol", "free"))
    ]


def test_a_gate_that_follows_the_topic_throttles_as_a_broker(cluster: Cluster, config: Path) -> None:
    zookeeper, settings = cluster.zookeeper_connect, load_settings(config)
    set_quota(zookeeper, user="gated", producer_byte_rate=2_000_000)
    set_quota(zookeeper, user="carol", client_id=DEFAULT, producer_byte_rate=1_000_000)
    set_quota(zookeeper, user="carol", client_id="free", producer_byte_rate=999_999_999)
    book, clock = watched(settings, config), Clock()
    with FollowedGate.of(settings) as early, DecisionPublisher(settings) as publisher:
        assert early.state is GateState.FALLBACK
        assert publisher.publish([], clock()) >= 3
        assert publisher.publish([], clock()) == 0
        # Started before there was a topic: it finds it.
        until(lambda: early.state is GateState.LIVE)
    with DecisionPublisher(settings) as publisher:  # the next one finds what the first one wrote
        assert publisher.publish([], clock()) == 0
    admin = AdminClient({**cluster.client_settings()})
    config_of = admin.describe_configs(
        [ConfigResource(ResourceType.TOPIC, settings.enforcement.decision_topic)]
    )
    [topic] = [found.result(WITHIN_S) for found in config_of.values()]
    assert topic["cleanup.policy"].value == "compact"
    gate = FollowedGate.of(settings)
    gate._clock_ms = clock
    with gate:
        until(lambda: gate.state is GateState.LIVE)
        manager = QuotaManager(governed_limits(RuleGovernor(book), 1, clock()), RateConfig())
        start_ms = clock()

        def check(request: Request, time_ms: int) -> Applied:
            clock.now_ms = time_ms
            return gate.check(request)

        found = throttles(check, start_ms)
        assert found == throttles(manager.check, start_ms)
        # Each client waits or does not as its quota says: 3 MB/s over 2 and 1 MB/s, and far below 1 GB/s.
        assert [any(applied.throttle_ms for applied in found[client::3]) for client in range(3)] == [
            True,
            True,
            False,
        ]
        clock.now_ms = start_ms + settings.enforcement.gate_silence + 1_000
        assert gate.state is GateState.STALE
        assert gate.check(Request(Api.PRODUCE, "gated", "app", 1, 9, 40_000_000)).by is QuotaType.PRODUCE


def test_what_is_removed_is_free_and_what_is_broken_is_put_right(cluster: Cluster, config: Path) -> None:
    settings, broken = load_settings(config), Request(Api.PRODUCE, "broken", "app", 1, 9, 40_000_000)
    set_quota(cluster.zookeeper_connect, user="broken", producer_byte_rate=1_000)
    watched(settings, config)
    with DecisionPublisher(settings) as publisher, FollowedGate.of(settings) as gate:
        publisher.publish([], Clock()())
        until(lambda: gate.check(broken).throttle_ms > 0)
        producer = Producer(cluster.client_settings())
        producer.produce(settings.enforcement.decision_topic, b"{", b"payments/users/broken")
        assert producer.flush(WITHIN_S) == 0
        until(lambda: gate.counts.refused == 1)
        assert gate.check(broken).throttle_ms > 0
        assert publisher.publish([], Clock()()) == 1
        remove_quota(cluster.zookeeper_connect, user="broken")
        watched(settings, config)
        # Brokers act on it 95 ms after the edit, and so do the tables.
        until(lambda: publisher.publish([], Clock()()) == 1)
        until(lambda: gate.check(broken).throttle_ms == 0)


def test_a_topic_that_forgets_is_refused(cluster: Cluster) -> None:
    create_topics(cluster, {"not-compacted": 1})
    with pytest.raises(UserError, match=r"cleanup\.policy is delete, expected compact"):
        ensure_topic(Connection(cluster.bootstrap_servers, "not-compacted"))
