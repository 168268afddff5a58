"""The endpoint says what is right in Prometheus' format, and no client of it can hold the job up."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kquota_spark.embedded.servers import free_ports
from kquota_spark.errors import UserError
from kquota_spark.process.metrics import CONTENT_TYPE, Family, exposition, metrics_endpoint
from tests.support.programs.exposition_format import parsed_exposition


def _get(port: int, path: str = "/metrics") -> tuple[str, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_a_scrape_is_prometheus_text() -> None:
    families = [
        Family("kquota_rows_total", "counter", "Rows.", [({"query": "log"}, 12), ({"query": "jmx"}, 3)]),
        Family("kquota_age_seconds", "gauge", "Age.", [({}, 1.25)]),
        Family("kquota_nothing", "gauge", "A metric without a value is left out.", []),
    ]
    assert exposition(families) == (
        "# HELP kquota_rows_total Rows.\n"
        "# TYPE kquota_rows_total counter\n"
        'kquota_rows_total{query="log"} 12\n'
        'kquota_rows_total{query="jmx"} 3\n'
        "# HELP kquota_age_seconds Age.\n"
        "# TYPE kquota_age_seconds gauge\n"
        "kquota_age_seconds 1.25\n"
    )


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", 'x"} 1\nforged{y="', "\\n", "ü\u202e"])
def test_no_name_of_a_cluster_breaks_out_of_its_label(name: str) -> None:
    text = exposition([Family("kquota_up", "gauge", "Up.", [({"cluster_id": name}, 1)])])
    assert parsed_exposition(text) == {"kquota_up": {(("cluster_id", name),): 1.0}}


def test_large_counters_keep_every_digit() -> None:
    text = exposition([Family("kquota_rows_total", "counter", "Rows.", [({}, 9_007_199_254_740_991.0)])])
    assert text.splitlines()[-1] == "kquota_rows_total 9007199254740991"


def test_the_endpoint_answers_metrics_and_nothing_else() -> None:
    [port] = free_ports(1)
    with metrics_endpoint("127.0.0.1", port, lambda: "kquota_up 1\n") as answering:
        assert answering == port
        assert _get(port) == (CONTENT_TYPE, "kquota_up 1\n")
        assert _get(port, "/metrics?x=1")[1] == "kquota_up 1\n"
        with pytest.raises(urllib.error.HTTPError) as refused:
            _get(port, "/etc/passwd")
        assert refused.value.code == 404
    with pytest.raises(OSError, match="refused"):
        _get(port)


def test_a_used_port_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError) as raised, metrics_endpoint("127.0.0.1", port, str):
            pass
    assert str(raised.value) == (
        f"metrics.port: 127.0.0.1:{port} cannot be listened on (Address already in use): "
        "give metrics.port another port"
    )


def _silent_clients(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]


def test_200_scrapes_are_answered_beside_20_clients_that_say_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [port] = free_ports(1)
    text = "kquota_up 1\n" * 1_000
    with metrics_endpoint("127.0.0.1", port, lambda: text):
        silent = _silent_clients(port, 20)
        with ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(lambda _: _get(port)[1], range(200)))
        assert answers == [text] * 200
        monkeypatch.setattr("kquota_spark.process.metrics._Handler.timeout", 600.0)
        silent += _silent_clients(port, 40)
        closing_s = time.monotonic()
    # Clients that are still connected, and would be for ten minutes, do not hold up the end of the job.
    assert time.monotonic() - closing_s < 60
    for client in silent:
        client.close()


def _drip(client: socket.socket, until: threading.Event) -> None:
    """A header that goes on for ever, one byte per 0.1 s: no single wait of the server is long."""
    with contextlib.suppress(OSError):
        client.sendall(b"GET /metrics HTTP/1.0\r\nX: ")
        while not until.wait(0.1):
            client.sendall(b"x")


def test_16_clients_that_send_a_byte_at_a_time_do_not_keep_a_scrape_out() -> None:
    [port] = free_ports(1)
    until = threading.Event()
    with metrics_endpoint("127.0.0.1", port, lambda: "kquota_up 1\n"), ThreadPoolExecutor(16) as pool:
        slow = _silent_clients(port, 16)  # as many as are served at a time
        try:
            for client in slow:
                pool.submit(_drip, client, until)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                assert answer.read() == b"kquota_up 1\n"
        finally:
            until.set()
    for client in slow:
        client.close()


def test_40_clients_that_say_nothing_hold_at_most_16_descriptors_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kquota_spark.process.metrics._Handler.timeout", 0.5)
    [port] = free_ports(1)
    with metrics_endpoint("127.0.0.1", port, lambda: "kquota_up 1\n"):
        before = _descriptors()
        silent = _silent_clients(port, 40)
        # Connections are taken in their order: all 40 were before this one.
        assert _get(port)[1] == "kquota_up 1\n"
        assert _descriptors() - before - len(silent) <= 16
    for client in silent:
        client.close()


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
