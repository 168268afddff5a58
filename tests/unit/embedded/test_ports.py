"""Ports that are chosen now and bound later."""

from __future__ import annotations

import socket

import pytest

from kquota_spark.embedded.servers import free_ports


def test_ports_are_different_and_below_those_of_connections_that_go_out() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    assert all(10_000 <= port < 32_768 for port in found)


def test_a_port_that_is_taken_or_drawn_twice_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = free_ports(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        drawn = iter([taken.getsockname()[1], first, first, second])
        monkeypatch.setattr("kquota_spark.embedded.servers.random.randrange", lambda *_: next(drawn))
        assert free_ports(2) == [first, second]
