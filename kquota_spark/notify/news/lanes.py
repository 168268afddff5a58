"""The lane of each route: events wait for a group, a group becomes one message, and a message is sent until it arrives.

A message is sealed before it is sent, and is the same at each attempt. Its id and its events distinguish copies from
news.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field

from kquota_spark.config.routes import Alertmanager, Notifications, Route
from kquota_spark.notify.news.events import Event

HOUR_MS = 3_600_000
MOST_EVENTS = 100
"""Maximum events per message; the others are in the next one."""
MOST_WAITING = 1_000
"""Maximum waiting events per route; older ones are left out, and the next message has their number."""
GIVE_UP_MS = 24 * HOUR_MS
"""Maximum age of a message, ms; an older one is not sent again."""
_FIRST_PAUSE_MS = 5_000
_LONGEST_PAUSE_MS = 900_000


@dataclass(frozen=True, slots=True)
class Message:
    """A group of events that a receiver gets together."""

    message_id: str
    sealed_ms: int
    events: list[Event]
    left_out: int = 0


@dataclass(slots=True)
class Lane:
    """The waiting events and the undelivered message of one route."""

    waiting: list[Event] = field(default_factory=list)
    since_ms: int = 0
    """When the oldest of them began to wait, epoch ms."""
    left_out: int = 0
    message: Message | None = None
    """Sealed and not yet delivered."""
    failures: int = 0
    next_try_ms: int = 0
    sent_ms: list[int] = field(default_factory=list)
    """Times of the messages of the last hour, epoch ms."""

    def add(self, events: Collection[Event], now_ms: int) -> None:
        """Add events to those that wait."""
        if not self.waiting:
            self.since_ms = now_ms
        self.waiting += events
        excess = max(0, len(self.waiting) - MOST_WAITING)
        self.left_out += excess
        del self.waiting[:excess]

    def seal(self, name: str, now_ms: int, wait_ms: int, per_hour: int | None) -> None:
        """Make a message of waiting events, if no other is undelivered, the wait is over and the hour's limit allows.

        Args:
            name: name of the route, part of the message's id.
            now_ms: epoch ms.
            wait_ms: time that events wait for others, from the first one.
            per_hour: maximum messages per hour; None for no limit.
        """
        # A clock that was set back must not stop a route until it reaches the old time again.
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
        """Record that the receiver has the message."""
        self.message = None
        self.sent_ms.append(now_ms)

    def failed(self, now_ms: int, *, is_final: bool) -> int | None:
        """Record a failed attempt; milliseconds until the next attempt, None if the message is given up."""
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
    """The id of a message: the same for the same events on the same route."""
    names = "\0".join([route, *(event.event_id for event in events)])
    return hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def seal_due(
    lanes: dict[str, Lane], settings: Notifications, now_ms: int, *, is_waiting: bool = True
) -> None:
    """Seal messages in the lanes in which the wait is over.

    Args:
        lanes: the lanes by route; changed in place.
        settings: waits and limits of the routes.
        now_ms: epoch ms.
        is_waiting: False to seal messages at once, without the wait.
    """
    for name, lane in lanes.items():
        has_own = groups_itself(settings.routes[name])
        wait_ms = settings.group_wait if is_waiting and not has_own else 0
        lane.seal(name, now_ms, wait_ms, None if has_own else settings.messages_per_hour)


def groups_itself(route: Route) -> bool:
    """Whether the receiver itself groups and limits messages."""
    return isinstance(route, Alertmanager)
