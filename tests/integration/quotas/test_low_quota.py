"""Under a very low quota on a real broker, clients that obey are seen to obey, and are not accused."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.embedded.cluster import Cluster, logged_lines
from kquota_spark.findings.findings import Kind
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.reports.clients.findings import findings
from kquota_spark.store.reading import query
from tests.support.clusters.waiting import until, until_brokers_act
from tests.support.clusters.zookeeper_edits import set_quota
from tests.support.tables.capture_tables import write_requests
from tests.support.tables.table_rows import usage, write_table

pytestmark = pytest.mark.alone  # the times that a broker logs are judged

QUOTA = 20_000
RECORD = b"x" * 20_000
OBEYING = ("confluent", "confluent-pipelining", "kafka-python")
ENOUGH = {**dict.fromkeys(OBEYING, 6), "reconnecting": 12}
"""Long throttles; findings want 5, and of who does not obey 5 that it was quick to escape."""

_CLIENT = re.compile(rb'"clientId":"(%s)"' % b"|".join(map(str.encode, ENOUGH)))
_THROTTLE = re.compile(rb'"requestApiKey":0,.*"throttleTimeMs":(\d+)')


@pytest.fixture(scope="module")
def cluster(zookeeper_cluster: Cluster) -> Cluster:
    set_quota(zookeeper_cluster.zookeeper_connect, client_id=DEFAULT, producer_byte_rate=QUOTA)
    until_brokers_act(zookeeper_cluster)
    return zookeeper_cluster


def confluent(cluster: Cluster, client_id: str, in_flight: int, is_over: threading.Event) -> list[str]:
    """Sends as fast as it may; the errors that it met."""
    from confluent_kafka import KafkaError, Producer

    errors: list[str] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None and error.code() != KafkaError._PURGE_QUEUE:
            errors.append(error.str())

    settings: dict[str, Any] = {
        **cluster.client_settings(), "client.id": client_id, "linger.ms": 0, "batch.size": 20_000,
        "max.in.flight": in_flight, "error_cb": lambda error: errors.append(error.str()), "log_level": 0,
    }  # fmt: skip
    producer = Producer(settings)
    while not is_over.is_set():
        if len(producer) < in_flight:
            producer.produce("orders", RECORD, on_delivery=on_delivery)
        producer.poll(0.01)
    producer.purge(in_queue=True, in_flight=False)
    producer.flush(60)
    return errors


def kafka_python(cluster: Cluster, client_id: str, is_over: threading.Event) -> list[str]:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id=client_id, acks=1)
    try:
        while not is_over.is_set():
            producer.send("orders", RECORD).get(timeout=60)
    finally:
        producer.close()
    return []


def reconnecting(cluster: Cluster, client_id: str, is_over: threading.Event) -> list[str]:
    """Takes a new producer for each record: the control, which has to be found."""
    from confluent_kafka import Producer

    while not is_over.wait(0.5):
        producer = Producer({**cluster.client_settings(), "client.id": client_id, "log_level": 0})
        producer.produce("orders", RECORD)
        producer.flush(60)
    return []


def long_throttles_in(log: Path) -> dict[str, int]:
    """Throttles of 200 ms and more by client, in a broker's log so far."""
    found = dict.fromkeys(ENOUGH, 0)
    for line in logged_lines(log):
        client, throttle = (re.search(pattern, line) for pattern in (_CLIENT, _THROTTLE))
        if client and throttle and int(throttle[1]) >= 200:
            found[client[1].decode()] += 1
    return found


def test_obeying_clients_neither_time_out_nor_send_early_and_are_not_accused(
    cluster: Cluster, tmp_path: Path
) -> None:
    is_over = threading.Event()
    runs: list[Callable[[], list[str]]] = [
        lambda: confluent(cluster, "confluent", 1, is_over),
        lambda: confluent(cluster, "confluent-pipelining", 5, is_over),
        lambda: kafka_python(cluster, "kafka-python", is_over),
        lambda: reconnecting(cluster, "reconnecting", is_over),
    ]
    request_log = cluster.brokers[0].request_log
    before = len(logged_lines(request_log))
    with ThreadPoolExecutor(len(runs)) as pool:
        futures = [pool.submit(run) for run in runs]
        try:
            until(lambda: all(n >= ENOUGH[name] for name, n in long_throttles_in(request_log).items()))
        finally:
            is_over.set()
        errors = [error for future in futures for error in future.result()]
    assert errors == []  # nobody timed out
    write_requests(tmp_path, 1, logged_lines(request_log)[before:], 5)
    write_table(tmp_path, "usage", usage(0, cluster_id="test"))
    settings = Settings(cluster_id="test", tables=str(tmp_path))
    long_throttles, looked_into, early = muted(settings)
    # Each was throttled often enough to be accused, and none was served before its throttle was over.
    assert min(long_throttles[client_id] for client_id in OBEYING) >= 5, long_throttles
    assert min(looked_into[client_id] for client_id in OBEYING) >= 2, looked_into
    assert early == []
    found = findings(settings, since_ms=0)
    told = [(finding.kind, finding.subject.partition(" at ")[0]) for finding in found]
    assert told == [(Kind.IGNORES_THROTTLE, "user ANONYMOUS, client id reconnecting")]


def muted(settings: Settings) -> tuple[dict[str, int], dict[str, int], list[tuple[str, int]]]:
    """Throttles of 200 ms and more, those of a second and more, and requests read in the first half of one of these."""
    sql = (
        "select client_id, connection, record_time_ms, observed_throttle_ms from requests where api_key = 0 "
        "order by connection, record_time_ms, correlation_id"
    )
    throttles: dict[str, int] = defaultdict(int)
    looked_into: dict[str, int] = defaultdict(int)
    early: list[tuple[str, int]] = []
    before: dict[str, tuple[int, int]] = {}
    for client_id, connection, time_ms, throttle_ms in query(settings, ["requests"], sql).rows:
        began_ms, lasts_ms = before.get(connection, (0, 0))
        looked_into[client_id] += lasts_ms >= 1_000
        # Record times are estimates: where the broker paused they were seen to be off by up to 157 ms.
        if lasts_ms >= 1_000 and time_ms < began_ms + lasts_ms / 2:
            early.append((client_id, began_ms + lasts_ms - time_ms))
        before[connection] = (time_ms, throttle_ms)
        throttles[client_id] += throttle_ms >= 200
    return throttles, looked_into, early
