"""Clients that send more than a quota lets through: one until a broker throttles it, many for as long as a block."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.demo.load import ClientPlan, ClientResult, run_load

_RECORD = b"x" * 5_000
_RECORDS = 60
"""300 kB as fast as they are taken: 110 kB are the most that eleven samples of a second let through at 10 kB/s."""


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


@contextmanager
def sending(cluster: Cluster, plans: Sequence[ClientPlan]) -> Iterator[Future[list[ClientResult]]]:
    """Run clients until the block is left; their results are known then."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        results = pool.submit(run_load, cluster, plans, stop)
        try:
            yield results
        finally:
            stop.set()
