"""The watch against a real ZooKeeper: what it writes, when it says that it knows, and what it never tells."""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kazoo.client import KazooClient
from kazoo.security import ACL, Id, make_digest_acl

from kquota_spark.config.settings import Duration, Quotas, Settings
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.processes import wait_for
from kquota_spark.errors import UserError
from kquota_spark.formats.znodes import Node, QuotaPayload, View
from kquota_spark.io.rules_tables import RulesTables
from kquota_spark.io.watch import Edits, Ledger, Watcher, now_ms
from kquota_spark.model.entities import Entity
from kquota_spark.model.quota_types import QuotaKey
from kquota_spark.model.rules import QuotaChange

pytestmark = pytest.mark.integration

CANARY = "c2FsdA-canary-77"
SCRAM = f"salt={CANARY},stored_key={CANARY},server_key={CANARY},iterations=4096"
WITHIN_S = 30.0


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with embedded_cluster(tmp_path_factory.mktemp("zookeeper"), brokers=0) as running:
        yield running


@pytest.fixture
def client(zookeeper: Cluster, request: pytest.FixtureRequest) -> Iterator[KazooClient]:
    """A client in a chroot of this test, with the nodes that brokers make when they start."""
    chroot = f"/{request.node.name[:40]}"
    outer = KazooClient(zookeeper.zookeeper_connect)
    outer.start()
    for root in ("users", "clients"):
        outer.ensure_path(f"{chroot}/config/{root}")
    inner = KazooClient(zookeeper.zookeeper_connect + chroot)
    inner.start()
    yield inner
    for each in (inner, outer):
        each.stop()
        each.close()


@pytest.fixture
def settings(zookeeper: Cluster, client: KazooClient, tmp_path: Path) -> Settings:
    quotas = Quotas(
        zookeeper_connect=zookeeper.zookeeper_connect + client.chroot,
        session_timeout=Duration(2_000),
        connect_timeout=Duration(10_000),
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
    monkeypatch.setattr("kquota_spark.io.zookeeper._PATROL", 0)


def payload(**config: Any) -> bytes:
    return json.dumps({"version": 1, "config": config}).encode()


def put(client: KazooClient, path: str, data: bytes | None) -> Any:
    """Write a node; its stat."""
    if client.exists(f"/config/{path}"):
        return client.set(f"/config/{path}", data)
    client.create(f"/config/{path}", data, makepath=True)
    return client.exists(f"/config/{path}")


def rows(settings: Settings, table: str) -> list[dict[str, Any]]:
    found = DeltaTable(f"{settings.tables}/{table}").to_pyarrow_table().to_pylist()
    return [
        {name: round(v.timestamp() * 1000) if hasattr(v, "timestamp") else v for name, v in row.items()}
        for row in found
    ]


def changes(settings: Settings) -> set[tuple[Any, ...]]:
    """(entity, key, value, previous value, time, version) of every edit."""
    names = ("entity", "key", "value", "previous_value", "changed_at", "version")
    return {tuple(row[name] for name in names) for row in rows(settings, "quota_changes") if row["key"]}


def problems(settings: Settings) -> dict[str, str]:
    return {row["entity"]: row["problem"] for row in rows(settings, "quota_changes") if row["problem"]}


def produce_rates(settings: Settings) -> dict[str, float | None]:
    """What the last stretch of each entity says."""
    last = [row for row in rows(settings, "quota_rules") if row["level"] and row["valid_to"] is None]
    return {row["entity"]: row["producer_byte_rate"] for row in last}


def known_through_ms(settings: Settings) -> int | None:
    [row] = [row for row in rows(settings, "quota_rules") if row["level"] == 0]
    known: int | None = row["known_through"]
    return known


def until(condition: Callable[[], bool]) -> None:
    assert wait_for(condition, within_s=WITHIN_S)


def until_known(settings: Settings, time_ms: int) -> None:
    until(lambda: (known_through_ms(settings) or 0) >= time_ms)


def files_with(root: Path, text: str) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


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
    assert watcher._tree is not None
    victim = watcher._tree._client
    session = victim.client_id
    # A second client takes the session over and ends it, as an expiry would.
    thief = KazooClient(settings.quotas.zookeeper_connect, client_id=session)
    thief.start()
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
def test_nothing_is_known_while_the_server_is_silent(
    zookeeper: Cluster,
    client: KazooClient,
    settings: Settings,
    watch: Callable[[Settings], Watcher],
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    watch(settings)
    zookeeper.pause("zookeeper")
    try:
        paused_ms = now_ms()
        until(lambda: "connection SUSPENDED" in caplog.text)
        assert (known_through_ms(settings) or 0) <= paused_ms
    finally:
        zookeeper.resume("zookeeper")
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
    quick = dataclasses.replace(settings.quotas, connect_timeout=Duration(500))
    with pytest.raises(UserError, match="no right to read /config/users: check the chroot"):
        Watcher(dataclasses.replace(settings, quotas=quick)).start()


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
    assert "shows 2 quota nodes older than recorded (first: 'users/alice')" in caplog.text


@pytest.mark.usefixtures("only_events")
def test_a_storm_of_edits_ends_in_the_state_of_zookeeper(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
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
    quotas = dataclasses.replace(
        settings.quotas,
        zookeeper_connect=f"{zookeeper.zookeeper_connect}/nowhere",
        connect_timeout=Duration(500),
    )
    with pytest.raises(UserError, match=r"/nowhere: /config/users does not exist: check the chroot"):
        Watcher(dataclasses.replace(settings, quotas=quotas)).start()


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
    stretches = [
        (row["valid_from"], row["valid_to"], row["producer_byte_rate"])
        for row in rows(of_file, "quota_rules")
        if row["level"]
    ]
    assert sorted(stretches) == [(0, 1_000, None), (1_000, 2_000, 7.0), (2_000, None, None)]
    assert known_through_ms(of_file) == 253_402_300_799_999


def test_a_clock_ahead_of_the_server_does_not_bury_a_node_that_came_again() -> None:
    alice, key = Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE
    ledger = Ledger([QuotaChange(alice, key, 1.0, None, 1_000, 5)], {})
    # Our clock is 400 ms ahead: the deletion at 2,000 is recorded at 2,400, the next edit has mtime 2,100.
    assert ledger.compare(View({}, {"users": 6}), 2_400).changes == [
        QuotaChange(alice, key, None, 1.0, 2_400, 6)
    ]
    again = Node(QuotaPayload({key: 3.0}), 2_100, 7)
    assert ledger.compare(View({"users/alice": again}, {"users": 7}), 2_500).changes == [
        QuotaChange(alice, key, 3.0, None, 2_400, 7)
    ]


def test_a_password_alone_is_no_edit_but_its_version_counts() -> None:
    ledger = Ledger([QuotaChange(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE, 1.0, None, 1_000, 5)], {})
    same = QuotaPayload({QuotaKey.PRODUCER_BYTE_RATE: 1.0})
    assert ledger.compare(View({"users/alice": Node(same, 3_000, 9)}, {"users": 2}), 3_100) == Edits()
    older = ledger.compare(View({"users/alice": Node(QuotaPayload(), 2_000, 8)}, {"users": 2}), 3_200)
    assert older == Edits(refused=["users/alice"])
