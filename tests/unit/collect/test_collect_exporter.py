"""Pages of jmx_exporter, served by HTTP, become the samples that Jolokia's answers would have become."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main as kquota
from kquota_spark.collect.agents import Agent, AgentError, ExporterAgent, JolokiaAgent
from kquota_spark.collect.collector import Collector
from kquota_spark.formats.jmx.messages import read_jmx_message
from kquota_spark.formats.jmx.sample import JmxSample, Origin
from tests.support.quotas.fake_topic import FakeTopic

MSK = r"""# HELP kafka_server_Produce_byte_rate Attribute exposed for management kafka.server:name=null,type=Produce
# TYPE kafka_server_Produce_byte_rate untyped
kafka_server_Produce_byte_rate{user="alice",client_id="etl",} 1523456.25
kafka_server_Produce_byte_rate{user="arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fapp",} 17.0
kafka_server_Produce_byte_rate{client_id="\"over;the \\\"limit\\\"\"",} 1.5E7
kafka_server_Produce_throttle_time{user="alice",client_id="etl",} 812.5
kafka_server_Produce_throttle_time{client_id="\"over;the \\\"limit\\\"\"",} NaN
kafka_server_Produce_queue_size 3.0
kafka_server_Fetch_byte_rate{client_id="etl",} 0.0
kafka_server_Request_request_time{user="alice",} 12.5
kafka_server_Request_exempt_request_time 0.25
kafka_server_ControllerMutation_tokens{user="alice",} -2.5
kafka_server_socket_server_metrics_connection_accept_rate{ip="10.0.0.7",} 4.0
kafka_server_socket_server_metrics_connection_accept_rate{listener="SASL_SSL",networkProcessor="0",} 9.0
kafka_server_BrokerTopicMetrics_Count{name="MessagesInPerSec",topic="x\"} 1",} 99.0
jvm_memory_bytes_used{area="heap",} 2.0E8
"""
"""As a broker of MSK Open Monitoring has it at port 11001; older exporters end labels with a comma."""


class _Exporter(BaseHTTPRequestHandler):
    """Serves a page to a login; other paths misbehave."""

    page = MSK

    def do_GET(self) -> None:
        login = "Basic " + base64.b64encode(b"me:secret").decode()
        status = 200 if self.path != "/private" or self.headers["Authorization"] == login else 401
        if self.path == "/away":
            status = 302
        self.send_response(404 if self.path == "/nowhere" else status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(b"<html>" if self.path == "/html" else self.page.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def exporter() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Exporter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def collected(*agents: Agent) -> tuple[list[JmxSample], list[str], list[str]]:
    """Samples, reasons and what the operator is told, of one poll that goes through the topic."""
    topic, stop, told = FakeTopic(), threading.Event(), list[str]()
    looks = count(0, 100)

    def clock_ms() -> int:
        now_ms = next(looks)
        if now_ms >= 100:
            stop.set()
        return now_ms

    Collector(agents, topic.connect, 5_000, told.append, clock_ms).run(stop)
    readings = [read_jmx_message(message.value, Origin()) for message in topic.log]
    samples = [sample for reading in readings for sample in reading.samples]
    return samples, [reason for reading in readings for reason in reading.reasons], told


def of(quota_type: str | None, user: str = "", client_id: str = "", **values: Any) -> JmxSample:
    mbean_types = {"produce": "Produce", "fetch": "Fetch", "request": "Request", None: "",
                   "controller_mutation": "ControllerMutation", "connection": "socket-server-metrics"}  # fmt: skip
    return JmxSample(2, 50, mbean_types[quota_type], quota_type, user, client_id, **values)


def test_a_page_of_msk_gives_the_rate_and_throttle_of_every_bucket(exporter: str) -> None:
    samples, reasons, told = collected(ExporterAgent(2, f"{exporter}/metrics"))
    assert (reasons, told) == ([], [])
    assert samples == [
        of("produce", "alice", "etl", byte_rate=1523456.25, throttle_time_ms=812.5),
        of("produce", "arn:aws:iam::1:role/app", byte_rate=17.0),
        of("produce", "", 'over;the "limit"', byte_rate=1.5e7),
        of("produce", queue_size=3),
        of("fetch", "", "etl", byte_rate=0.0),
        of("request", "alice", request_time_percent=12.5),
        of("request", exempt_request_time_percent=0.25),
        of("controller_mutation", "alice", tokens=-2.5),
        of("connection", connection_rate=4.0, ip="10.0.0.7"),
    ]


def test_an_address_without_a_path_means_metrics(exporter: str) -> None:
    assert len(ExporterAgent(2, exporter).read(5.0)[0]["value"]) == 10


def test_what_is_no_page_of_a_broker_is_said_in_one_line(exporter: str) -> None:
    assert ExporterAgent(2, f"{exporter}/private", "me", "secret").read(5.0)
    for path, problem in (
        ("/private", "HTTP status 401, check collect.jmx.user and password, and the agent's access policy"),
        ("/away", "HTTP status 302, a redirect is not followed: give the agent's own address"),
        ("/nowhere", "HTTP status 404, is the path right (/metrics)?"),
        (
            "/html",
            (
                "its page has no sensors of quotas such as kafka_server_Produce_byte_rate: see that the path is right "
                "(/metrics), and that the exporter's rules keep kafka.server:type=Produce,*"
            ),
        ),
    ):
        with pytest.raises(AgentError) as refused:
            ExporterAgent(2, exporter + path, "me", "wrong").read(5.0)
        assert str(refused.value) == problem
    assert "secret" not in repr(ExporterAgent(2, exporter, "me", "secret"))


def test_the_login_does_not_follow_a_redirect(exporter: str) -> None:
    _, _, told = collected(ExporterAgent(2, f"{exporter}/away", "me", "canary"))
    assert told == [
        (
            f"broker 2 at {exporter}/away gives no metrics: HTTP status 302, a redirect is not followed: give the "
            "agent's own address; continues without it, reports when it is back"
        )
    ]


@pytest.fixture
def port() -> Iterator[tuple[int, list[bytes]]]:
    """A port that answers any request with these bytes, the last one again and again."""
    says: list[bytes] = []
    stop = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not stop.is_set():
            connection, _ = listener.accept()
            with closing(connection):
                connection.recv(65_536)
                try:
                    connection.sendall(b"".join(says))
                    while says and says[-1] == b" " and not stop.wait(0.02):
                        connection.sendall(b" ")
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1], says
        stop.set()
        socket.create_connection(listener.getsockname()).close()
        thread.join(5)


@pytest.mark.parametrize("agent", [ExporterAgent, JolokiaAgent])
def test_an_answer_that_comes_by_drops_ends_with_the_time(
    port: tuple[int, list[bytes]], agent: type[ExporterAgent] | type[JolokiaAgent]
) -> None:
    number, says = port
    says += [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "]
    began_s = time.monotonic()
    with pytest.raises(AgentError, match=r"\Aits answer takes longer than 0\.2 s\Z"):
        agent(2, f"http://127.0.0.1:{number}/metrics").read(0.2)
    assert time.monotonic() - began_s < 5


@pytest.mark.parametrize("agent", [ExporterAgent, JolokiaAgent])
def test_a_port_that_speaks_no_http_is_no_crash(
    port: tuple[int, list[bytes]], agent: type[ExporterAgent] | type[JolokiaAgent]
) -> None:
    number, says = port
    says.append(b"\0\0\0\x0a kafka\r\n")
    _, _, told = collected(agent(2, f"http://127.0.0.1:{number}/metrics"))
    assert told == [
        (
            f"broker 2 at http://127.0.0.1:{number}/metrics gives no metrics: no answer of HTTP: BadStatusLine; "
            "continues without it, reports when it is back"
        )
    ]


@pytest.mark.parametrize(
    ("brokers", "problem"),
    [
        (
            "{}",
            (
                "collect.jmx.brokers: empty, expected the address of each broker's agent by its id, e.g. "
                "1: http://kafka1:11001/metrics"
            ),
        ),
        ("{1: 'http://me:canary@k:11001'}", "collect.jmx.brokers.1: an address with a login, expected e.g. "),
    ],
)
def test_a_wrong_setting_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], brokers: str, problem: str
) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text(
        f"kafka: {{jmx_topic: j}}\ncollect: {{jmx: {{source: prometheus, brokers: {brokers}}}}}"
    )
    assert kquota(["collect", "jmx", "--config", str(config)]) == 1
    told = capsys.readouterr()
    assert told.err.splitlines()[-1].startswith(f"kquota: {problem}")
    assert "canary" not in told.out + told.err
