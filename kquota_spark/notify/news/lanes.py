"""The way of each route: events wait for a group, a group becomes one message, and a message is sent until it arrives.

A message is sealed before it is sent, and is the same at each attempt: its id and its events tell copies from news.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field

from kquota_spark.config.settings import Alertmanager, Notifications, Route
from kquota_spark.notify.news.events import Event

HOUR_MS = 3_600_000
MOST_EVENTS = 100
"""Of one message; the others are in the next one."""
MOST_WAITING = 1_000
"""Of one route; older ones are left out, and counted in the next message."""
GIVE_UP_MS = 24 * HOUR_MS
"""Age of a message that is not sent any more."""
_FIRST_PAUSE_MS = 5_000
_LONGEST_PAUSE_MS = 900_000


@dataclass(frozen=True, slots=True)
class Message:
    """What a receiver gets at a time."""

    message_id: str
    sealed_ms: int
    events: list[Event]
    left_out: int = 0


@dataclass(slots=True)
class Lane:
    """What is on its way to one route."""

    waiting: list[Event] = field(default_factory=list)
    since_ms: int = 0
    """When the oldest of them began to wait."""
    left_out: int = 0
    message: Message | None = None
    """Sealed and not yet delivered."""
    failures: int = 0
    next_try_ms: int = 0
    sent_ms: list[int] = field(default_factory=list)
    """Of the messages of the last hour."""

    def add(self, events: Collection[Event], now_ms: int) -> None:
        """Let events wait."""
        if not self.waiting:
            self.since_ms = now_ms
        self.waiting += events
        excess = max(0, len(self.waiting) - MOST_WAITING)
        self.left_out += excess
        del self.waiting[:excess]

    def seal(self, name: str, now_ms: int, wait_ms: int, per_hour: int | None) -> None:
        """Make a message of what waits, if nothing else is on its way, the wait is over and the hour has room.

        Args:
            name: of the route, part of the message's id.
            now_ms: epoch ms.
            wait_ms: how long events wait for others from the first one on.
            per_hour: maximum messages per hour; None for no limit.
        """
        # A clock that was set back must not stop a route until it has caught up.
        self.sent_ms = [at_ms for at_ms in self.sent_ms if 0 <= now_ms - at_ms < HOUR_MS]
        if self.message is not None or not self.waiting or 0 <= now_ms - self.since_ms < wait_ms:
            return
        if per_hour is not None and len(self.sent_ms) >= per_hour:
            return
        events, self.waiting = self.waiting[:MOST_EVENTS], self.waiting[MOST_EVENTS:]
        self.message = Message(message_id(name, events), now_ms, events, self.left_out)
        self.left_out = self.failures = self.next_try_ms = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether there is a message to send now."""
        return self.message is not None and not 0 < self.next_try_ms - now_ms <= _LONGEST_PAUSE_MS

    def delivered(self, now_ms: int) -> None:
        """The receiver has it."""
        self.message = None
        self.sent_ms.append(now_ms)

    def failed(self, now_ms: int, *, is_final: bool) -> int | None:
        """The receiver does not have it: milliseconds until the next attempt; None for none, it is given up."""
        assert self.message is not None
        if is_final or now_ms - self.message.sealed_ms >= GIVE_UP_MS:
            self.left_out += len(self.message.events) + self.message.left_out
            self.message = None
            return None
        pause_ms = int(min(_FIRST_PAUSE_MS * 2 ** min(self.failures, 20), _LONGEST_PAUSE_MS))
        self.failures += 1
        self.next_try_ms = now_ms + pause_ms
        return pause_ms


def message_id(route: str, events: Collection[Event]) -> str:
    """The same for the same events on the same route."""
    names = "\0".join([route, *(event.event_id for event in events)])
    return hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def seal_due(
    lanes: dict[str, Lane], settings: Notifications, now_ms: int, *, is_waiting: bool = True
) -> None:
    """Seal the messages whose wait is over, or without waiting.

    Args:
        lanes: by route; changed in place.
        settings: waits and limits of the routes.
        now_ms: epoch ms.
        is_waiting: False for messages of what is there now.
    """
    for name, lane in lanes.items():
        has_own = groups_itself(settings.routes[name])
        wait_ms = settings.group_wait if is_waiting and not has_own else 0
        lane.seal(name, now_ms, wait_ms, None if has_own else settings.messages_per_hour)


def groups_itself(route: Route) -> bool:
    """Whether a receiver groups and limits by itself what it gets."""
    return isinstance(route, Alertmanager)
