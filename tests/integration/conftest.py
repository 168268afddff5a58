"""A client, settings and watchers in a chroot of each test, in the ZooKeeper of the shared cluster."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Enforcement, Quotas, Settings
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.enforcement.assembly import Edges, enforcement_edges
from kquota_spark.quotas.watch import Watcher

_NUMBERS = itertools.count(1)
_STARTED_WITHIN_S = 60.0


@pytest.fixture(scope="session")
def zookeeper(running_with_zookeeper: Cluster) -> Cluster:
    """That of the shared cluster, whose own nodes are outside all chroots of tests."""
    return running_with_zookeeper


@pytest.fixture
def client(zookeeper: Cluster) -> Iterator[KazooClient]:
    """A client in a chroot of this test, with the nodes that brokers make when they start."""
    chroot = f"/test-{next(_NUMBERS)}"
    outer = KazooClient(zookeeper.zookeeper_connect)
    outer.start(timeout=_STARTED_WITHIN_S)
    for root in ("users", "clients"):
        outer.ensure_path(f"{chroot}/config/{root}")
    inner = KazooClient(zookeeper.zookeeper_connect + chroot)
    inner.start(timeout=_STARTED_WITHIN_S)
    yield inner
    for each in (inner, outer):
        each.stop()
        each.close()


@pytest.fixture
def settings(zookeeper: Cluster, client: KazooClient, tmp_path: Path) -> Settings:
    quotas = Quotas(
        zookeeper_connect=zookeeper.zookeeper_connect + client.chroot,
        session_timeout=Duration(2_000),
        connect_timeout=Duration(30_000),
        known_through_interval=Duration(100),
    )
    return Settings(cluster_id="test", tables=str(tmp_path / "tables"), quotas=quotas)


@pytest.fixture
def watch() -> Iterator[Callable[[Settings], Watcher]]:
    """Starts watchers; they are stopped and asked for errors at the end."""
    started: list[Watcher] = []

    def start(settings: Settings) -> Watcher:
        watcher = Watcher(settings)
        watcher.start()
        started.append(watcher)
        return watcher

    yield start
    for watcher in started:
        watcher.stop()
        watcher.check()


@pytest.fixture
def only_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """No patrol, which would find in time what an event should have told."""
    monkeypatch.setattr("kquota_spark.zookeeper.mirror._PATROL", 0)


@pytest.fixture
def enforced(settings: Settings, client: KazooClient) -> Settings:
    """Settings to enforce by, with the node that brokers watch; no pause of a busy machine ends the lease."""
    client.ensure_path("/config/changes")
    return dataclasses.replace(
        settings, enforcement=Enforcement(lease_time=Duration(30_000), allow_open_nodes=True)
    )


@pytest.fixture
def edges(enforced: Settings) -> Iterator[Edges]:
    """The edges of an enforcer."""
    with enforcement_edges(enforced) as opened:
        yield opened
