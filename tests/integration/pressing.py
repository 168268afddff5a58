"""Quotas in force, and a client that sends more than one of 10 kB/s lets through, until a broker tells it to wait."""

from __future__ import annotations

from typing import Any

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.processes import wait_for
from kquota_spark.embedded.quotas import remove_quota

_RECORD = b"x" * 5_000
_RECORDS = 60
"""300 kB as fast as they are taken: 110 kB are the most that eleven samples of a second let through at 10 kB/s."""


_MARK = "127.0.0.9"


def wait_until_in_force(cluster: Cluster) -> None:
    """Wait until all brokers of a cluster with ZooKeeper act on every quota that was set or removed before.

    They say which one they come to, not that they are done with it; but they take one after the other.
    """
    told = [(server.log, server.log.stat().st_size) for server in cluster.servers[1:]]
    remove_quota(cluster.zookeeper_connect, ip=_MARK)
    mark = f"Processing override for entityPath: ips/{_MARK}".encode()
    assert wait_for(lambda: all(mark in log.read_bytes()[size:] for log, size in told), within_s=60)


def throttle_ms(cluster: Cluster, client_id: str, *, user: str | None = None) -> float:
    """The first throttle that a broker tells a producer to `orders`; 0 if it took all that was sent without one."""
    from confluent_kafka import Producer

    told_ms: list[float] = []
    settings: dict[str, Any] = {
        **cluster.client_settings(user), "client.id": client_id, "linger.ms": 0, "log_level": 0,
        "throttle_cb": lambda event: told_ms.append(event.throttle_time * 1_000),
    }  # fmt: skip
    producer = Producer(settings)
    for _ in range(_RECORDS):
        producer.produce("orders", _RECORD, on_delivery=_taken)
        assert producer.flush(60) == 0
        if told_ms:
            return told_ms[0]
    return 0.0


def _taken(error: object, _: object) -> None:
    assert error is None, error
