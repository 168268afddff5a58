"""Real traffic: producers and consumers of confluent-kafka, each in a thread, at a steady rate.

A throttled producer behaves like a real application: its bounded queue fills up, and it waits. It does not catch up on
what it could not send. So it presses on its quota for exactly the time of its plan. Records are random bytes, which
cannot be compressed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.kafka import clients as kafka_clients

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_IDLE_S = 0.05
# Gives consecutive records different contents, without new random bytes for each.
_POOL_BYTES = 1 << 20
# A client that fell behind catches up on at most this many seconds of its rate.
_CATCH_UP_S = 1.0


@dataclass(frozen=True, slots=True)
class Burst:
    """A repeated cycle of silence and sending; the plan's rate applies while the client sends."""

    idle_s: float
    send_s: float


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """The behaviour of one client.

    Attributes:
        client_id: not empty, because librdkafka would send `rdkafka` instead.
        topic: an existing topic.
        bytes_per_s: record bytes per second that it tries to reach.
        user: user to log in as; None is ANONYMOUS, or the brokers' own user if there are users.
        partitions: partitions that it uses; a producer fills a batch of each in turn, like the Java client.
        start_s: seconds after the start of the load.
        batch_bytes: maximum bytes per partition in a produce or fetch request.
        burst: None for a steady rate.
        from_the_start: a consumer reads the whole topic, again and again; otherwise only new records.
            A share consumer (Kafka 4.2) always reads only new records.
    """

    role: Literal["produce", "consume", "share"]
    client_id: str
    topic: str
    bytes_per_s: float
    user: str | None = None
    partitions: tuple[int, ...] = (0,)
    record_bytes: int = 1000
    start_s: float = 0.0
    stop_s: float = 10.0
    acks: int = -1
    batch_bytes: int = 32_000
    linger_ms: int = 20
    burst: Burst | None = None
    from_the_start: bool = True


@dataclass(slots=True)
class ClientResult:
    """The results of one client, by its own count.

    Attributes:
        records: number of acknowledged or read records.
        errors: failed records and failed requests; records still queued at the end do not count.
        longest_throttle_ms: longest throttle time that a broker reported to it.
    """

    plan: ClientPlan
    records: int = 0
    bytes: int = 0
    errors: int = 0
    last_error: str | None = None
    longest_throttle_ms: float = 0.0


def run_load(
    cluster: Cluster, plans: Sequence[ClientPlan], stop_event: threading.Event | None = None
) -> list[ClientResult]:
    """Run all plans at the same time until the last one ends or the event is set.

    Returns:
        One result for each plan, in their order.
    """
    stop = stop_event or threading.Event()
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=max(1, len(plans)), thread_name_prefix="load") as pool:
        futures = [pool.submit(_Client(cluster, plan, started, stop).run) for plan in plans]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            raise


class _Client:
    """One running client, with its clock and its counts."""

    def __init__(self, cluster: Cluster, plan: ClientPlan, started: float, stop: threading.Event) -> None:
        self.plan = plan
        self.started = started
        self.stop = stop
        self.result = ClientResult(plan)
        self.settings: dict[str, Any] = {
            **cluster.client_settings(plan.user),
            "client.id": plan.client_id,
            "error_cb": self.on_error,
            "throttle_cb": self.on_throttle,
        }

    def run(self) -> ClientResult:
        if not self.stop.wait(max(0.0, self.started + self.plan.start_s - time.monotonic())):
            {"produce": self.produce, "consume": self.consume, "share": self.share}[self.plan.role]()
        return self.result

    def produce(self) -> None:
        plan, pool = self.plan, os.urandom(_POOL_BYTES + self.plan.record_bytes)
        producer = kafka_clients.producer(self.settings | _producer_settings(plan))
        pace, sent = _Pace(plan, self.started), 0
        while not self.over():
            if not pace.may_go(plan.record_bytes):
                producer.poll(min(_IDLE_S, pace.wait_s(plan.record_bytes)))
                continue
            offset = sent * 4099 % _POOL_BYTES
            batch = sent * plan.record_bytes // plan.batch_bytes
            partition = plan.partitions[batch % len(plan.partitions)]
            try:
                record = pool[offset : offset + plan.record_bytes]
                producer.produce(plan.topic, record, partition=partition, on_delivery=self.on_delivery)
            except BufferError:
                producer.poll(_IDLE_S)
            else:
                pace.went(plan.record_bytes)
                sent += 1
                if sent % 64 == 0:
                    producer.poll(0)
        # Records queued behind a throttle would be sent long after the plan's end.
        producer.purge(in_queue=True, in_flight=False)
        producer.flush(2)
        producer.purge()
        producer.flush(1)

    def consume(self) -> None:
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, TopicPartition

        plan, pace = self.plan, _Pace(self.plan, self.started)
        start = OFFSET_BEGINNING if plan.from_the_start else OFFSET_END
        consumer = kafka_clients.consumer(self.settings | _consumer_settings(plan))
        try:
            consumer.assign([TopicPartition(plan.topic, partition, start) for partition in plan.partitions])
            while not self.over():
                if self.waits(pace):
                    continue
                message = consumer.poll(_IDLE_S)
                error = message.error() if message is not None else None
                if message is None:
                    continue
                if error is None:
                    self.took(message)
                    pace.went(len(message.value() or b""))
                elif error.code() != KafkaError._PARTITION_EOF:
                    self.on_error(error)
                elif plan.from_the_start and (message.offset() or 0) > 0:
                    consumer.seek(TopicPartition(plan.topic, message.partition() or 0, OFFSET_BEGINNING))
        finally:
            consumer.close()

    def share(self) -> None:
        plan, pace = self.plan, _Pace(self.plan, self.started)
        group = {"group.id": f"kquota-share-{plan.client_id}"}
        with kafka_clients.share_consumer(self.settings | group) as consumer:
            consumer.subscribe([plan.topic])
            while not self.over():
                if self.waits(pace):
                    continue
                for message in consumer.poll(_IDLE_S):
                    error = message.error()
                    if error is not None:
                        self.on_error(error)
                        continue
                    self.took(message)
                    pace.went(len(message.value() or b""))

    def waits(self, pace: _Pace) -> bool:
        """Whether another record now would exceed the rate; if so, return only after a short wait."""
        if pace.may_go(self.plan.record_bytes):
            return False
        self.stop.wait(min(_IDLE_S, pace.wait_s(self.plan.record_bytes)))
        return True

    def over(self) -> bool:
        return self.stop.is_set() or time.monotonic() - self.started >= self.plan.stop_s

    def took(self, message: Message) -> None:
        self.result.records += 1
        self.result.bytes += len(message)

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        from confluent_kafka import KafkaError as Code

        if error is None:
            self.took(message)
        elif error.code() not in (Code._PURGE_QUEUE, Code._PURGE_INFLIGHT):
            self.on_error(error)

    def on_error(self, error: KafkaError) -> None:
        self.result.errors += 1
        self.result.last_error = error.str()

    def on_throttle(self, event: Any) -> None:
        throttle_ms = event.throttle_time * 1000
        self.result.longest_throttle_ms = max(self.result.longest_throttle_ms, throttle_ms)


class _Pace:
    """The bytes that a plan has sent so far; time in which nothing could be sent is not made up for."""

    def __init__(self, plan: ClientPlan, started: float) -> None:
        self.plan = plan
        self.origin = started + plan.start_s
        self.done = 0.0

    def may_go(self, size: int) -> bool:
        due = self.due()
        self.done = max(self.done, due - self.plan.bytes_per_s * _CATCH_UP_S)
        return self.done + size <= due

    def went(self, size: int) -> None:
        self.done += size

    def wait_s(self, size: int) -> float:
        return max(0.001, (self.done + size - self.due()) / self.plan.bytes_per_s)

    def due(self) -> float:
        return self.plan.bytes_per_s * sending_s(time.monotonic() - self.origin, self.plan.burst)


def sending_s(elapsed_s: float, burst: Burst | None) -> float:
    """Seconds in which a client has been sending, out of the seconds since its start."""
    if burst is None:
        return elapsed_s
    cycles, rest = divmod(elapsed_s, burst.idle_s + burst.send_s)
    return cycles * burst.send_s + max(0.0, rest - burst.idle_s)


def _producer_settings(plan: ClientPlan) -> dict[str, Any]:
    return {
        "acks": plan.acks,
        "linger.ms": plan.linger_ms,
        # The Java client's default; librdkafka's own is 1,000,000, all of them behind one throttle.
        "max.in.flight.requests.per.connection": 5,
        "batch.size": plan.batch_bytes,
        "compression.type": "none",
        # Space for some batches of each partition: enough to keep the pressure up, little to lose at the end.
        "queue.buffering.max.kbytes": max(256, 8 * len(plan.partitions) * plan.batch_bytes // 1024),
        "message.timeout.ms": 120_000,
    }


def _consumer_settings(plan: ClientPlan) -> dict[str, Any]:
    return {
        # Never joined, never committed: partitions are assigned by hand.
        "group.id": f"kquota-load-{plan.client_id}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.message.max.bytes": plan.batch_bytes,
        "fetch.wait.max.ms": 100,
        # Little is fetched ahead, so that fetches follow the pace of the reader.
        "queued.max.messages.kbytes": max(64, 4 * plan.batch_bytes // 1024),
        "queued.min.messages": max(1, 2 * plan.batch_bytes // plan.record_bytes),
        # Pause of the fetcher when its queue is full, ms; a second by default.
        "fetch.queue.backoff.ms": 10,
    }
