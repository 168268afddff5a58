"""kafka-python's client for questions, with one defect of its network layer mended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any


def kafka_admin(**options: Any) -> Any:
    """A `KafkaAdminClient`; its errors are kafka-python's own."""
    from kafka import KafkaAdminClient
    from kafka.net import transport

    for kind in (transport.KafkaTCPTransport, transport.KafkaSSLTransport):
        if not hasattr(kind._sock_recv, "is_mended"):
            kind._sock_recv = _mended(kind._sock_recv)
    log = logging.getLogger("kafka")
    if log.getEffectiveLevel() < logging.INFO:
        log.setLevel(logging.INFO)  # at DEBUG it shows all options, the password too
    return KafkaAdminClient(**options)


def _mended(receive: Callable[[Any], tuple[bytes, Exception | None]]) -> Callable[[Any], Any]:
    """kafka-python 3.0.12 throws away what came together with the end of a connection.

    A broker ends the connection right after it has refused a login. On a busy machine both are there at once, and the
    refusal looked like a broker that does not answer. What was received is given first; the next call finds the end.
    """

    def received(self: Any) -> tuple[bytes, Exception | None]:
        data, error = receive(self)
        return data, None if data else error

    received.is_mended = True  # type: ignore[attr-defined]
    return received
