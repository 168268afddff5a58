"""A topic that loses, refuses and stalls on demand, its shipper, and a clock and a wait that take no time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kquota_spark.ship.selection import LogFile
from kquota_spark.ship.shipper import Shipper
from kquota_spark.ship.topic import Headers, Topic


@dataclass(frozen=True)
class Message:
    value: bytes
    key: bytes
    headers: Headers


class Crash(BaseException):
    """kill -9."""


@dataclass
class FakeTopic:
    """Takes and acknowledges at once, unless told otherwise."""

    log: list[Message] = field(default_factory=list)
    name: str = "topic t on nowhere"
    line_limit_bytes: int = 999_000
    last_error: str = ""
    queue_limit: int = 1_000_000
    before_acknowledging: Callable[[], None] = lambda: None
    waiting: list[Message] = field(default_factory=list)
    is_away: bool = False
    is_closed: bool = False

    def connect(self) -> FakeTopic:
        """Anew: what was not acknowledged is forgotten."""
        self.waiting = []
        return self

    def send(self, values: Sequence[bytes], *, key: bytes, headers: Headers) -> int:
        taken = values[: self.queue_limit - len(self.waiting)]
        self.waiting += [Message(value, key, headers) for value in taken]
        return len(taken)

    def unacknowledged(self, timeout_s: float) -> int:
        if self.waiting and not self.is_away and timeout_s:
            self.before_acknowledging()
            self.log += self.waiting
            self.waiting = []
        return len(self.waiting)

    def close(self) -> None:
        self.is_closed = True

    @property
    def lines(self) -> list[bytes]:
        return [message.value for message in self.log if ("kind", b"heartbeat") not in message.headers]

    @property
    def heartbeats(self) -> list[dict[str, Any]]:
        found = [message for message in self.log if ("kind", b"heartbeat") in message.headers]
        return [json.loads(message.value)["kquota_heartbeat"] for message in found]


class Stop(threading.Event):
    """Waiting takes no time."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


class Steps:
    """A clock that goes on by a step with each look."""

    def __init__(self, start: int, step: int) -> None:
        self.now, self.step = start - step, step

    def __call__(self) -> int:
        self.now += self.step
        return self.now


def state_of(log: Path) -> dict[str, Any]:
    return dict(json.loads((log.parent / "state" / "1.json").read_bytes()))


def shipper(log: Path, topic: Topic, **options: Any) -> Shipper:
    return Shipper([LogFile(1, log)], lambda: topic, log.parent / "state", **options)
