"""Whether a server answers; waiting for that is bounded, and a failure shows what the server said last."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.errors import UserError
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.process.processes import ProcessId, is_running, wait_for

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_LAST_LINES = 12
_PORT_TAKEN = "Address already in use"


class PortTakenError(UserError):
    """Another process took the port between our choice of it and the server's start."""


def wait_until_up(
    name: str, process: ProcessId, log: Path, answers: Callable[[], bool], *, within_s: float
) -> None:
    """Wait until a server answers.

    Raises:
        PortTakenError: its port was taken.
        UserError: it ended, or did not answer in time.
    """
    if wait_for(lambda: answers() or not is_running(process), within_s=within_s) and is_running(process):
        return
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
    what = f"did not answer within {within_s:.0f} s" if is_running(process) else "ended while it started"
    msg = "\n".join([f"{name} {what}: see {log}, which ends with", *(f"  {line}" for line in lines)])
    raise PortTakenError(msg) if any(_PORT_TAKEN in line for line in lines) else UserError(msg)


def zookeeper_answers(port: int) -> bool:
    """Whether ZooKeeper says that it is all right."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"
    except OSError:
        return False


def broker_knows(
    port: int, client_settings: Mapping[str, str], broker_ids: set[int], topics: set[str]
) -> bool:
    """Whether the broker on this port answers a metadata request and knows these brokers and topics.

    A broker that comes back answers some time before the controller has told it of its topics.
    """
    # An open port first: librdkafka would keep a thread busy with one that is closed.
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
        brokers, known = _metadata(f"127.0.0.1:{port}", client_settings)
        return broker_ids <= brokers and topics <= known
    return False


def _metadata(address: str, client_settings: Mapping[str, str]) -> tuple[set[int], set[str]]:
    from confluent_kafka import KafkaException

    config = {**client_settings, "bootstrap.servers": address, "client.id": "kquota-readiness"}
    try:
        answer = kafka_clients.admin(config).list_topics(timeout=5)
    except KafkaException:
        return set(), set()
    return set(answer.brokers), set(answer.topics)


def wait_until_forgotten(client: KazooClient, broker_id: int, *, within_s: float) -> None:
    """Wait until ZooKeeper has forgotten a killed broker: Kafka does not start while it is registered."""
    if not wait_for(lambda: client.exists(f"/brokers/ids/{broker_id}") is None, within_s=within_s):
        msg = f"broker {broker_id} is still registered in ZooKeeper: another process runs it, stop that first"
        raise UserError(msg)


def existing_topics(client: KazooClient) -> set[str]:
    """The topics that every broker will know, so not those that are about to be deleted."""
    topics, deleted = (
        set(client.get_children(path)) if client.exists(path) else set()
        for path in ("/brokers/topics", "/admin/delete_topics")
    )
    return topics - deleted
