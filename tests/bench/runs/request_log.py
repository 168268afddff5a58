"""`python -m tests.bench.runs.request_log`: the broker's price of its request log. 4 minutes.

One broker gets the same load with its request logger at WARN and at DEBUG, in turns: the level is changed while it
runs. Producers send one small message per request. Consumers fetch them one by one. PRICE_REQUESTS_PER_S sets
the produce requests per second, and about as many fetches follow. PRICE_ROUND_S sets the length of a round.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, Message, Producer, TopicPartition

from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Broker, Cluster
from kquota_spark.kafka.clients import python_admin
from tests.bench.job import bench_place
from tests.bench.processes import process_cpu_s
from tests.bench.report import Cell, Report, percentile, say, spread

PRODUCED_PER_S = int(os.environ.get("PRICE_REQUESTS_PER_S", "2000"))
ROUND_S = float(os.environ.get("PRICE_ROUND_S", "20"))
WARM_UP_S = float(os.environ.get("PRICE_WARM_UP_S", "30"))
_SETTLE_S = 2
_ROUNDS = 3
_TOPIC = "bench.load"
_PARTITIONS = 8
"""One consumer each, so that every message is a fetch of its own."""
_VALUE = b"x" * 200
_TICK_S = 0.002
_DRAIN_S = 0.1
_STATISTICS_MS = 200
_COLUMNS = {
    "logger": "`kafka.request.logger`",
    "requests_per_s": "requests per second",
    "cores": "broker, cores (range)",
    "cpu_us_per_request": "CPU per request, us (range)",
    "ack_p50_ms": "ack p50, ms (range)",
    "ack_p99_ms": "ack p99, ms (range)",
    "log_kb_per_s": "request log, kB/s",
}
_PRICE = ("cores", "cpu_us_per_request", "ack_p50_ms", "ack_p99_ms")
_OFF_ON = ("WARN", "DEBUG")


class Requests:
    """Requests that librdkafka has sent so far, from the statistics of each client."""

    def __init__(self) -> None:
        self._by_client = defaultdict[str, int](int)

    def take(self, statistics: str) -> None:
        """Remember the newest statistics of a client."""
        found = json.loads(statistics)
        self._by_client[found["name"]] = sum(
            broker["req"].get(kind, 0)
            for broker in found["brokers"].values()
            for kind in ("Produce", "Fetch")
        )

    @property
    def total(self) -> int:
        """Produce and fetch requests of all clients."""
        return sum(self._by_client.values())


class Traffic:
    """Producers and consumers at a fixed rate for as long as the block runs.

    Args:
        cluster: whose broker.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.requests = Requests()
        self.acks_ms: list[float] = []
        """Time from `produce` to its acknowledgement, of all messages so far."""
        counted = {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": self.requests.take}
        common: dict[str, Any] = {**cluster.client_settings(), **counted}
        self._producer = Producer({**common, "linger.ms": 0, "batch.num.messages": 1, "acks": "all"})
        self._consumers = [_consumer(common, partition) for partition in range(_PARTITIONS)]
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        began_s, sent = time.monotonic(), 0
        while not self._is_over.is_set():
            for number in range(sent, int((time.monotonic() - began_s) * PRODUCED_PER_S)):
                partition = number % _PARTITIONS
                self._producer.produce(_TOPIC, _VALUE, partition=partition, on_delivery=self._acknowledged)
                sent += 1
            self._producer.poll(_TICK_S)
        self._producer.close()

    def _acknowledged(self, error: object, message: Message) -> None:
        latency_s = message.latency()
        if error is None and latency_s is not None:
            self.acks_ms.append(latency_s * 1_000)

    def _consume(self) -> None:
        while not self._is_over.wait(_DRAIN_S):
            for consumer in self._consumers:
                consumer.consume(10_000, 0)
        for consumer in self._consumers:
            consumer.close()


class Round(NamedTuple):
    """The broker during one round."""

    requests_per_s: float
    cores: float
    cpu_us_per_request: float
    ack_p50_ms: float
    ack_p99_ms: float
    log_kb_per_s: float


def main() -> int:
    """Print the figures."""
    rounds = defaultdict[str, list[Round]](list)
    with Report("request_log", _COLUMNS) as report, bench_place() as place:
        create_topics(place.cluster, {_TOPIC: _PARTITIONS})
        with Traffic(place.cluster) as traffic:
            say(f"warming up for {WARM_UP_S:.0f} s")
            time.sleep(WARM_UP_S)
            for number in range(_ROUNDS):
                # The order changes from round to round, so that a slow drift hits both levels alike.
                for level in _OFF_ON[:: -1 if number % 2 else 1]:
                    _set_logger(place.cluster, level)
                    rounds[level].append(_round(traffic, place.cluster.brokers[0]))
                    say(f"round {number + 1} of {_ROUNDS}, {level}: {rounds[level][-1].cores:.2f} cores")
        for level in _OFF_ON:
            report.add({"logger": level, **_spreads(rounds[level], Round._fields)})
        price = [
            Round(*(on - off for on, off in zip(*pair, strict=True)))
            for pair in zip(rounds["DEBUG"], rounds["WARN"], strict=True)
        ]
        report.add({"logger": "difference, round by round", **_spreads(price, _PRICE)})
    return 0


def _spreads(rounds: Sequence[Round], names: Iterable[str]) -> Mapping[str, Cell]:
    return {name: spread([getattr(each, name) for each in rounds]) for name in names}


def _round(traffic: Traffic, broker: Broker) -> Round:
    def now() -> tuple[float, float, int, int]:
        log_bytes = broker.request_log.stat().st_size
        return time.monotonic(), process_cpu_s(broker.pid), traffic.requests.total, log_bytes

    time.sleep(_SETTLE_S)
    before, acks = now(), len(traffic.acks_ms)
    time.sleep(ROUND_S)
    elapsed_s, cpu_s, requests, log_bytes = (new - old for new, old in zip(now(), before, strict=True))
    acks_ms = traffic.acks_ms[acks:]
    if not requests or not acks_ms:
        raise SystemExit("the broker has answered no request")
    return Round(
        requests_per_s=requests / elapsed_s,
        cores=cpu_s / elapsed_s,
        cpu_us_per_request=cpu_s / requests * 1e6,
        ack_p50_ms=percentile(acks_ms, 50),
        ack_p99_ms=percentile(acks_ms, 99),
        log_kb_per_s=log_bytes / elapsed_s / 1_000,
    )


def _set_logger(cluster: Cluster, level: str) -> None:
    from kafka.admin import ConfigResource

    admin = python_admin(cluster.bootstrap_servers, {})
    try:
        broker = str(cluster.brokers[0].id)
        admin.alter_configs([ConfigResource("BROKER_LOGGER", broker, {"kafka.request.logger": level})])
    finally:
        admin.close()


def _consumer(common: Mapping[str, Any], partition: int) -> Consumer:
    own = {
        "group.id": "bench",
        "client.id": f"bench-{partition}",
        "enable.auto.commit": False,
        "fetch.min.bytes": 1,
    }
    consumer = Consumer({**common, **own})
    consumer.assign([TopicPartition(_TOPIC, partition, OFFSET_END)])
    return consumer


if __name__ == "__main__":
    sys.exit(main())
