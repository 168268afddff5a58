"""Clients that press on whatever happens: one that ends is started again, as an application is.

A broker that has just started says of a topic that it does not exist; librdkafka believes that for minutes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count

from confluent_kafka import KafkaException, Producer

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.demo.load import ClientPlan, run_load
from tests.support.logs.jmx_messages import telegraf

_LIFE_S = 10.0
"""Of one client; then it connects anew."""
_SAMPLED_EVERY_S, _FLUSHED_WITHIN_S = 2.0, 60.0
_OFFENDS_EVERY_S, _OFFENDING = 0.25, b"x" * 50_000


@contextmanager
def metered(cluster: Cluster, topic: str, broker_id: int, user: str) -> Iterator[None]:
    """Send a sample of one user's rate every two seconds until the block is left: 500, 1,000 and 1,500 in turn."""
    stop = threading.Event()

    def send() -> None:
        producer = Producer({**cluster.client_settings(), "client.id": "collector", "log_level": 0})
        for index in count():
            rate = {"byte-rate": 500.0 * (index % 3 + 1), "throttle-time": 0.0}
            sample = telegraf(
                "kafka_quota_produce", rate, time=int(time.time()), broker=str(broker_id), user=user
            )
            producer.produce(topic, sample)
            producer.poll(0)
            if stop.wait(_SAMPLED_EVERY_S):
                break
        assert producer.flush(_FLUSHED_WITHIN_S) == 0

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        try:
            yield
        finally:
            stop.set()
            sending.result()


@contextmanager
def pressing_on(cluster: Cluster, plans: Sequence[ClientPlan], offender: str) -> Iterator[None]:
    """Run clients until the block is left; the offender is one that waits out no throttle."""
    stop = threading.Event()

    def press(plan: ClientPlan) -> None:
        while not stop.is_set():
            with suppress(KafkaException):
                run_load(cluster, [replace(plan, stop_s=_LIFE_S)])

    def offend() -> None:
        # A broker mutes the connection that it throttles, and each record comes on a new one.
        while not stop.wait(_OFFENDS_EVERY_S):
            producer = Producer({**cluster.client_settings(), "client.id": offender, "log_level": 0})
            producer.produce(plans[0].topic, _OFFENDING)
            producer.flush(_LIFE_S)

    with ThreadPoolExecutor(len(plans) + 1) as pool:
        pressing = [*(pool.submit(press, plan) for plan in plans), pool.submit(offend)]
        try:
            yield
        finally:
            stop.set()
            for each in pressing:
                each.result()
