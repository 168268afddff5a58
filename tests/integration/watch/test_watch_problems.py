"""The watch and what goes wrong: what it never tells, when it does not know, and when it does not start."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, Id, make_digest_acl

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Settings
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.watch import Watcher
from kquota_spark.store.rules_tables import RulesTables
from tests.support.clusters.outages import pause, resume
from tests.support.clusters.quota_nodes import (
    known_through_ms,
    payload,
    problems,
    produce_rates,
    put,
    refusal,
    until_known,
)
from tests.support.clusters.waiting import until

CANARY = "c2FsdA-canary-77"
SCRAM = f"salt={CANARY},stored_key={CANARY},server_key={CANARY},iterations=4096"


def files_with(root: Path, text: str) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_secrets_and_malformed_nodes_beside_quotas(
    client: KazooClient,
    settings: Settings,
    watch: Callable[[Settings], Watcher],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    # The client of this test writes the canary: what it logs is not what is tested.
    caplog.set_level(logging.WARNING, logger="kazoo")
    # Whoever debugs something else sets the root logger to DEBUG; kazoo would then log every payload.
    caplog.set_level(logging.DEBUG)
    put(client, "users/alice", payload(**{"SCRAM-SHA-256": SCRAM, "producer_byte_rate": "7"}))
    put(client, "users/login-only", payload(**{"SCRAM-SHA-512": SCRAM}))
    put(client, "users/null", None)
    put(client, "users/empty", b"")
    put(client, "users/text", CANARY.encode())
    put(client, "users/number", payload(**{"producer_byte_rate": 7, "SCRAM-SHA-256": SCRAM}))
    put(client, "users/broken", payload(**{"SCRAM-SHA-256": SCRAM, "producer_byte_rate": CANARY}))
    put(client, "users/bad%zz", payload(producer_byte_rate="7"))
    watcher = watch(settings)
    assert produce_rates(settings) == {"users/alice": 7.0}
    assert set(problems(settings)) == {"users/text", "users/number", "users/broken", "users/bad%zz"}
    # Live, too: a value that brokers refuse leaves what they had, and the rest goes on.
    put(client, "users/alice", payload(**{"SCRAM-SHA-256": SCRAM, "producer_byte_rate": "x" + CANARY}))
    put(client, "users/bob", payload(producer_byte_rate="8"))
    until(lambda: produce_rates(settings) == {"users/alice": 7.0, "users/bob": 8.0})
    until(lambda: "users/alice" in problems(settings))
    watcher.check()
    watcher.stop()
    assert "quota node 'users/broken'" in caplog.text
    assert CANARY not in caplog.text
    assert files_with(tmp_path, CANARY) == []


@pytest.mark.usefixtures("only_events")
def test_nothing_is_known_while_the_server_is_silent(
    zookeeper: Cluster,
    client: KazooClient,
    settings: Settings,
    watch: Callable[[Settings], Watcher],
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    began_ms = now_ms()
    watch(settings)
    until_known(settings, began_ms)
    pause(zookeeper, "zookeeper")
    try:
        paused_ms = now_ms()
        until(lambda: "connection SUSPENDED" in caplog.text)
        known_ms = known_through_ms(settings)
        assert known_ms is not None
        assert began_ms <= known_ms <= paused_ms
    finally:
        resume(zookeeper, "zookeeper")
    resumed_ms = now_ms()
    until_known(settings, resumed_ms)
    # The client of this test may have lost its session as well; kazoo makes a new one.
    client.retry(client.set, "/config/users/alice", payload(producer_byte_rate="2"))
    until(lambda: produce_rates(settings) == {"users/alice": 2.0})


def test_a_node_without_read_rights_is_named_and_stops_the_knowledge(
    client: KazooClient,
    settings: Settings,
    watch: Callable[[Settings], Watcher],
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    watcher = watch(settings)
    client.add_auth("digest", "kafka:secret")
    client.set_acls("/config/users/alice", [make_digest_acl("kafka", "secret", all=True)])
    put(client, "users/alice", payload(producer_byte_rate="2"))
    until(lambda: "users/alice" in problems(settings))
    refused_ms = now_ms()
    put(client, "users/bob", payload(producer_byte_rate="3"))
    until(lambda: produce_rates(settings) == {"users/alice": 1.0, "users/bob": 3.0})
    assert problems(settings) == {"users/alice": "no right to read /config/users/alice"}
    assert (known_through_ms(settings) or 0) < refused_ms
    assert "no right to read /config/users/alice: quotas are not fully known" in caplog.text
    assert "secret" not in caplog.text
    watcher.check()
    client.set_acls("/config/users/alice", [ACL(31, Id("world", "anyone"))])
    until_known(settings, refused_ms)
    assert produce_rates(settings) == {"users/alice": 2.0, "users/bob": 3.0}


def test_a_root_without_read_rights_is_one_line(client: KazooClient, settings: Settings) -> None:
    client.add_auth("digest", "kafka:secret")
    client.set_acls("/config/users", [make_digest_acl("kafka", "secret", all=True)])
    assert "no right to read /config/users: check the chroot" in str(refusal(settings))


def test_older_nodes_than_recorded_are_refused(
    client: KazooClient,
    settings: Settings,
    watch: Callable[[Settings], Watcher],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # As after a restore of ZooKeeper's data: the table knows alice and bob with later zxids.
    put(client, "users/alice", payload(producer_byte_rate="1"))
    key = QuotaKey.PRODUCER_BYTE_RATE
    tables = RulesTables(settings.tables, settings.cluster_id, source="zookeeper", apply_lag_ms=95)
    recorded = [QuotaChange(Entity(name), key, 5.0, None, 1_000, 10**9) for name in ("alice", "bob")]
    tables.append(recorded, [], 1_000)
    tables.write_rules(1_000)
    watch(settings)
    assert produce_rates(settings) == {"users/alice": 5.0, "users/bob": 5.0}
    assert known_through_ms(settings) == 1_000
    assert "2 quota nodes are older than recorded (first: 'users/alice')" in caplog.text


def test_an_unreachable_server_is_one_line(settings: Settings) -> None:
    quotas = dataclasses.replace(
        settings.quotas, zookeeper_connect="127.0.0.1:1", connect_timeout=Duration(500)
    )
    with pytest.raises(UserError) as raised:
        Watcher(dataclasses.replace(settings, quotas=quotas)).start()
    assert str(raised.value) == (
        "ZooKeeper 127.0.0.1:1 did not answer within 0.5 s: "
        "check quotas.zookeeper_connect and that the server runs"
    )


def test_a_wrong_chroot_is_one_line(zookeeper: Cluster, settings: Settings) -> None:
    quotas = dataclasses.replace(settings.quotas, zookeeper_connect=f"{zookeeper.zookeeper_connect}/nowhere")
    said = str(refusal(dataclasses.replace(settings, quotas=quotas)))
    assert "/nowhere: /config/users does not exist: check the chroot" in said
