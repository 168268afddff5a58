"""How a throttle takes effect on a connection (KIP-219, Kafka 2.0).

Source: Kafka's `ThrottledChannel`, and the mute states of `KafkaChannel`.
"""

from __future__ import annotations

from enum import Enum

from kquota_spark.model.measure.broker_version import major_minor


class Delivery(Enum):
    """How brokers throttle; the value names the versions that do so."""

    DELAYED = "<2.0"
    """The response waits at the broker."""
    MUTED = "2.0+"
    """The response is sent at once and contains the throttle; the broker reads nothing more until it is over."""

    @classmethod
    def of_version(cls, version: str) -> Delivery:
        """The delivery of a broker version such as `3.9.1`.

        Raises:
            ValueError: the text does not begin with major.minor.
        """
        return cls.MUTED if major_minor(version) >= (2, 0) else cls.DELAYED


class ThrottledChannel:
    """One connection of a client at the broker; a throttle does not stop the client's other connections.

    The broker handles the requests of a connection one after the other. In both deliveries, requests after a throttled
    one wait for the end of its delay.
    """

    __slots__ = ("_delivery", "muted_until_ms")

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self.muted_until_ms = 0

    def respond(self, time_ms: int, throttle_ms: int) -> int:
        """Throttle the connection from `time_ms` on, and return the time at which the response is sent."""
        self.muted_until_ms = time_ms + max(throttle_ms, 0)
        return self.muted_until_ms if self._delivery is Delivery.DELAYED else time_ms
