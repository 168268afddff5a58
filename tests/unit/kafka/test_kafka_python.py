"""An answer that comes together with the end of its connection is an answer."""

from __future__ import annotations

import socket

import pytest
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.net.transport import KafkaTCPTransport

from kquota_spark.kafka.clients import python_admin


def test_what_came_with_the_end_of_the_connection_is_received_before_it() -> None:
    with pytest.raises(KafkaError):
        python_admin("127.0.0.1:1", {}, bootstrap_timeout_ms=1)
    ours, brokers = socket.socketpair()
    ours.setblocking(False)
    transport = KafkaTCPTransport(None, ours)
    brokers.sendall(b"the login is refused")
    brokers.close()
    assert transport._sock_recv() == (b"the login is refused", None)
    data, error = transport._sock_recv()
    assert data == b""
    assert isinstance(error, KafkaConnectionError)
    ours.close()
