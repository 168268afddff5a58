"""`kquota collect jmx`: polls the Jolokia agents of the brokers and sends what they say to a topic.

What a sensor said at a moment cannot be asked for later: unlike a line of the log, a sample that could not be read
or sent is gone. Everything that is missing is said once, and said again when it is back.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from kquota_spark.errors import UserError
from kquota_spark.formats.jmx.collectors import messages
from kquota_spark.model.quotas.mbean_names import DOMAIN
from kquota_spark.process.no_redirects import OPENER
from kquota_spark.ship.topic import DeliveryFailedError, KafkaUnreachableError, Topic

PATTERNS = (
    f"{DOMAIN}:type=Produce,*",
    f"{DOMAIN}:type=Fetch,*",
    f"{DOMAIN}:type=Request,*",
    f"{DOMAIN}:type=ControllerMutation,*",
    f"{DOMAIN}:type=socket-server-metrics",
    f"{DOMAIN}:type=socket-server-metrics,listener=*",
    f"{DOMAIN}:type=socket-server-metrics,ip=*",
)
"""What is read. `type=Produce,*` gives the MBean without tags as well."""
_REQUESTS = json.dumps([{"type": "read", "mbean": pattern} for pattern in PATTERNS]).encode()
_LIMIT_BYTES = 256 << 20
_MOST_AT_ONCE = 16
_LONGEST_READ_S = 10.0
_LAST_WORDS_S = 5.0


class JolokiaError(Exception):
    """An agent did not give what was asked for; the text is for the operator."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent of one broker, e.g. at `http://kafka1:8778/jolokia`; an empty user stands for no login."""

    broker_id: int
    url: str
    user: str = ""
    password: str = field(default="", repr=False)

    def read(self, timeout_s: float) -> list[dict[str, Any]]:
        """All quota MBeans, one answer a pattern.

        Raises:
            JolokiaError: no answer in time, a refusal, or no answer of Jolokia.
        """
        headers = {"Content-Type": "application/json"}
        if self.user:
            login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        request = urllib.request.Request(f"{self.url.rstrip('/')}/", _REQUESTS, headers)  # noqa: S310 - see agents_of
        try:
            with OPENER.open(request, timeout=timeout_s) as response:
                text = response.read(_LIMIT_BYTES)
        except urllib.error.HTTPError as error:
            raise JolokiaError(f"HTTP status {error.code}{_advice(error.code)}") from error
        except OSError as error:
            reason = getattr(error, "reason", None) or error
            raise JolokiaError(str(reason)) from error
        try:
            return msgspec.json.decode(text, type=list[dict[str, Any]])
        except msgspec.DecodeError as error:
            raise JolokiaError("its answer is not Jolokia's, is the path right (/jolokia)?") from error


def _advice(status: int) -> str:
    if 300 <= status < 400:
        return ", a redirect is not followed: give the agent's own address"
    if status in (401, 403):
        return ", check collect.jmx.user and password, and the agent's access policy"
    return ", is the path right (/jolokia)?" if status == 404 else ""


def agents_of(brokers: dict[str, str], user: str, password: str) -> list[Agent]:
    """The agents that the settings name.

    Raises:
        UserError: there is none, an id is no number, or an address is none of HTTP, or holds a login.
    """
    if not brokers:
        raise UserError(
            "collect.jmx.brokers: empty, expected the address of each broker's Jolokia agent by its id, e.g. "
            "1: http://kafka1:8778/jolokia"
        )
    for broker, url in brokers.items():
        if not (broker.isascii() and broker.isdigit()):
            raise UserError(f"collect.jmx.brokers: {broker!r}, expected the id of a broker, a number")
        if "@" in url:  # every message about the agent shows its address
            raise UserError(
                f"collect.jmx.brokers.{broker}: an address with a login, expected e.g. "
                "http://kafka1:8778/jolokia; the login goes into collect.jmx.user and password"
            )
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise UserError(
                f"collect.jmx.brokers.{broker}: {url!r}, expected e.g. http://kafka1:8778/jolokia"
            )
    return [Agent(int(broker), url, user, password) for broker, url in brokers.items()]


class Readable(Protocol):
    """Whom a collector polls: `Agent`, or what stands for one in a test."""

    @property
    def broker_id(self) -> int:
        """Of the broker."""

    @property
    def url(self) -> str:
        """Where its agent listens."""

    def read(self, timeout_s: float) -> list[dict[str, Any]]:
        """All quota MBeans; raises JolokiaError."""


@dataclass(slots=True)
class Collector:
    """Polls agents and sends their answers.

    Args:
        agents: one a broker.
        connect: opens the topic; again after messages failed.
        interval_ms: from one poll to the next.
        tell: takes one line for the operator.
        clock_ms: the wall clock, which stamps the samples.
    """

    agents: Sequence[Readable]
    connect: Callable[[], Topic]
    interval_ms: int
    tell: Callable[[str], None]
    clock_ms: Callable[[], int]
    sent: int = 0
    _topic: Topic | None = None
    _away: set[str] = field(default_factory=set)

    def run(self, stop: threading.Event) -> int:
        """Poll until told to stop; the number of messages that were sent.

        Raises:
            UserError: the topic cannot be used at all.
        """
        self._topic = self.connect()
        try:
            with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(self.agents))) as pool:
                due_s = time.monotonic()
                while not stop.is_set():
                    polled = pool.map(self._poll, self.agents)
                    for agent, (values, problem) in zip(self.agents, polled, strict=True):
                        self._mark(f"broker {agent.broker_id} at {agent.url}", problem, "gives no metrics")
                        if values:
                            self._send(values, str(agent.broker_id).encode())
                    due_s = max(due_s + self.interval_ms / 1_000, time.monotonic())
                    stop.wait(due_s - time.monotonic())
            if self._topic is not None:
                with contextlib.suppress(DeliveryFailedError):
                    self._topic.unacknowledged(_LAST_WORDS_S)
        finally:
            if self._topic is not None:
                self._topic.close()
        return self.sent

    def _poll(self, agent: Readable) -> tuple[list[bytes], str]:
        """What an agent says, as messages of the time halfway between question and answer; or what is wrong."""
        asked_ms = self.clock_ms()
        try:
            answers = agent.read(min(self.interval_ms / 1_000, _LONGEST_READ_S))
        except JolokiaError as error:
            return [], str(error)
        time_ms = (asked_ms + self.clock_ms()) // 2
        return list(messages(answers, agent.broker_id, time_ms)), ""

    def _send(self, values: Sequence[bytes], key: bytes) -> None:
        try:
            if self._topic is None:
                self._topic = self.connect()
            taken = self._topic.send(values, key=key, headers=[("broker_id", key)])
            self.sent += taken
            lost = "" if taken == len(values) else "its queue is full, samples are lost"
            self._mark("Kafka", lost or self._stuck(), "takes no samples")
        except (DeliveryFailedError, KafkaUnreachableError) as error:
            self._mark("Kafka", str(error), "takes no samples")
            if self._topic is not None:
                self._topic.close()
                self._topic = None

    def _stuck(self) -> str:
        """What the connection complains about while messages wait."""
        assert self._topic is not None
        left = self._topic.unacknowledged(0.2)
        return self._topic.last_error if left else ""

    def _mark(self, what: str, problem: str, verb: str) -> None:
        """Say that something is away, or back; once each."""
        if problem and what not in self._away:
            self.tell(f"{what} {verb}: {problem}; continues without it, reports when it is back")
            self._away.add(what)
        elif not problem and what in self._away:
            self._away.remove(what)
            self.tell(f"{what} is back")
