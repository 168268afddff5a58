"""Quotas of ips in ZooKeeper: watched like those of users, and out of the way of the resolution."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.sources import from_tables
from kquota_spark.quotas.watch import Watcher
from tests.support.clusters.quota_nodes import changes, payload, problems, put, rows, until_known
from tests.support.clusters.waiting import until


def ip_limits(settings: Settings) -> dict[str, float | None]:
    last = [row for row in rows(settings, "quota_rules") if row["valid_to"] is None and row["level"] is None]
    return {row["entity"]: row["connection_creation_rate"] for row in last}


@pytest.mark.usefixtures("only_events")
def test_ip_nodes_are_watched_from_the_moment_that_their_root_is_there(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher]
) -> None:
    # Brokers before 2.8 make no /config/ips: nothing is missing then, and known_through goes on.
    put(client, "users/alice", payload(producer_byte_rate="1"))
    watch(settings)
    until_known(settings, now_ms())
    stat = put(client, "ips/10.0.0.1", payload(connection_creation_rate="5"))
    until(lambda: ip_limits(settings) == {"ips/10.0.0.1": 5.0})
    put(client, "ips/<default>", payload(connection_creation_rate="2"))
    # A fraction is none of 32 bits: brokers keep what they had. The name of a user's key is nothing here.
    put(client, "ips/10.0.0.1", payload(connection_creation_rate="7.5"))
    put(client, "ips/10.0.0.2", payload(producer_byte_rate="7"))
    until(lambda: ip_limits(settings) == {"ips/10.0.0.1": 5.0, "ips/<default>": 2.0})
    until(lambda: "ips/10.0.0.1" in problems(settings))
    client.delete("/config/ips/<default>")
    until(lambda: ip_limits(settings) == {"ips/10.0.0.1": 5.0, "ips/<default>": None})
    assert ("ips/10.0.0.1", "connection_creation_rate", 5.0, None, stat.mtime, stat.mzxid) in changes(
        settings
    )
    # What resolves users and client ids never sees them.
    assert [str(entity) for entity in from_tables(settings).book] == ["users/alice"]


def test_a_quota_file_has_quotas_of_ips_too(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(
        '- {ip: "::ffff:10.0.0.1", type: connection_creation_rate, value: 5, from_ms: 1000, to_ms: 2000}\n'
        "- {ip: 10.0.0.1, type: connection_creation_rate, value: 6, from_ms: 2000}\n"
        "- {user: alice, type: producer_byte_rate, value: 7}\n",
        "utf-8",
    )
    of_file = dataclasses.replace(settings, quotas=Quotas(source="file", file=str(path)))
    Watcher(of_file).start()
    periods = [
        (row["entity"], row["valid_from"], row["valid_to"], row["connection_creation_rate"])
        for row in rows(of_file, "quota_rules")
        if row["level"] is None
    ]
    assert sorted(periods) == [
        ("ips/10.0.0.1", 0, 1_000, None),
        ("ips/10.0.0.1", 1_000, 2_000, 5.0),
        ("ips/10.0.0.1", 2_000, None, 6.0),
    ]
