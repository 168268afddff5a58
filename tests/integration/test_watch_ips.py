"""Quotas of ips in ZooKeeper: watched like those of users, and out of the way of the resolution."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

from kquota_spark.config.settings import Settings
from kquota_spark.io.quota_sources import from_tables
from kquota_spark.io.watch import Watcher, now_ms
from tests.integration.quota_nodes import changes, payload, problems, put, rows, until, until_known

pytestmark = pytest.mark.integration


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
