"""The JMX collector: what it sends, and what it says when a broker, or Kafka, is away."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kquota_spark.cli.main import main as kquota
from kquota_spark.collect.agents import PATTERNS, AgentError, JolokiaAgent
from kquota_spark.collect.collector import Collector
from kquota_spark.formats.jmx.collectors import messages
from kquota_spark.formats.jmx.messages import read_jmx_message
from kquota_spark.formats.jmx.sample import Origin
from kquota_spark.ship.topic import DeliveryFailedError
from tests.support.quotas.fake_topic import FakeTopic, Steps

ANSWER: dict[str, Any] = {
    "request": {"mbean": "kafka.server:type=Produce,*", "type": "read"},
    "value": {"kafka.server:type=Produce,user=alice": {"byte-rate": 5.0, "throttle-time": None}},
    "status": 200,
    "timestamp": 1795242300,
}
NONE_YET = {"request": {"mbean": "kafka.server:type=Fetch,*", "type": "read"}, "status": 404, "error": "x"}


@dataclass
class FakeAgent:
    """Answers, or raises what stands in its place; stops the collector when it has nothing left."""

    broker_id: int
    says: list[list[dict[str, Any]] | str]
    stop: threading.Event
    url: str = "http://k:1/jolokia"

    def read(self, timeout_s: float) -> list[dict[str, Any]]:
        said = self.says.pop(0)
        if not self.says:
            self.stop.set()
        if isinstance(said, str):
            raise AgentError(said)
        return said


@dataclass
class Run:
    topic: FakeTopic = field(default_factory=FakeTopic)
    said: list[str] = field(default_factory=list)

    def of(
        self, *says: list[list[dict[str, Any]] | str], connect: Callable[[], FakeTopic] | None = None
    ) -> int:
        """Poll one agent for each list, one answer a round."""
        stop = threading.Event()
        agents = [FakeAgent(number, said, stop) for number, said in enumerate(says, start=1)]
        # The clock goes on by 100 ms with each look: asked at 0 and 100, answered at 100 and 200.
        return Collector(agents, connect or self.topic.connect, 1, self.said.append, Steps(0, 100)).run(stop)


def test_an_answer_is_sent_with_its_broker_and_the_time_halfway_through() -> None:
    run = Run()
    assert run.of([[ANSWER, NONE_YET]]) == 1
    (message,) = run.topic.log
    assert (message.key, message.headers) == (b"1", [("broker_id", b"1")])
    sent = json.loads(message.value)
    assert (sent["broker_id"], sent["time_ms"], sent["value"]) == (1, 50, ANSWER["value"])
    (sample,) = read_jmx_message(message.value, Origin()).samples
    assert (sample.broker_id, sample.sample_time_ms, sample.byte_rate) == (1, 50, 5.0)


def test_a_broker_that_is_away_is_said_once_and_again_when_it_is_back() -> None:
    run = Run()
    away = "connection refused"
    assert run.of([[ANSWER], away, away, [ANSWER]], [[ANSWER]] * 4) == 6
    assert run.said == [
        (
            "broker 1 at http://k:1/jolokia gives no metrics: connection refused; "
            "continues without it, reports when it is back"
        ),
        "broker 1 at http://k:1/jolokia is back",
    ]


def test_samples_for_which_there_is_no_room_are_lost_and_that_is_said_once() -> None:
    run = Run(FakeTopic(queue_limit=0))
    assert run.of([[ANSWER]] * 3) == 0
    assert run.said == [
        "Kafka takes no samples: its queue is full, samples are lost; continues without it, reports when it is back"
    ]


def test_a_failed_delivery_connects_anew() -> None:
    topics = [FakeTopic(), FakeTopic()]

    def fail() -> None:
        raise DeliveryFailedError("gone")

    topics[0].before_acknowledging = fail
    run = Run()
    connected = iter(topics)
    run.of([[ANSWER]] * 2, connect=lambda: next(connected))
    assert topics[0].is_closed
    assert len(topics[1].log) == 1
    assert [text.partition(":")[0] for text in run.said] == ["Kafka takes no samples", "Kafka is back"]


def test_many_mbeans_go_out_in_several_messages() -> None:
    values = {f"kafka.server:type=Produce,user=u{n}": {"byte-rate": n} for n in range(5)}
    made = list(messages([ANSWER | {"value": values}], 1, 7, of=2))
    assert [len(json.loads(message)["value"]) for message in made] == [2, 2, 1]
    read = [sample.bucket_user for message in made for sample in read_jmx_message(message, Origin()).samples]
    assert read == ["u0", "u1", "u2", "u3", "u4"]


class _Jolokia(BaseHTTPRequestHandler):
    """Answers as Jolokia does, under a few paths that do not."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert [request["mbean"] for request in asked] == list(PATTERNS)
        login = "Basic " + base64.b64encode(b"me:secret").decode()
        status = {"/nowhere/": 404}.get(self.path, 200 if self.headers["Authorization"] == login else 401)
        self.send_response(status)
        self.end_headers()
        others = {"/html/": b"<html>", "/deep/": b"[" + b'{"a":' * 100_000}
        self.wfile.write(others.get(self.path, json.dumps([ANSWER]).encode()))

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def jolokia() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Jolokia)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_agent_answers_to_its_login(jolokia: str) -> None:
    assert JolokiaAgent(1, f"{jolokia}/jolokia", "me", "secret").read(5.0) == [ANSWER]
    for agent, problem in (
        (
            JolokiaAgent(1, f"{jolokia}/jolokia", "me", "wrong"),
            "HTTP status 401, check collect.jmx.user and password",
        ),
        (
            JolokiaAgent(1, f"{jolokia}/nowhere", "me", "secret"),
            r"HTTP status 404, is the path right \(/jolokia\)\?",
        ),
        (JolokiaAgent(1, f"{jolokia}/html", "me", "secret"), "its answer is not Jolokia's"),
        (JolokiaAgent(1, f"{jolokia}/deep", "me", "secret"), "its answer is not Jolokia's"),
        (JolokiaAgent(1, "http://127.0.0.1:1/jolokia"), r"\[Errno 111\] Connection refused"),
    ):
        with pytest.raises(AgentError, match=problem):
            agent.read(5.0)
    assert "secret" not in repr(JolokiaAgent(1, jolokia, "me", "secret"))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("{}", "kafka.jmx_topic: empty, expected the topic that samples go to"),
        (
            "kafka: {jmx_topic: j}",
            "collect.jmx.brokers: empty, expected the address of each broker's agent",
        ),
        (
            "kafka: {jmx_topic: j}\ncollect: {jmx: {brokers: {one: http://k:1/jolokia}}}",
            "collect.jmx.brokers: 'one', expected the id of a broker, a number",
        ),
        (
            "kafka: {jmx_topic: j}\ncollect: {jmx: {brokers: {1: 'file:///etc/passwd'}}}",
            "collect.jmx.brokers.1: 'file:///etc/passwd', expected e.g. http://kafka1:8778/jolokia",
        ),
        (
            "kafka: {jmx_topic: j}\ncollect: {jmx: {brokers: {1: http://k:1/j}, options: {acks: '0'}}}",
            "collect.jmx.options.acks: '0' could lose lines, expected -1: remove it",
        ),
        (
            "kafka: {jmx_topic: j}\ncollect: {jmx: {brokers: {1: 'http://me:canary@k:1/jolokia'}}}",
            "collect.jmx.brokers.1: an address with a login, expected e.g. http://kafka1:8778/jolokia",
        ),
    ],
)
def test_a_wrong_setting_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str, problem: str
) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text(settings)
    assert kquota(["collect", "jmx", "--config", str(config)]) == 1
    told = capsys.readouterr()
    assert told.err.splitlines()[-1].startswith(f"kquota: {problem}")
    assert "canary" not in told.out + told.err


class _Elsewhere(BaseHTTPRequestHandler):
    """Where a redirect leads: notes every request with its headers."""

    seen: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization"))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name in http.server
        """Nothing to say."""


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_login_does_not_follow_a_redirect(status: int) -> None:
    with HTTPServer(("127.0.0.1", 0), _Elsewhere) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()

        class Redirecting(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.send_header("Location", f"http://127.0.0.1:{elsewhere.server_port}/")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as above
                """Nothing to say."""

        with HTTPServer(("127.0.0.1", 0), Redirecting) as agent:
            threading.Thread(target=agent.serve_forever, daemon=True).start()
            with pytest.raises(AgentError) as refused:
                JolokiaAgent(1, f"http://127.0.0.1:{agent.server_port}/jolokia", "kquota", "canary").read(20)
            agent.shutdown()
        elsewhere.shutdown()
    assert (
        str(refused.value)
        == f"HTTP status {status}, a redirect is not followed: give the agent's own address"
    )
    assert _Elsewhere.seen == []
