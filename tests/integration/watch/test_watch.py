"""The watch against a real ZooKeeper: what it writes, live, after a restart and after a lost session."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from kazoo.client import KazooClient

from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.watch import Watcher
from kquota_spark.quotas.watched_sources import ZooKeeperSource
from kquota_spark.store.rules_tables import RulesTables
from tests.support.chance import Chance
from tests.support.clusters.quota_nodes import (
    changes,
    known_through_ms,
    payload,
    produce_rates,
    put,
    rows,
    until_known,
)
from tests.support.clusters.waiting import WITHIN_S, until


def test_a_snapshot_of_all_eight_levels(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    paths = [
        "users/a%20b/clients/c%2Ad",
        "users/a%20b/clients/<default>",
        "users/a%20b",
        "users/<default>/clients/c%2Ad",
        "users/<default>/clients/<default>",
        "users/<default>",
        "clients/c%2Ad",
        "clients/<default>",
    ]
    stats = {
        path: put(client, path, payload(producer_byte_rate=str(level))) for level, path in enumerate(paths, 1)
    }
    watch(settings)
    found = {row["entity"]: row for row in rows(settings, "quota_rules") if row["valid_to"] is None}
    for level, path in enumerate(paths, 1):
        row = found[path]
        assert (row["level"], row["producer_byte_rate"]) == (level, float(level))
        assert row["user"] == ("a b" if level <= 3 else None)
        assert row["client_id"] == ("c*d" if level in (1, 4, 7) else None)
        # Enforced 95 ms after the node's own mtime; before that, without quotas.
        assert (row["valid_from"], row["version"]) == (stats[path].mtime + 95, stats[path].mzxid)
    before = [row for row in rows(settings, "quota_rules") if row["valid_from"] == 0]
    assert {row["entity"]: row["producer_byte_rate"] for row in before} == dict.fromkeys(paths)
    assert changes(settings) == {
        (path, "producer_byte_rate", float(level), None, stats[path].mtime, stats[path].mzxid)
        for level, path in enumerate(paths, 1)
    }
    protocol = DeltaTable(f"{settings.tables}/quota_rules").protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


@pytest.mark.usefixtures("only_events")
def test_live_edits_have_the_time_and_version_of_the_node(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    first = put(client, "users/alice", payload(producer_byte_rate="1"))
    gone = put(client, "users/bob/clients/etl", payload(consumer_byte_rate="5"))
    watch(settings)
    second = put(client, "users/alice", payload(producer_byte_rate="2", request_percentage="50"))
    until_known(settings, now_ms())
    third = put(client, "users/alice", payload(request_percentage="50"))
    new = put(client, "users/carol/clients/<default>", payload(producer_byte_rate="9"))
    asked_ms = now_ms()
    client.delete("/config/users/bob", recursive=True)
    pzxid = client.get_children("/config/users", include_data=True)[1].pzxid
    until_known(settings, now_ms())
    found = changes(settings)
    [removal] = [change for change in found if change[0] == "users/bob/clients/etl" and change[2] is None]
    assert removal[:4] == ("users/bob/clients/etl", "consumer_byte_rate", None, 5.0)
    assert asked_ms <= removal[4] <= now_ms()
    assert removal[5] == pzxid
    assert found - {removal} == {
        ("users/alice", "producer_byte_rate", 1.0, None, first.mtime, first.mzxid),
        ("users/bob/clients/etl", "consumer_byte_rate", 5.0, None, gone.mtime, gone.mzxid),
        ("users/alice", "producer_byte_rate", 2.0, 1.0, second.mtime, second.mzxid),
        ("users/alice", "request_percentage", 50.0, None, second.mtime, second.mzxid),
        ("users/alice", "producer_byte_rate", None, 2.0, third.mtime, third.mzxid),
        ("users/carol/clients/<default>", "producer_byte_rate", 9.0, None, new.mtime, new.mzxid),
    }


def test_a_restart_adds_nothing_but_the_edits_made_while_down(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    put(client, "users/bob", payload(producer_byte_rate="1"))
    put(client, "users/nan", payload(request_percentage="NaN"))
    put(client, "users/broken", b"{")
    watch(settings).stop()
    before = rows(settings, "quota_changes")
    version = DeltaTable(f"{settings.tables}/quota_changes").version()
    watch(settings).stop()
    assert DeltaTable(f"{settings.tables}/quota_changes").version() == version
    assert len(before) == 5  # nan and broken have a row for their problem
    edited = put(client, "users/alice", payload(producer_byte_rate="2"))
    client.delete("/config/users/bob")
    watch(settings)
    assert len(rows(settings, "quota_changes")) == len(before) + 2
    assert ("users/alice", "producer_byte_rate", 2.0, 1.0, edited.mtime, edited.mzxid) in changes(settings)
    assert produce_rates(settings)["users/bob"] is None


def test_a_crash_between_the_two_tables_is_repaired(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    stat = put(client, "users/alice", payload(producer_byte_rate="1"))
    tables = RulesTables(settings.tables, settings.cluster_id, source="zookeeper", apply_lag_ms=95)
    change = QuotaChange(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE, 1.0, None, stat.mtime, stat.mzxid)
    tables.append([change], [], now_ms())  # and no write_rules
    assert rows(settings, "quota_rules") == []
    watch(settings)
    assert produce_rates(settings) == {"users/alice": 1.0}
    assert len(rows(settings, "quota_changes")) == 1


@pytest.mark.usefixtures("only_events")
def test_an_expired_session_loses_no_edit(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    put(client, "users/bob", payload(producer_byte_rate="1"))
    watcher = watch(settings)
    assert isinstance(watcher._source, ZooKeeperSource)
    victim = watcher._source._tree._client
    session = victim.client_id
    # A second client takes the session over and ends it, as an expiry would.
    thief = KazooClient(settings.quotas.zookeeper_connect, client_id=session)
    thief.start(timeout=WITHIN_S)
    thief.stop()
    thief.close()
    put(client, "users/alice", payload(producer_byte_rate="2"))
    client.delete("/config/users/bob")
    put(client, "clients/new", payload(producer_byte_rate="3"))
    until(lambda: victim.client_id is not None and victim.client_id[0] != session[0])
    until_known(settings, now_ms())
    expected: dict[str, float | None] = {"users/alice": 2.0, "users/bob": None, "clients/new": 3.0}
    assert produce_rates(settings) == expected
    # And the new session's watches are set.
    put(client, "users/alice", payload(producer_byte_rate="4"))
    until(lambda: produce_rates(settings)["users/alice"] == 4.0)
    assert len(rows(settings, "quota_changes")) == 6


@pytest.mark.usefixtures("only_events")
def test_a_storm_of_edits_ends_in_the_state_of_zookeeper(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher], chance: Chance
) -> None:
    watch(settings)
    stopping = threading.Event()

    def storm() -> None:
        for _ in range(1_500):
            user, value = f"users/u{chance.randrange(8)}", str(chance.randrange(1, 1_000))
            path = chance.choice([user, f"{user}/clients/c{chance.randrange(4)}", "clients/c"])
            if chance.random() < 0.3:
                if client.exists(f"/config/{path}"):
                    client.delete(f"/config/{path}", recursive=True)
            else:
                put(client, path, payload(producer_byte_rate=value))
        stopping.set()

    thread = threading.Thread(target=storm)
    thread.start()
    thread.join(WITHIN_S)
    assert stopping.is_set()
    until_known(settings, now_ms())
    expected: dict[str, float | None] = {}
    for path in ["clients/c", *(f"users/u{u}" for u in range(8))] + [
        f"users/u{u}/clients/c{c}" for u in range(8) for c in range(4)
    ]:
        if client.exists(f"/config/{path}") and (data := client.get(f"/config/{path}")[0]):
            expected[path] = float(json.loads(data)["config"]["producer_byte_rate"])
    found = {entity: rate for entity, rate in produce_rates(settings).items() if rate is not None}
    assert found == expected
    versions = [row["version"] for row in rows(settings, "quota_rules") if row["entity"] == "clients/c"]
    assert len(versions) == len(set(versions))


def test_two_clusters_share_the_tables(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    names = ("it's one", "other")
    for name in names:
        watch(dataclasses.replace(settings, cluster_id=name))
    put(client, "users/alice", payload(producer_byte_rate="2"))
    asked_ms = now_ms()

    def known(name: str) -> bool:
        own = [row for row in rows(settings, "quota_rules") if row["cluster_id"] == name]
        [source] = [row for row in own if row["level"] == 0]
        last = [row["producer_byte_rate"] for row in own if row["level"] and row["valid_to"] is None]
        return bool(source["known_through"] >= asked_ms and last == [2.0])

    until(lambda: all(known(name) for name in names))
    counts = [row["cluster_id"] for row in rows(settings, "quota_changes")]
    assert sorted(counts) == ["it's one", "it's one", "other", "other"]


def test_a_quota_file_is_written_without_lag_and_known_for_ever(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(
        "- {user: alice, type: producer_byte_rate, value: 7, from_ms: 1000, to_ms: 2000}\n", "utf-8"
    )
    of_file = dataclasses.replace(settings, quotas=Quotas(source="file", file=str(path)))
    for _ in range(2):
        watcher = Watcher(of_file)
        watcher.start()
        watcher.check()
        watcher.stop()
    assert changes(of_file) == {
        ("users/alice", "producer_byte_rate", 7.0, None, 1_000, 1_000),
        ("users/alice", "producer_byte_rate", None, 7.0, 2_000, 2_000),
    }
    assert len(rows(of_file, "quota_changes")) == 2
    periods = [
        (row["valid_from"], row["valid_to"], row["producer_byte_rate"])
        for row in rows(of_file, "quota_rules")
        if row["level"]
    ]
    assert sorted(periods) == [(0, 1_000, None), (1_000, 2_000, 7.0), (2_000, None, None)]
    assert known_through_ms(of_file) == 253_402_300_799_999
