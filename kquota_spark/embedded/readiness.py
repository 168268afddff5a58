"""Whether a server answers, and what ZooKeeper knows; waiting is bounded, and a failure shows what was said last."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.config.settings import Duration, Quotas
from kquota_spark.errors import UserError
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.process.processes import ProcessId, is_running, wait_for

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_LAST_LINES = 12
_PORT_TAKEN = "Address already in use"
# An attempt that a busy machine lets time out takes ten seconds: there is time for some.
_CONNECTED_WITHIN_S = 60.0
_SESSION_TIMEOUT_MS = 10_000
_quiet = logging.getLogger(__name__)
_quiet.setLevel(logging.CRITICAL)


class PortTakenError(UserError):
    """Another process took the port between our choice of it and the server's start."""


def wait_until_up(
    name: str, process: ProcessId, log: Path, answers: Callable[[], bool], *, within_s: float
) -> None:
    """Wait until a server answers.

    Args:
        name: of the server, for errors.
        process: it; nobody waits for a process that has ended.
        log: its output, of which an error shows the last lines.
        answers: whether the server answers now.
        within_s: longest wait, s.

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

    Args:
        port: of its client listener on 127.0.0.1.
        client_settings: properties of a client, with the login.
        broker_ids: all of the cluster.
        topics: that the broker has to know.
    """
    from confluent_kafka import KafkaException

    address = f"127.0.0.1:{port}"
    config = {**client_settings, "bootstrap.servers": address, "client.id": "kquota-readiness"}
    try:
        # An open port first: librdkafka would keep a thread busy with one that is closed.
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            answer = kafka_clients.admin(config).list_topics(timeout=5)
    except (OSError, KafkaException):
        return False
    return broker_ids <= set(answer.brokers) and topics <= set(answer.topics)


@contextlib.contextmanager
def connected(zookeeper_connect: str) -> Iterator[KazooClient]:
    """A client connected to the embedded ZooKeeper for as long as the block runs.

    Raises:
        UserError: ZooKeeper does not answer.
    """
    from kazoo.handlers.threading import KazooTimeoutError

    from kquota_spark.zookeeper.client import zookeeper_client

    client = zookeeper_client(
        Quotas(zookeeper_connect=zookeeper_connect, session_timeout=Duration(_SESSION_TIMEOUT_MS)), _quiet
    )
    try:
        client.start(timeout=_CONNECTED_WITHIN_S)
        yield client
    except KazooTimeoutError as error:
        raise UserError(f"ZooKeeper at {zookeeper_connect} does not answer: start it first") from error
    finally:
        client.stop()
        client.close()


def wait_until_forgotten(client: KazooClient, broker_id: int, *, within_s: float) -> None:
    """Wait until ZooKeeper has forgotten a killed broker: Kafka does not start while it is registered."""
    if not wait_for(lambda: client.exists(f"/brokers/ids/{broker_id}") is None, within_s=within_s):
        raise UserError(
            f"broker {broker_id} is still registered in ZooKeeper: another process runs it, stop that first"
        )


def existing_topics(client: KazooClient) -> set[str]:
    """The topics that every broker will know, so not those that are about to be deleted."""
    topics, deleted = (
        set(client.get_children(path)) if client.exists(path) else set()
        for path in ("/brokers/topics", "/admin/delete_topics")
    )
    return topics - deleted
