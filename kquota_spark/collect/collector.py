"""`kquota collect jmx`: polls the agents of the brokers and sends what they say to a topic.

What a sensor said at a moment cannot be asked for later: unlike a line of the log, a sample that could not be read
or sent is gone. Everything that is missing is said once, and said again when it is back.
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
    """Polls agents and sends their answers.

    Args:
        agents: one a broker.
        connect: opens the topic; again after messages failed.
        interval_ms: from one poll to the next.
        tell: takes one line for the operator.
        clock_ms: the wall clock, which stamps the samples.
    """

    agents: Sequence[Agent]
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

    def _poll(self, agent: Agent) -> tuple[list[bytes], str]:
        """What an agent says, as messages of the time halfway between question and answer; or what is wrong."""
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
