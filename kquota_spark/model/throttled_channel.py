"""How a throttle reaches a connection, and what a long one leads to (KIP-219, Kafka 2.0).

Source: Kafka's `ThrottledChannel`, `KafkaChannel`'s mute states, `Selector`, `NetworkClient`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kquota_spark.model.broker_version import major_minor


class Delivery(Enum):
    """How brokers throttle; the value is the versions that do so."""

    HELD_BACK = "<2.0"
    """The response waits at the broker."""
    MUTED = "2.0+"
    """The response goes out at once and carries the throttle; the broker reads nothing more until it is over."""

    @classmethod
    def of_version(cls, version: str) -> Delivery:
        """That of a broker version such as `3.9.1`.

        Raises:
            ValueError: the text does not begin with major.minor.
        """
        return cls.MUTED if major_minor(version) >= (2, 0) else cls.HELD_BACK


class ThrottledChannel:
    """One connection of a client at the broker; the client's other connections go on.

    Requests of a connection are handled one after the other: what is sent behind a throttled one waits for the
    end of its delay, in both ways of delivery.
    """

    __slots__ = ("_delivery", "muted_until_ms")

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self.muted_until_ms = 0

    def respond(self, time_ms: int, throttle_ms: int) -> int:
        """Throttle the connection from now on; when the response goes out."""
        self.muted_until_ms = time_ms + max(throttle_ms, 0)
        return self.muted_until_ms if self._delivery is Delivery.HELD_BACK else time_ms


class Timeouts(NamedTuple):
    """Settings that a throttle can outlast, with their defaults from Kafka 3.0 on.

    request.timeout.ms and session.timeout.ms of the client, connections.max.idle.ms of the broker.
    """

    request_ms: int = 30_000
    session_ms: int = 45_000
    max_idle_ms: int = 600_000


class Consequence(Enum):
    """What a throttle leads to beyond the wait."""

    REQUEST_TIMEOUT = "a request times out in the client, which sends it again"
    REBALANCE = "the member leaves its group, which rebalances"
    IDLE_CLOSE = "the broker closes the connection as idle"


def consequences(
    delivery: Delivery,
    throttle_ms: int,
    timeouts: Timeouts,
    *,
    does_client_hold_back: bool,
    carries_group: bool = False,
) -> frozenset[Consequence]:
    """What one throttle leads to for certain.

    Before 2.0 the throttled response itself is late. From 2.0 on that hits only a client that does not hold
    back, in the request that it sends next. A group's member goes when no heartbeat or JoinGroup is handled
    for a session timeout: that takes the connection to the coordinator, which Java consumers keep apart from
    the one they fetch on. A mute is no excuse from connections.max.idle.ms: KIP-219 keeps the idle timeout, so
    that a client that went away is noticed, and `Selector` closes muted connections too.

    Args:
        delivery: of the broker.
        throttle_ms: its throttle.
        timeouts: of client and broker.
        does_client_hold_back: `apis.does_client_hold_back` of the throttled request.
        carries_group: whether the connection carries heartbeats and JoinGroup.
    """
    is_waiting = delivery is Delivery.HELD_BACK or not does_client_hold_back
    found = {
        Consequence.REQUEST_TIMEOUT: is_waiting and throttle_ms > timeouts.request_ms,
        Consequence.REBALANCE: carries_group and throttle_ms > timeouts.session_ms,
        Consequence.IDLE_CLOSE: throttle_ms > timeouts.max_idle_ms,
    }
    return frozenset(consequence for consequence, does_happen in found.items() if does_happen)
