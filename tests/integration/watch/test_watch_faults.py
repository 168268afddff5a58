"""The watch and a ZooKeeper that is away, loses its data, holds odd nodes, or changes while it is read."""

from __future__ import annotations

import dataclasses
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kazoo.client import KazooClient

from kquota_spark.audit.job import run_audit
from kquota_spark.cli.main import main as kquota
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Kafka, Quotas, Settings
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.readiness import connected
from kquota_spark.errors import UserError
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.watch import Watcher
from kquota_spark.store.rules_tables import RulesTables
from tests.support.clusters.outages import kill, pause, resume
from tests.support.clusters.quota_nodes import (
    changes,
    known_through_ms,
    payload,
    problems,
    produce_rates,
    put,
    until_known,
)
from tests.support.clusters.waiting import WITHIN_S, until


def at(settings: Settings, connect: str, **quotas: object) -> Settings:
    changed = dataclasses.replace(settings.quotas, zookeeper_connect=connect, **quotas)  # type: ignore[arg-type]
    return dataclasses.replace(settings, quotas=changed)


def test_a_start_waits_for_a_server_that_comes_within_the_limit(
    zookeeper: Cluster, client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    pause(zookeeper, "zookeeper")
    starting = threading.Thread(target=watch, args=(settings,))
    try:
        starting.start()
        starting.join(1.0)
        assert starting.is_alive()
    finally:
        resume(zookeeper, "zookeeper")
    starting.join(WITHIN_S)
    assert not starting.is_alive()
    assert produce_rates(settings) == {"users/alice": 1.0}


def test_a_server_that_never_comes_ends_the_command_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kquota.yaml"
    quotas = "{zookeeper_connect: '127.0.0.1:1', connect_timeout: 300 ms}"
    config.write_text(f"tables: {tmp_path}/tables\nquotas: {quotas}\n", encoding="utf-8")
    assert kquota(["watch", "--config", str(config)]) == 1
    assert capsys.readouterr().err == (
        "kquota: ZooKeeper 127.0.0.1:1 did not answer within 0.3 s: check quotas.zookeeper_connect and that the "
        "server runs\n"
    )


def test_an_audit_without_a_server_and_without_stored_quotas_reads_no_line(
    zookeeper_cluster: Cluster, tmp_path: Path
) -> None:
    create_topics(zookeeper_cluster, {"unread": 1})
    settings = Settings(
        cluster_id="unread",
        tables=str(tmp_path / "tables"),
        checkpoints=str(tmp_path / "checkpoints"),
        kafka=Kafka(bootstrap_servers=zookeeper_cluster.bootstrap_servers, topic="unread"),
        quotas=Quotas(zookeeper_connect="127.0.0.1:1", connect_timeout=Duration(300)),
    )
    with pytest.raises(UserError, match=r"^ZooKeeper 127\.0\.0\.1:1 did not answer within 0\.3 s: check .*"):
        run_audit(settings, is_once=True, is_drained=False)
    # Spark was not started: no query has planned a micro-batch, and each table is as it was made.
    assert not (tmp_path / "checkpoints" / "log").exists()
    versions = {name: DeltaTable(f"{settings.tables}/{name}").version() for name in ("requests", "decisions")}
    assert versions == {"requests": 0, "decisions": 0}


def test_once_without_a_server_writes_nothing_and_fails_even_with_stored_quotas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RulesTables(str(tmp_path / "tables"), "kafka", source="zookeeper", apply_lag_ms=95).write_rules(5_000)
    config = tmp_path / "kquota.yaml"
    quotas = "{zookeeper_connect: '127.0.0.1:1', connect_timeout: 300 ms}"
    config.write_text(f"tables: {tmp_path}/tables\nquotas: {quotas}\n", encoding="utf-8")
    rules = DeltaTable(f"{tmp_path}/tables/quota_rules")
    before = rules.version()
    assert kquota(["watch", "--once", "--config", str(config)]) == 1
    assert capsys.readouterr().err == (
        "kquota: ZooKeeper 127.0.0.1:1 did not answer (connection refused): "
        "check quotas.zookeeper_connect and that the server runs\n"
    )
    rules.update_incremental()
    assert rules.version() == before


def test_without_a_server_the_stored_quotas_go_on_and_are_marked_as_stale(
    client: KazooClient,
    settings: Settings,
    watch: Callable[[Settings], Watcher],
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    watch(settings).stop()
    through_ms = known_through_ms(settings)
    away = at(settings, "127.0.0.1:1", connect_timeout=Duration(300))
    watcher = watch(away)
    assert watcher.is_stale and watcher.is_following
    assert (produce_rates(away), known_through_ms(away)) == ({"users/alice": 1.0}, through_ms)
    assert "did not answer within 0.3 s" in caplog.text
    assert "continuing with the quotas known through 20" in caplog.text
    watcher.check()


def test_a_killed_server_comes_back_and_one_that_lost_its_data_is_not_believed(
    tmp_path: Path, watch: Callable[[Settings], Watcher], caplog: pytest.LogCaptureFixture
) -> None:
    quotas = Quotas(session_timeout=Duration(1_000), known_through_interval=Duration(100))
    rates: dict[str, float | None] = {f"users/u{number}": 7.0 for number in range(12)}
    with embedded_cluster(tmp_path / "cluster", brokers=0) as own:
        settings = at(Settings(tables=str(tmp_path / "tables"), quotas=quotas), own.zookeeper_connect)
        with connected(own.zookeeper_connect) as client:
            client.ensure_path("/config/clients")
            for path in rates:
                put(client, path, payload(producer_byte_rate="7"))
        watcher = watch(settings)
        kill(own, "zookeeper")
        killed_ms = now_ms()
        own.start("zookeeper")
        until_known(settings, now_ms())
        assert produce_rates(settings) == rates

        kill(own, "zookeeper")
        killed_ms = now_ms()
        shutil.rmtree(own.servers[0].directory / "data")
        own.start("zookeeper")
        with connected(own.zookeeper_connect) as client:
            # As brokers do at their start. The quotas are gone, and so is the count of transactions.
            client.ensure_path("/config/users")
            client.ensure_path("/config/clients")
        # A server refuses a client that has seen later transactions than it has: this watch stays without one.
        watcher.stop()
        watch(settings).stop()
        assert "12 quota nodes are older than recorded (first: 'users/u0')" in caplog.text
        assert produce_rates(settings) == rates
        assert (known_through_ms(settings) or 0) <= killed_ms
        # Nobody restores it: with the flag the empty server is the truth, and knowledge goes on.
        accepted = at(settings, own.zookeeper_connect, accept_mass_removal=True)
        watch(accepted).stop()
        assert produce_rates(settings) == dict.fromkeys(rates)
        watch(settings)
        until_known(settings, now_ms())


def test_all_quotas_removed_at_once_are_kept_until_the_flag_is_given(
    client: KazooClient,
    settings: Settings,
    watch: Callable[[Settings], Watcher],
    caplog: pytest.LogCaptureFixture,
) -> None:
    rates: dict[str, float | None] = {f"users/u{number}": 7.0 for number in range(12)}
    for path in rates:
        put(client, path, payload(producer_byte_rate="7"))
    watch(settings).stop()
    # While nobody watches, so that they vanish in one view.
    for path in rates:
        client.delete(f"/config/{path}")
    through_ms = known_through_ms(settings)
    watcher = watch(settings)
    put(client, "clients/new", payload(producer_byte_rate="3"))
    until(lambda: produce_rates(settings) == {**rates, "clients/new": 3.0})
    assert "12 quota nodes have lost their quotas at once (first: 'users/u0')" in caplog.text
    assert known_through_ms(settings) == through_ms
    watcher.stop()
    watch(at(settings, settings.quotas.zookeeper_connect, accept_mass_removal=True))
    until_known(settings, now_ms())
    assert produce_rates(settings) == {**dict.fromkeys(rates), "clients/new": 3.0}


@pytest.mark.usefixtures("only_events")
def test_a_snapshot_taken_while_nodes_change_holds_no_value_that_never_was(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    paths = [f"users/u{number}" for number in range(100)]
    for path in paths:
        put(client, path, payload(producer_byte_rate="1"))
    stopping = threading.Event()
    written = {1}

    def flip() -> None:
        value = 1
        while not stopping.is_set():
            value += 1
            written.add(value)
            for path in paths:
                client.set(f"/config/{path}", payload(producer_byte_rate=str(value)))

    writer = threading.Thread(target=flip)
    writer.start()
    try:
        watcher = watch(settings)
        until_known(settings, now_ms())
    finally:
        stopping.set()
        writer.join()
    until_known(settings, now_ms())
    last = max(written)
    assert produce_rates(settings) == dict.fromkeys(paths, float(last))
    # Every recorded value was written, and each node's values only rise: no read mixed two states of a node.
    of_nodes: dict[str, list[float]] = {}
    for entity, _, value, _, _, _ in sorted(changes(settings), key=lambda change: change[-1]):
        of_nodes.setdefault(entity, []).append(value)
    assert all(set(values) <= written and values == sorted(values) for values in of_nodes.values())
    watcher.check()


def test_huge_and_odd_nodes_are_reported_and_hide_no_other(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher], tmp_path: Path
) -> None:
    put(client, "users/good", payload(producer_byte_rate="7"))
    put(client, "users/bom", b"\xef\xbb\xbf" + payload(producer_byte_rate="7"))
    put(client, "users/truncated", payload(producer_byte_rate="7")[:-4])
    put(client, "users/deep", b"[" * 100_000)
    put(client, "users/huge", payload(producer_byte_rate="7", note="x" * 900_000))
    put(client, "users/minus", payload(producer_byte_rate="-5", request_percentage="Infinity"))
    put(client, "users/most", payload(producer_byte_rate=str(2**63)))
    put(client, f"users/{'n' * 10_000}", payload(producer_byte_rate="7"))
    put(client, "users/nul%00", payload(producer_byte_rate="7"))
    put(client, "users/a/clients/b/clients/c", payload(producer_byte_rate="7"))
    # Notifications are for brokers; what stands in them is no quota.
    put(client, "changes/config_change_0000000001", b"garbage")
    put(client, "changes/config_change_0000000002", b'{"version":9,"entity_path":"users/evil"}')
    watch(settings)
    until_known(settings, now_ms())
    found = produce_rates(settings)
    # A byte order mark in front is fine with brokers, too.
    kept = [found[f"users/{name}"] for name in ("good", "huge", "bom", "minus", "n" * 10_000)]
    assert kept == [7.0, 7.0, 7.0, -5.0, 7.0]
    assert not {"users/truncated", "users/deep", "users/most"} & found.keys()
    assert {"users/truncated", "users/deep", "users/minus", "users/most"} <= set(problems(settings))
    assert "users/evil" not in str(changes(settings))
    # No file or folder is called after a node.
    names = [path.name for path in (tmp_path / "tables").rglob("*")]
    assert all(len(name) < 100 and "nul" not in name and "good" not in name for name in names)


def test_a_listing_beyond_the_buffer_of_a_java_client_is_read(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    # 4,000 names of 300 characters are 1.2 MB: more than jute.maxbuffer, which binds what servers are sent only.
    # With them 20,000 users that have short names.
    client.ensure_path("/config/users/alice/clients")
    data = payload(producer_byte_rate="7")
    names = [f"users/alice/clients/{number:06d}{'c' * 294}" for number in range(4_000)]
    names += [f"users/u{number}" for number in range(20_000)]
    sent = [client.create_async(f"/config/{name}", data) for name in names]
    for answer in sent:
        answer.get(timeout=WITHIN_S)
    # Each answer may take as long as the session: that of the other tests ends in a pause of the machine.
    watch(at(settings, settings.quotas.zookeeper_connect, session_timeout=Duration(60_000)))
    rates = produce_rates(settings)
    assert {rates.pop(name) for name in names} == {7.0}
    assert rates == {}
    # One commit of the edits, however many nodes there are; version 0 made the table.
    assert DeltaTable(f"{settings.tables}/quota_changes").version() == 1


def test_of_a_name_with_two_addresses_the_living_one_is_found(
    zookeeper: Cluster,
    client: KazooClient,
    settings: Settings,
    watch: Callable[[Settings], Watcher],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    real = socket.getaddrinfo
    # The server listens on 127.0.0.1 alone: nobody answers at the first address.
    addresses = {"two.example.com": ["127.0.0.2", "127.0.0.1"]}

    def resolve(host: str, *others: Any, **named: Any) -> list[Any]:
        return [found for each in addresses.get(host, [host]) for found in real(each, *others, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    port = zookeeper.zookeeper_connect.rpartition(":")[2]
    watch(at(settings, f"two.example.com:{port}{client.chroot}"))
    assert produce_rates(settings) == {"users/alice": 1.0}


@pytest.mark.parametrize("connect", ["127.0.0.1:1,localhost:{port},127.0.0.1:2", "[::1]:1,127.0.0.1:{port}"])
def test_one_live_server_among_dead_ones_is_found_and_the_chroot_kept(
    zookeeper: Cluster,
    client: KazooClient,
    settings: Settings,
    watch: Callable[[Settings], Watcher],
    connect: str,
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    port = zookeeper.zookeeper_connect.rpartition(":")[2]
    watch(at(settings, connect.format(port=port) + str(client.chroot)))
    assert produce_rates(settings) == {"users/alice": 1.0}
