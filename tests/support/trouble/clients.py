"""Clients that press on whatever happens: one that ends is started again, as an application is.

A broker that has just started says of a topic that it does not exist; librdkafka believes that for minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

from confluent_kafka import KafkaException

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.demo.load import ClientPlan, run_load

_LIFE_S = 10.0
"""Of one client; then it connects anew."""


@contextmanager
def pressing_on(cluster: Cluster, plans: Sequence[ClientPlan]) -> Iterator[None]:
    """Run clients until the block is left."""
    stop = threading.Event()

    def press(plan: ClientPlan) -> None:
        while not stop.is_set():
            with suppress(KafkaException):
                run_load(cluster, [replace(plan, stop_s=_LIFE_S)])

    with ThreadPoolExecutor(len(plans)) as pool:
        pressing = [pool.submit(press, plan) for plan in plans]
        try:
            yield
        finally:
            stop.set()
            for each in pressing:
                each.result()
