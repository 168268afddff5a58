"""Checks that servers answer, and reads ZooKeeper's state; waits are bounded, and a failure shows the last output."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Quotas
from kquota_spark.errors import UserError
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.process.processes import ProcessId, is_running, wait_for

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_LAST_LINES = 12
_PORT_TAKEN = "Address already in use"
# An attempt that times out on a busy machine takes ten seconds: this leaves time for several.
_CONNECTED_WITHIN_S = 60.0
_SESSION_TIMEOUT_MS = 10_000
_quiet = logging.getLogger(__name__)
_quiet.setLevel(logging.CRITICAL)


class PortTakenError(UserError):
    """Another process took the port after it was chosen and before the server started."""


def wait_until_up(
    name: str, process: ProcessId, log: Path, answers: Callable[[], bool], *, within_s: float
) -> None:
    """Wait until a server answers.

    Args:
        name: name of the server, for errors.
        process: the server's process; the wait stops if it ends.
        log: file with its output; an error shows the last lines.
        answers: returns whether the server answers now.
        within_s: maximum wait, seconds.

    Raises:
        PortTakenError: another process has its port.
        UserError: it ended, or did not answer in time.
    """
    if wait_for(lambda: answers() or not is_running(process), within_s=within_s) and is_running(process):
        return
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
    what = f"did not answer within {within_s:.0f} s" if is_running(process) else "ended while it started"
    msg = "\n".join([f"{name} {what}: see {log}, which ends with", *(f"  {line}" for line in lines)])
    raise PortTakenError(msg) if any(_PORT_TAKEN in line for line in lines) else UserError(msg)


def zookeeper_answers(port: int) -> bool:
    """Whether ZooKeeper on this port of 127.0.0.1 answers `ruok` with `imok`."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"
    except OSError:
        return False


def broker_knows(
    port: int, client_settings: Mapping[str, str], broker_ids: set[int], topics: set[str]
) -> bool:
    """Whether the broker on this port answers a metadata request with all these brokers and topics.

    A restarted broker answers some time before the controller has sent it its topics.

    Args:
        port: port of its client listener on 127.0.0.1.
        client_settings: properties of a client, with the login.
        broker_ids: ids that the answer has to contain.
        topics: topics that the answer has to contain.
    """
    from confluent_kafka import KafkaException

    address = f"127.0.0.1:{port}"
    config = {**client_settings, "bootstrap.servers": address, "client.id": "kquota-readiness"}
    try:
        # Check for an open port first: librdkafka would keep a thread busy with a closed one.
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            answer = kafka_clients.admin(config).list_topics(timeout=5)
    except (OSError, KafkaException):
        return False
    return broker_ids <= set(answer.brokers) and topics <= set(answer.topics)


@contextlib.contextmanager
def connected(zookeeper_connect: str) -> Iterator[KazooClient]:
    """A client that is connected to the embedded ZooKeeper while the block runs.

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
    """Wait until a killed broker is no longer registered in ZooKeeper: Kafka does not start before that."""
    if not wait_for(lambda: client.exists(f"/brokers/ids/{broker_id}") is None, within_s=within_s):
        raise UserError(
            f"broker {broker_id} is still registered in ZooKeeper: another process runs it, stop that first"
        )


def existing_topics(client: KazooClient) -> set[str]:
    """The topics that every broker will list; those with a pending deletion are left out."""
    topics, deleted = (
        set(client.get_children(path)) if client.exists(path) else set()
        for path in ("/brokers/topics", "/admin/delete_topics")
    )
    return topics - deleted
