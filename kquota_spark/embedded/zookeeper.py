"""A short connection to the embedded ZooKeeper."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kquota_spark.config.settings import Duration, Quotas
from kquota_spark.errors import UserError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

# An attempt that a busy machine lets time out takes ten seconds: there is time for some.
_WITHIN_S = 60.0
_SESSION_TIMEOUT_MS = 10_000
_quiet = logging.getLogger(__name__)
_quiet.setLevel(logging.CRITICAL)


@contextmanager
def connected(zookeeper_connect: str) -> Iterator[KazooClient]:
    """A connected client for as long as the block runs.

    Raises:
        UserError: ZooKeeper does not answer.
    """
    from kazoo.handlers.threading import KazooTimeoutError

    from kquota_spark.zookeeper.client import zookeeper_client

    client = zookeeper_client(
        Quotas(zookeeper_connect=zookeeper_connect, session_timeout=Duration(_SESSION_TIMEOUT_MS)), _quiet
    )
    try:
        client.start(timeout=_WITHIN_S)
        yield client
    except KazooTimeoutError as error:
        msg = f"ZooKeeper at {zookeeper_connect} does not answer: start it first"
        raise UserError(msg) from error
    finally:
        client.stop()
        client.close()
