"""`kquota collect jmx`: polls the agents of the brokers and sends their answers to a topic.

Unlike a line of the log, a sample that could not be read or sent is lost: a sensor's past values cannot be queried.
An agent or topic that fails is reported once, and once more when it is back.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kquota_spark.collect.agents import Agent, AgentError
from kquota_spark.formats.jmx.collectors import messages
from kquota_spark.ship.topic import DeliveryFailedError, KafkaUnreachableError, Topic

_MOST_AT_ONCE = 16
_LONGEST_READ_S = 10.0
_LAST_WORDS_S = 5.0


@dataclass(slots=True)
class Collector:
    """Polls agents and sends their answers."""

    agents: Sequence[Agent]
    """One per broker."""
    connect: Callable[[], Topic]
    """Opens the topic; called again after messages failed."""
    interval_ms: int
    """Time from one poll to the next."""
    notice: Callable[[str], None]
    """Takes one line for the operator."""
    clock_ms: Callable[[], int]
    """The wall clock that stamps the samples, epoch ms."""
    sent: int = 0
    """Number of messages sent so far."""
    _topic: Topic | None = None
    _away: set[str] = field(default_factory=set)

    def run(self, stop: threading.Event) -> int:
        """Poll until `stop` is set; returns the number of messages sent.

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

    def _poll(self, agent: Agent) -> tuple[list[bytes], str]:
        """An agent's answers as messages, with the time halfway between query and answer; or the problem."""
        asked_ms = self.clock_ms()
        try:
            answers = agent.read(min(self.interval_ms / 1_000, _LONGEST_READ_S))
        except AgentError as error:
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
        """The last error of the connection while messages wait; empty if none waits."""
        assert self._topic is not None
        left = self._topic.unacknowledged(0.2)
        return self._topic.last_error if left else ""

    def _mark(self, what: str, problem: str, verb: str) -> None:
        """Report once that an agent or the topic fails, and once that it is back."""
        if problem and what not in self._away:
            self.notice(f"{what} {verb}: {problem}; continues without it, reports when it is back")
            self._away.add(what)
        elif not problem and what in self._away:
            self._away.remove(what)
            self.notice(f"{what} is back")
