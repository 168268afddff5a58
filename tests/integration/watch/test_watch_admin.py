"""The watch through the Admin API, of brokers in ZooKeeper mode and of a KRaft node: the same claims of both."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Kafka, Quotas, Settings
from kquota_spark.embedded.admin import alter_quota
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.watch import Watcher
from kquota_spark.quotas.watched_sources import PolledSource
from tests.support.clusters.outages import pause, resume
from tests.support.clusters.quota_nodes import known_through_ms, produce_rates, rows, until_known
from tests.support.clusters.waiting import WITHIN_S, until

APPLY_LAG_MS = {"zookeeper": 95, "kraft": 0}
"""A KRaft broker acts on an edit at once; one with ZooKeeper after it has heard of it."""


@pytest.fixture(scope="module", params=["zookeeper", "kraft"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(kind: str, sasl_cluster: Cluster, kraft_sasl_cluster: Cluster) -> Cluster:
    """The shared one of each kind with logins."""
    running = {"zookeeper": sasl_cluster, "kraft": kraft_sasl_cluster}[kind]
    alter_quota(running, {"producer_byte_rate": 1_000.0}, user="a b", client_id=DEFAULT)
    return running


@pytest.fixture
def admin(cluster: Cluster, tmp_path: Path) -> Settings:
    login = cluster.client_settings("alice")
    servers = login.pop("bootstrap.servers")
    quotas = Quotas(source="admin", connect_timeout=Duration(30_000), poll_interval=Duration(100))
    kafka = Kafka(bootstrap_servers=servers, options=login)
    return Settings(cluster_id="test", tables=str(tmp_path / "tables"), quotas=quotas, kafka=kafka)


def test_edits_lie_between_two_polls_and_brokers_act_on_them_after_the_lag(
    cluster: Cluster, kind: str, admin: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    watch(admin)
    until_known(admin, now_ms())
    asked_ms = now_ms()
    alter_quota(cluster, {"producer_byte_rate": 5.0, "request_percentage": 12.5}, user="bob")
    told_ms = now_ms()  # by the broker, which acts on it by now
    alter_quota(cluster, {"connection_creation_rate": 7.0}, ip="10.0.0.1")
    until_known(admin, now_ms())
    alter_quota(cluster, {"producer_byte_rate": None, "request_percentage": None}, user="bob")
    alter_quota(cluster, {"connection_creation_rate": None}, ip="10.0.0.1")
    until_known(admin, now_ms())
    found = {(row["entity"], row["key"], row["value"]): row for row in rows(admin, "quota_changes")}
    first = found["users/a%20b/clients/<default>", "producer_byte_rate", 1_000.0]
    assert first["changed_at"] == 0  # there at the first poll: nobody knows since when
    of_bob = found["users/bob", "producer_byte_rate", 5.0]
    # Between two polls of 100 ms each, that a busy machine may stretch, and around the true moment.
    assert of_bob["changed_at"] < told_ms and asked_ms < of_bob["changed_before"]
    assert found["users/bob", "request_percentage", 12.5]["version"] == of_bob["version"]
    assert found["users/bob", "producer_byte_rate", None]["version"] > of_bob["version"]
    assert ("ips/10.0.0.1", "connection_creation_rate", 7.0) in found
    assert ("ips/10.0.0.1", "connection_creation_rate", None) in found
    [rule] = [row for row in rows(admin, "quota_rules") if row["producer_byte_rate"] == 5.0]
    lag_ms = APPLY_LAG_MS[kind]
    assert rule["valid_from"] == of_bob["changed_at"] + lag_ms
    assert rule["certain_from"] == of_bob["changed_before"] + lag_ms
    assert produce_rates(admin) == {"users/a%20b/clients/<default>": 1_000.0, "users/bob": None}


def test_an_edit_made_while_nobody_watched_may_be_as_old_as_the_last_poll(
    cluster: Cluster, admin: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    watch(admin).stop()
    through_ms = known_through_ms(admin)
    alter_quota(cluster, {"producer_byte_rate": 9.0}, user="carol")
    watch(admin)
    [row] = [row for row in rows(admin, "quota_changes") if row["entity"] == "users/carol"]
    assert row["changed_at"] == through_ms
    assert row["changed_before"] <= now_ms()
    alter_quota(cluster, {"producer_byte_rate": None}, user="carol")


def held_back(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> threading.Lock:
    """A lock that each poll of the watcher takes."""
    source, lock = watcher._source, threading.Lock()
    assert isinstance(source, PolledSource)
    described = source._described

    def locked() -> QuotaSet:
        with lock:
            return described()

    monkeypatch.setattr(source, "_described", locked)
    return lock


def test_silent_brokers_stop_the_knowledge_and_nothing_counts_as_deleted(
    cluster: Cluster,
    admin: Settings,
    watch: Callable[[Settings], Watcher],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick = dataclasses.replace(admin.quotas, connect_timeout=Duration(3_000))
    settings = dataclasses.replace(admin, quotas=quick)
    watcher = watch(settings)
    polling = held_back(watcher, monkeypatch)
    pause(cluster, 1)
    try:
        paused_ms = now_ms()
        until(lambda: "quotas are not known from here on" in caplog.text)
        assert (known_through_ms(settings) or 0) <= paused_ms
        watcher.check()
        assert polling.acquire(timeout=WITHIN_S)
    finally:
        resume(cluster, 1)
    try:
        # No poll is answered between the pause and this edit.
        alter_quota(cluster, {"producer_byte_rate": 2.0}, user="dave")
    finally:
        polling.release()
    until_known(settings, now_ms())
    assert produce_rates(settings) == {"users/a%20b/clients/<default>": 1_000.0, "users/dave": 2.0}
    [row] = [row for row in rows(settings, "quota_changes") if row["entity"] == "users/dave"]
    assert row["changed_at"] <= paused_ms  # it may have come right after the last answer
    said = [record for record in caplog.records if record.name.startswith("kquota_spark.")]
    # Gone, and back again, each once; on a machine that pauses, too, it may seem gone more often.
    assert [record.levelno for record in said] == [logging.WARNING] * len(said)
    is_back = ["describes its quotas again" in record.message for record in said]
    assert is_back == [False, True] * (len(said) // 2) != []
    assert "alice's password" not in caplog.text
    alter_quota(cluster, {"producer_byte_rate": None}, user="dave")


def test_a_refused_login_is_one_line_without_the_password(admin: Settings) -> None:
    options = {**admin.kafka.options, "sasl.password": "wrong-canary"}
    wrong = dataclasses.replace(admin, kafka=dataclasses.replace(admin.kafka, options=options))
    with pytest.raises(UserError) as raised:
        Watcher(wrong).start()
    assert (
        str(raised.value) == f"Kafka {admin.kafka.bootstrap_servers} refused the login: check kafka.options"
    )
